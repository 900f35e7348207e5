"""What an environment says of its next action, checked here, where whoever said it can be told of a mistake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ospbridge.errors import LocalProtocolError
from ospbridge.hub.messages import Note

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["NextNote"]


class NextNote:
    """One agent's: set before each step, and cleared by it. The number of inputs stays that of the first."""

    __slots__ = ("_name", "_note", "_size")

    def __init__(self, name: str) -> None:
        self._name = name
        self._note: Note | None = None
        self._size = 0

    def set(self, action_logp: Any, action_dist_inputs: Any, weights_seq_no: Any = None) -> None:
        """Raises LocalProtocolError for what is not one finite number, a vector of them, and a count or None."""
        logp = self._finite("action_logp", action_logp)
        inputs = self._finite("action_dist_inputs", action_dist_inputs)
        if logp.size != 1:
            raise self._wrong("action_logp", f"one number, got an array of shape {logp.shape}")
        wanted = f"{self._size}" if self._size else "some"
        if inputs.ndim != 1 or not inputs.size or self._size not in {0, inputs.size}:
            raise self._wrong(
                "action_dist_inputs", f"a vector of {wanted} numbers, got the shape {inputs.shape}"
            )
        if weights_seq_no is not None and not (
            isinstance(weights_seq_no, (int, np.integer)) and weights_seq_no >= 0
        ):
            raise self._wrong("weights_seq_no", f"a count or None, got {weights_seq_no!r:.40}")
        self._size = inputs.size
        self._note = Note(
            inputs.tobytes(),
            float(logp.reshape(())),
            None if weights_seq_no is None else int(weights_seq_no),
        )

    def _finite(self, what: str, given: Any) -> NDArray[np.float32]:
        try:
            with np.errstate(over="ignore"):
                numbers = np.asarray(given, "<f4")
        except (TypeError, ValueError, RuntimeError) as error:
            raise self._wrong(what, f"numbers: {error}") from None
        if not np.isfinite(numbers).all():
            raise self._wrong(what, f"finite numbers of float32, got {np.asarray(given)}")
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
