"""What an environment says of its next action, checked here, where whoever said it can be told of a mistake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.counts import numbered
from ospbridge.errors import LocalProtocolError
from ospbridge.finite import all_finite
from ospbridge.hub.requests import Note

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["NextNote"]

FLOAT32: Final = np.dtype("<f4")
LARGEST: Final = float(np.finfo(np.float32).max)


class NextNote:
    """One agent's: set before each step, and cleared by it. The number of inputs stays that of the first."""

    __slots__ = ("_name", "_note", "_size")

    def __init__(self, name: str) -> None:
        self._name = name
        self._note: Note | None = None
        self._size = 0

    def set(
        self, action_logp: Any, action_dist_inputs: Any, weights_seq_no: Any = None, action: Any = None
    ) -> None:
        """Raises LocalProtocolError for what is not one finite number, a vector of them, and a count or None.

        ``action``: a vector as well, or None.
        """
        logp = self._number(action_logp)
        inputs = action_dist_inputs
        if not (type(inputs) is np.ndarray and inputs.dtype == FLOAT32):
            inputs = self._numbers("action_dist_inputs", inputs)
        if inputs.ndim != 1 or not inputs.size or self._size not in {0, inputs.size}:
            wanted = numbered(self._size, "number") if self._size else "some numbers"
            raise self._wrong("action_dist_inputs", f"a vector of {wanted}, got the shape {inputs.shape}")
        if not all_finite(inputs):
            raise self._wrong("action_dist_inputs", f"finite numbers of float32, got {action_dist_inputs}")
        if weights_seq_no is not None:
            if not isinstance(weights_seq_no, (int, np.integer)) or weights_seq_no < 0:
                raise self._wrong("weights_seq_no", f"a count or None, got {weights_seq_no!r:.40}")
            weights_seq_no = int(weights_seq_no)
        drawn = b"" if action is None else self._drawn(action)
        self._size = inputs.size
        self._note = Note(inputs.tobytes(), logp, weights_seq_no, drawn)

    def _drawn(self, action: Any) -> bytes:
        numbers = self._numbers("action", action)
        if numbers.ndim != 1 or not np.isfinite(numbers).all():
            raise self._wrong("action", f"a vector of finite numbers as they were drawn, got {action!r:.80}")
        return numbers.tobytes()

    def _number(self, given: Any) -> float:
        if not isinstance(given, (float, np.floating)):
            numbers = self._numbers("action_logp", given)
            if numbers.size != 1:
                raise self._wrong("action_logp", f"one number, got an array of shape {numbers.shape}")
            given = numbers.reshape(())
        number = float(given)
        if not -LARGEST <= number <= LARGEST:
            raise self._wrong("action_logp", f"a finite number of float32, got {number}")
        return number

    def _numbers(self, what: str, given: Any) -> NDArray[np.float32]:
        try:
            with np.errstate(over="ignore"):
                return np.asarray(given, FLOAT32)
        except (TypeError, ValueError, RuntimeError) as error:
            raise self._wrong(what, f"numbers: {error}") from None

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
