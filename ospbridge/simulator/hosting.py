"""Which worlds can be hosted: those that a scenario names, and what no datagram could say of any.

What cannot be hosted is told when a server is made, not to its first client.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.errors import ConfigurationError
from ospbridge.task.scenario import ArenaTable, GymTable, RobotTable
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from ospbridge.interface import InterfaceValue
    from ospbridge.osp.profile import Profile
    from ospbridge.osp.world import World, WorldAgent
    from ospbridge.task.scenario import Scenario

__all__ = ["MOST_VALUES", "check_world", "world_of"]

MOST_VALUES: Final = 16_370
"""Of 4 bytes each, behind 21 bytes of header, in the 65,507 bytes of the largest UDP datagram."""
LARGEST: Final = float(np.finfo(np.float32).max)
"""What a float of 4 bytes holds."""


def world_of(scenario: Scenario) -> World:
    """The world of the ``[world]`` table. Raises ConfigurationError where there is none, or it is not installed."""
    table = scenario.world
    if table is None:
        raise ConfigurationError(
            f"{scenario.origin or scenario.name} names no world to host",
            hint="add a [world] table, or host one with --env, --arena or --synthetic",
        )
    if isinstance(table, GymTable):
        from ospbridge.simulator.gym_world import GymWorld

        return GymWorld([table.env] * table.copies, time_step=table.time_step)
    if isinstance(table, ArenaTable):
        from ospbridge.simulator.arena import ArenaWorld

        return ArenaWorld(table.robots, obstacles=table.obstacles, time_step=table.time_step)
    if isinstance(table, RobotTable):
        from ospbridge.simulator.robots import robot_world

        return robot_world(table.robot)
    from ospbridge.simulator.synthetic import SyntheticWorld

    return SyntheticWorld(
        table.inputs, table.outputs, table.infos, names=table.agents, time_step=table.time_step
    )


def check_world(world: World, profile: Profile) -> None:
    """Raises ConfigurationError for the first thing that cannot be told, and for a step that takes no time."""
    if not _is_number(world.time_step) or not 0 < world.time_step < math.inf:
        raise ConfigurationError(
            f"the world's time_step must be a positive number of seconds, got {world.time_step!r}",
            hint="it says how much time one step simulates, for instance 0.01",
        )
    if isinstance(world.events, str):
        raise ConfigurationError(
            f"the world's events must be a list or tuple of names, got the text {world.events!r}",
            hint=f"a tuple of one name has a comma: ({world.events!r},)",
        )
    named = [("an event", event) for event in world.events]
    named += [("a variable", variable.name) for variable in world.variables]
    for agent in world.agents:
        named.append(("an agent", agent.name))
        face = agent.interface
        for kind, values in (("input", face.inputs), ("output", face.outputs), ("info", face.infos)):
            for value in values:
                named.append((f"an {kind} of agent {agent.name!r}", value.name))
                _check_range(f"{kind} {value.name!r} of agent {agent.name!r}", value)
        _check_sizes(agent, profile)
    for whose, name in named:
        _check_name(whose, name, profile)


def _check_name(whose: str, name: object, profile: Profile) -> None:
    if not isinstance(name, str) or "\0" in name:
        raise ConfigurationError(
            f"the name of {whose} must be a text without NUL, got {name!r}",
            hint="name it, for instance '/Motor/0'",
        )
    if profile.ascii_only and not name.isascii():
        raise ConfigurationError(
            f"the name of {whose} is {name!r}: a server of profile {profile.name!r} sends zeros for all but ASCII",
            hint="name it in ASCII, or host it with the profile 'document'",
        )


def _check_range(which: str, value: InterfaceValue) -> None:
    low, high = value.min, value.max
    if not (_is_number(low) and _is_number(high) and low <= high and low < math.inf and high > -math.inf):
        raise ConfigurationError(
            f"{which} has the range from {low!r} to {high!r}",
            hint="the smaller number comes first, as in InterfaceValue('/Joint/Angle', -1.0, 1.0); -math.inf and "
            "math.inf where it has no limit",
        )
    if any(LARGEST < abs(limit) < math.inf for limit in (low, high)):
        raise ConfigurationError(
            f"{which} has the range from {low!r} to {high!r}, beyond the floats of 4 bytes that OSP sends",
            hint="-math.inf and math.inf where it has no limit",
        )


def _is_number(given: Any) -> bool:
    return isinstance(given, int | float | np.number)


def _check_sizes(agent: WorldAgent, profile: Profile) -> None:
    """Refuse agents whose step does not fit into datagrams, unless this kind of server cuts them anyway."""
    inputs, told = len(agent.inputs), len(agent.outputs) + len(agent.infos)
    if inputs > MOST_VALUES or (told > MOST_VALUES and profile.datagram_limit is None):
        raise ConfigurationError(
            f"agent {agent.name} has {pluralize(inputs, 'input')} and {told} outputs and infos: "
            f"a UDP datagram holds at most {MOST_VALUES} of them",
            hint="host a smaller environment, or shrink its observation with a wrapper",
        )
