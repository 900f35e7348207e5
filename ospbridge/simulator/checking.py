"""Whether a world can be hosted: what no datagram could say is told when a server is made, not to its first client."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.errors import ConfigurationError
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from ospbridge.interface import InterfaceValue
    from ospbridge.osp.profile import Profile
    from ospbridge.osp.world import World, WorldAgent

__all__ = ["LARGEST", "MOST_VALUES", "check_world"]

MOST_VALUES: Final = 16_370
"""Of 4 bytes each, behind 21 bytes of header, in the 65,507 bytes of the largest UDP datagram."""
LARGEST: Final = float(np.finfo(np.float32).max)
"""What a float of 4 bytes holds."""


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
    for event in world.events:
        _check_name("an event", event, profile)
    for variable in world.variables:
        _check_name("a variable", variable.name, profile)
    for agent in world.agents:
        _check_name("an agent", agent.name, profile)
        for kind, values in (
            ("input", agent.interface.inputs),
            ("output", agent.interface.outputs),
            ("info", agent.interface.infos),
        ):
            for value in values:
                _check_name(f"an {kind} of agent {agent.name!r}", value.name, profile)
                _check_range(f"{kind} {value.name!r} of agent {agent.name!r}", value)
        _check_sizes(agent, profile)


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
    possible = _is_number(low) and _is_number(high) and low <= high and low < math.inf and high > -math.inf
    if possible and any(LARGEST < abs(limit) < math.inf for limit in (low, high)):
        raise ConfigurationError(
            f"{which} has the range from {low!r} to {high!r}, beyond the floats of 4 bytes that OSP sends",
            hint="-math.inf and math.inf where it has no limit",
        )
    if not possible:
        raise ConfigurationError(
            f"{which} has the range from {low!r} to {high!r}",
            hint="the smaller number comes first, as in InterfaceValue('/Joint/Angle', -1.0, 1.0); -math.inf and "
            "math.inf where it has no limit",
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
