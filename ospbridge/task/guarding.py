"""Tasks of users' own classes: their mistakes are TaskErrors, and so is what they return and cannot be used.

A task runs in a daemon that plays others too, and a mistake in one must be the end of that agent's episode only.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.errors import OspBridgeError, TaskError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.task.scenario_task import ScenarioTask

__all__ = ["guard"]


def guard(task: ScenarioTask) -> None:
    """From now on everything that the bridge asks of ``task``, and that a class may override, raises TaskError."""
    for name, usable in _ASKED.items():
        # On the object, so that methods of the class still find those of their base.
        setattr(task, name, _guarded(task, name, usable))


def _guarded(task: ScenarioTask, name: str, usable: Callable[[ScenarioTask, Any], Any]) -> Callable[..., Any]:
    method: Callable[..., Any] = getattr(task, name)

    @wraps(method)
    def asked(*args: Any, **kwargs: Any) -> Any:
        try:
            return usable(task, method(*args, **kwargs))
        except OspBridgeError:
            raise
        except Exception as error:
            raise TaskError(
                f"{task.scenario.origin or task.scenario.name}, agent {task.agent.name!r}: "
                f"{type(task).__name__}.{name} failed: {type(error).__name__}: {error}"
            ) from error

    return asked


def _inputs(task: ScenarioTask, returned: Any) -> Any:
    return _numbers(returned, (len(task.agent.inputs),), finite=True)


def _observation(task: ScenarioTask, returned: Any) -> Any:
    return _numbers(returned, task.observation_space.low.shape, finite=False)


def _numbers(returned: Any, shape: tuple[int, ...], *, finite: bool) -> Any:
    numbers = np.asarray(returned, np.float32)
    if numbers.shape != shape:
        raise ValueError(f"it returned an array of shape {numbers.shape}, not {shape}")
    if finite and not np.isfinite(numbers).all():
        raise ValueError(f"it returned {numbers.tolist()}, of which not all are finite")
    return numbers


def _judgement(_: ScenarioTask, returned: Any) -> tuple[float, bool, bool]:
    reward, terminated, truncated = returned
    if not np.isfinite(reward):
        raise ValueError(f"its reward is {reward}")
    return float(reward), bool(terminated), bool(truncated)


def _values(_: ScenarioTask, returned: Any) -> dict[str, str]:
    if not isinstance(returned, Mapping):
        raise TypeError(f"it returned {returned!r}, not a mapping of names to texts")
    return {str(name): str(text) for name, text in returned.items()}


def _anything(_: ScenarioTask, returned: Any) -> Any:
    return returned


_ASKED: Final[dict[str, Callable[[ScenarioTask, Any], Any]]] = {
    "start_values": _values,
    "inputs": _inputs,
    "observe": _observation,
    "judge": _judgement,
    "restart": _anything,
    "begin": _anything,
    "evaluate": _anything,
}
"""What becomes of what each returns; raises where it cannot be used."""
