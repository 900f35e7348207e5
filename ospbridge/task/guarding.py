"""Tasks of users' own classes: their mistakes are TaskErrors, and so is what they return and cannot be used.

A task runs in a daemon that plays others too, and a mistake in one must be the end of that agent's episode only. What
a class has set in its ``__init__`` is looked at before anything is played.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.errors import OspBridgeError, TaskError
from ospbridge.interface import BoxSpace, DiscreteSpace, Feedback

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.task.scenario_task import ScenarioTask

__all__ = ["guard"]

_TOLD: Final = frozenset({"osp_seed", "infos", "events", "values", "restored", "reason"})
"""The keys of every ``info``."""


def guard(task: ScenarioTask) -> None:
    """From now on everything that the bridge asks of ``task``, and that a class may override, raises TaskError.

    Raises TypeError or ValueError for attributes of which the bridge can make nothing.
    """
    _check_attributes(task)
    for name, usable in _ASKED.items():
        # On the object, so that methods of the class still find those of their base.
        setattr(task, name, _guarded(task, name, usable))


def _check_attributes(task: ScenarioTask) -> None:
    """Whatever a class has set is of the kind that it must be of from now on."""
    task.observation_space = _box(task, "observation_space")
    if not isinstance(task.action_space, DiscreteSpace):
        task.action_space = _box(task, "action_space")
    elif task.action_space.n < 1:
        raise ValueError(f"its action_space has {task.action_space.n} choices")
    neutral = np.asarray(task.neutral, np.float32)
    if neutral.shape != (len(task.agent.inputs),) or not np.isfinite(neutral).all():
        raise ValueError(f"its neutral is {task.neutral!r}, not {len(task.agent.inputs)} finite numbers")
    task.neutral = neutral
    for name, least in (("action_repeat", 1), ("settle_steps", 0)):
        count = getattr(task, name)
        if not isinstance(count, (int, np.integer)) or count < least:
            raise ValueError(f"its {name} is {count!r}, not a whole number, {least} or more")
        setattr(task, name, int(count))
    for name in ("events", "values", "observation_names", "action_names"):
        texts = getattr(task, name)
        if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
            raise TypeError(f"its {name} are {texts!r}, not a list of texts")
        setattr(task, name, tuple(texts) if name in {"events", "values"} else list(texts))


def _box(task: ScenarioTask, name: str) -> BoxSpace:
    space = getattr(task, name)
    if not isinstance(space, BoxSpace):
        kinds = "BoxSpace" if name == "observation_space" else "BoxSpace or DiscreteSpace"
        raise TypeError(f"its {name} is {space!r}, not a {kinds} of ospbridge.interface")
    low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
    if low.ndim != 1 or low.shape != high.shape:
        raise ValueError(f"the bounds of its {name} have shapes {low.shape} and {high.shape}, not (n,)")
    return BoxSpace(low, high)


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


def _feedback(task: ScenarioTask, returned: Any) -> Feedback:
    """Whole, and of usable parts."""
    if not isinstance(returned, Feedback):
        raise TypeError(f"it returned {returned!r}, not the Feedback of the inherited one")
    missing = _TOLD - returned.info.keys()
    if missing:
        raise ValueError(f"its info has no {', '.join(sorted(missing))}")
    returned.observation = _observation(task, returned.observation)
    judged = (returned.reward, returned.terminated, returned.truncated)
    returned.reward, returned.terminated, returned.truncated = _judgement(task, judged)
    return returned


def _anything(_: ScenarioTask, returned: Any) -> Any:
    return returned


_ASKED: Final[dict[str, Callable[[ScenarioTask, Any], Any]]] = {
    "start_values": _values,
    "inputs": _inputs,
    "observe": _observation,
    "judge": _judgement,
    "restart": _anything,
    "begin": _feedback,
    "evaluate": _feedback,
}
"""What becomes of what each returns; raises where it cannot be used."""
