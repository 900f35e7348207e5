"""Annotations for upstreams, as environments take them: what each action was drawn from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ospbridge.errors import LocalProtocolError, UsageError
from ospbridge.finite import all_finite
from ospbridge.hub.recurring import FLOAT
from ospbridge.hub.requests import Note
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["NextNote", "annotate", "check_annotates"]


def check_annotates(annotates: bool, simulator: object) -> None:
    """Raises UsageError where nobody would hear of annotations."""
    if annotates and simulator is not None:
        raise UsageError(
            "annotates=True was given, but annotations go upstream through a daemon, and this environment joins the "
            "simulator itself",
            hint="attach to `ospbridge connect` with bridge=..., or leave annotates out",
        )


def annotate(
    notes: Sequence[NextNote],
    simulator: object,
    *,
    action_logp: Any,
    action_dist_inputs: Any,
    weights_seq_no: int | None,
    action: Any,
) -> None:
    """A row for each agent. Raises LocalProtocolError, and UsageError where nobody would hear of it.

    ``notes``: of the agents that annotate; ``simulator``: the one that was joined without a daemon.
    """
    if not notes and simulator is not None:
        raise UsageError(
            "only environments of a daemon's hub feed an upstream, and this one joined the simulator itself",
            hint="leave out the call of annotate, or attach to `ospbridge connect` with bridge=... and annotates=True",
        )
    if not notes:
        raise UsageError(
            "this environment was made without annotates=True, so its daemon expects no annotations",
            hint='gymnasium.make("ospbridge/Agent-v0", ..., annotates=True)',
        )
    drawn = [None] * len(notes) if action is None else action
    if not len(action_logp) == len(action_dist_inputs) == len(drawn) == len(notes):
        raise LocalProtocolError(
            f"expected {pluralize(len(notes), 'row')}, one for each environment, got "
            f"{len(action_logp)} of action_logp, {len(action_dist_inputs)} of action_dist_inputs and "
            f"{'none' if action is None else len(drawn)} of action"
        )
    for note, logp, inputs, own in zip(notes, action_logp, action_dist_inputs, drawn, strict=True):
        note.set(logp, inputs, weights_seq_no, own)


class NextNote:
    """What is said of one agent's next action: set before each step, and cleared by it."""

    __slots__ = ("_name", "_note", "_size")

    def __init__(self, name: str) -> None:
        self._name = name
        self._note: Note | None = None
        self._size = 0
        """How many inputs the first distribution had, which is how many all have."""

    def set(
        self, action_logp: Any, action_dist_inputs: Any, weights_seq_no: Any = None, action: Any = None
    ) -> None:
        """Raises LocalProtocolError for what is not one finite number, a vector of them, and a count or None.

        ``action``: a vector as well, or None.
        """
        logp = self._numbers("action_logp", action_logp)
        if logp.size != 1:
            raise self._wrong("action_logp", f"one number, got an array of shape {logp.shape}")
        inputs = self._numbers("action_dist_inputs", action_dist_inputs)
        if inputs.ndim != 1 or not inputs.size or self._size not in {0, inputs.size}:
            wanted = pluralize(self._size, "number") if self._size else "some numbers"
            raise self._wrong("action_dist_inputs", f"a vector of {wanted}, got the shape {inputs.shape}")
        if weights_seq_no is not None:
            if not isinstance(weights_seq_no, (int, np.integer)) or weights_seq_no < 0:
                raise self._wrong("weights_seq_no", f"a count or None, got {weights_seq_no!r:.40}")
            weights_seq_no = int(weights_seq_no)
        drawn = b""
        if action is not None:
            numbers = self._numbers("action", action)
            if numbers.ndim != 1:
                raise self._wrong("action", f"a vector as it was drawn, got the shape {numbers.shape}")
            drawn = numbers.tobytes()
        self._size = inputs.size
        self._note = Note(inputs.tobytes(), float(logp.item()), weights_seq_no, drawn)

    def _numbers(self, what: str, given: Any) -> NDArray[np.float32]:
        try:
            with np.errstate(over="ignore"):
                numbers = np.asarray(given, FLOAT)
        except (TypeError, ValueError, RuntimeError) as error:
            raise self._wrong(what, f"numbers: {error}") from None
        if not all_finite(numbers.reshape(-1)):
            raise self._wrong(what, f"finite numbers of float32, got {given!r:.80}")
        return numbers

    def _wrong(self, what: str, why: str) -> LocalProtocolError:
        return LocalProtocolError(
            f"{what} of agent {self._name!r} must be {why}",
            hint="give what the policy put out for this one action: logits, or means and then logarithms of standard "
            "deviations; and the logarithm of the action's probability",
        )

    @property
    def note(self) -> Note:
        """What was said of the next action. Raises LocalProtocolError where nothing was."""
        if self._note is None:
            raise LocalProtocolError(
                f"agent {self._name!r} was attached with annotates=True, and nothing was said of this action",
                hint="call env.unwrapped.annotate(action_logp=..., action_dist_inputs=...) before each step",
            )
        return self._note

    def clear(self) -> None:
        """The action was sent, or a reset comes first."""
        self._note = None
