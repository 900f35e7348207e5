"""The task of an agent, from a scenario."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ospbridge.errors import AgentNotFound, OspBridgeError, ScenarioInvalid
from ospbridge.task.guarding import guard
from ospbridge.task.plain import PlainTask
from ospbridge.task.scenario_task import ScenarioTask
from ospbridge.toml.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.interface import AgentInterface
    from ospbridge.task.base import Task
    from ospbridge.task.scenario import Scenario

__all__ = ["make_task", "task_class", "task_maker"]


def make_task(scenario: Scenario, agent: AgentInterface, *, bounded: bool) -> Task:
    """The task of an agent that the scenario matches. Raises AgentNotFound, ScenarioInvalid."""
    rules = scenario.for_agent(agent)
    if rules is None:
        matched = " and ".join(str(table.match) for table in scenario.agent)
        raise AgentNotFound(
            f"scenario {scenario.name!r} has no task for agent {agent.name!r} of type {agent.type!r}; "
            f"it matches {matched}",
            hint="`ospbridge agents` lists what the simulator offers",
        )
    kind = task_class(rules.task, scenario.origin)
    if kind is ScenarioTask:
        return ScenarioTask(agent, bounded=bounded, scenario=scenario, rules=rules)
    try:
        task = kind(agent, bounded=bounded, scenario=scenario, rules=rules)
        guard(task)
    except OspBridgeError:
        raise
    except Exception as error:
        what = f"making it for agent {agent.name!r} failed: {type(error).__name__}: {error}"
        raise _unusable(scenario.origin, rules.task, what, "mend its __init__") from error
    return task


def task_maker(scenario: Scenario) -> Callable[..., Task]:
    """For many agents: those that the scenario does not match have the task of no scenario."""

    def made(agent: AgentInterface, *, bounded: bool) -> Task:
        if scenario.for_agent(agent) is None:
            return PlainTask(agent, bounded=bounded)
        return make_task(scenario, agent, bounded=bounded)

    return made


def task_class(name: str, origin: str = "") -> type[ScenarioTask]:
    """The class that ``package.module:Class`` names; none named: ScenarioTask. Raises ScenarioInvalid."""
    if not name:
        return ScenarioTask
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise _unusable(origin, name, f"{error}", "is it installed, or its folder on PYTHONPATH?") from error
    except Exception as error:
        told = f"{module_name} cannot be imported: {type(error).__name__}: {error}"
        raise _unusable(origin, name, told, f"see python -c 'import {module_name}'") from error
    found = getattr(module, attribute, None)
    if not (isinstance(found, type) and issubclass(found, ScenarioTask)):
        if found is None:
            raise _unusable(
                origin, name, f"{module_name} has no {attribute!r}", nearest(attribute, vars(module))
            )
        raise _unusable(
            origin,
            name,
            "it does not derive from ScenarioTask",
            "from ospbridge.task.scenario_task import ScenarioTask",
        )
    return found


def _unusable(origin: str, name: str, what: str, hint: str) -> ScenarioInvalid:
    mistake = f"agent.task: {name!r} cannot be used: {what}"
    return ScenarioInvalid(
        f"{origin}: {mistake}" if origin else mistake, hint=hint, mistakes=[f"{mistake} ({hint})"]
    )
