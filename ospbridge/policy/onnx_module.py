"""ONNX models as modules. Needs the extra ``onnx``.

The first input takes observations, the first output gives the numbers of a distribution, whatever they are called.
RLlib 2.47 exports its models for a batch of exactly one row: more rows go through one by one. A Gaussian's limits are
within the model.

Facts: models of Ray 2.47.1; ONNX Runtime 1.31.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.errors import ConfigurationError
from ospbridge.policy.onnx_model import check_model
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["OnnxModule"]

_ERRORS_ONLY: Final = 3
_FLOATS: Final = "tensor(float)"


class OnnxModule:
    """``inputs`` numbers of an observation to ``outputs`` numbers of a distribution. Not for several threads."""

    def __init__(self, model: bytes, *, inputs: int, outputs: int) -> None:
        self._inputs = inputs
        self._outputs = outputs
        self._session = _Session(model, inputs, outputs)

    def load(self, weights: bytes) -> None:
        """Act from another model from now on.

        Raises ConfigurationError for one that cannot be run or does not fit; the one before stays in force then.
        """
        self._session = _Session(weights, self._inputs, self._outputs)

    def forward(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32[B, inputs] to float32[B, outputs], an array of the caller's own."""
        session = self._session
        if not session.one_by_one:
            return session.run(observations)
        rows = np.empty((len(observations), self._outputs), np.float32)
        for at in range(len(observations)):
            rows[at] = session.run(observations[at : at + 1])[0]
        return rows

    def forward_row(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32[inputs] to float32[outputs]."""
        row: NDArray[np.float32] = self._session.run(observation[None])[0]
        return row


class _Session:
    """A model that has been run once, and fits."""

    def __init__(self, model: bytes, inputs: int, outputs: int) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise ConfigurationError(
                f"an ONNX policy needs ONNX Runtime, which cannot be imported: {error}",
                hint="pip install 'ospbridge[onnx]'",
            ) from None
        check_model(model)
        options = onnxruntime.SessionOptions()
        # A policy's networks are small: what a second thread saves, it costs to wake it.
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = _ERRORS_ONLY
        # Not what its bytes look like: the runtime's own format has not been checked.
        options.add_session_config_entry("session.load_model_format", "ONNX")
        try:
            session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # noqa: BLE001  # the runtime's errors have no base of their own
            raise ConfigurationError(
                f"ONNX Runtime cannot load the model: {_told(error)}",
                hint="export it with the operators of ONNX alone, in an opset that this runtime knows",
            ) from None
        taken, given = session.get_inputs(), session.get_outputs()
        if not taken or not given:
            raise ConfigurationError(
                f"the ONNX model has {pluralize(len(taken), 'input')} and "
                f"{pluralize(len(given), 'output')}, expected one of each",
                hint="export it with an input for observations and an output for the distribution",
            )
        shape = taken[0].shape
        if taken[0].type != _FLOATS or len(shape) != 2 or _size(shape[0]) not in (0, 1):
            raise ConfigurationError(
                f"input {taken[0].name!r} of the ONNX model is {taken[0].type}{shape}, "
                f"expected {_FLOATS}[1 or any, {inputs}]",
                hint="export it for a batch of one row, or of any number of rows",
            )
        if _size(shape[1]) not in (0, inputs):
            raise ConfigurationError(
                f"input {taken[0].name!r} of the ONNX model has shape {shape}, expected [..., {inputs}]: "
                f"the agent's observation has {pluralize(inputs, 'number')}",
                hint="give the server the observation space of this agent",
            )
        self._run: Any = session.run
        self._input: str = taken[0].name
        self._output = [given[0].name]
        self._try(inputs, outputs, [each.name for each in taken])
        self.one_by_one = _size(shape[0]) == 1 or not self._takes_two(inputs, outputs)

    def run(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32[B, inputs] to float32[B, outputs]; B is 1 where rows go one by one."""
        result: NDArray[np.float32] = self._run(self._output, {self._input: observations})[0]
        return result

    def _try(self, inputs: int, outputs: int, names: list[str]) -> None:
        """Raises ConfigurationError where zeros do not give the numbers that are wanted."""
        try:
            result = self.run(np.zeros((1, inputs), np.float32))
        except Exception as error:  # noqa: BLE001  # the runtime's errors have no base of their own
            raise ConfigurationError(
                f"ONNX Runtime cannot run the model, of whose inputs {names} the first is fed: {_told(error)}",
                hint="export a policy that takes observations alone, without a state that is carried on",
            ) from None
        shape, dtype = getattr(result, "shape", None), getattr(result, "dtype", None)
        if shape != (1, outputs) or dtype != np.float32:
            raise ConfigurationError(
                f"output {self._output[0]!r} of the ONNX model is {dtype}{shape}, expected float32{(1, outputs)}: "
                f"the agent's action is drawn from {pluralize(outputs, 'number')}",
                hint="give the server the action space of this agent; the first output is taken",
            )
        if not np.isfinite(result).all():
            raise ConfigurationError(
                f"output {self._output[0]!r} of the ONNX model is {result[0].tolist()} for an observation of zeros",
                hint="the learner has diverged: look at its loss, and at the rewards it was given",
            )

    def _takes_two(self, inputs: int, outputs: int) -> bool:
        """Whether a model that calls its batch open can be run with another than it was exported with."""
        try:
            return self.run(np.zeros((2, inputs), np.float32)).shape == (2, outputs)
        except Exception:  # noqa: BLE001  # the runtime's errors have no base of their own
            return False


def _size(dimension: object) -> int:
    """How many; 0 where any number will do."""
    return dimension if isinstance(dimension, int) else 0


def _told(error: Exception) -> str:
    return f"{error}".strip().split("\n", maxsplit=1)[0][:300]
