"""The fleet of a vector environment, of exactly as many agents as it was told, and with equal spaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ospbridge.envs.groups.fleet import DirectFleet, HubFleet
from ospbridge.errors import UsageError
from ospbridge.interface import BoxSpace
from ospbridge.text import listed, pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.envs.groups.fleet import Fleet
    from ospbridge.envs.groups.group import Group
    from ospbridge.envs.joining import Joining
    from ospbridge.interface import Space

__all__ = ["fleet_of"]


def fleet_of(joining: Joining, agents: str | Sequence[str], num_envs: int, *, in_rows: bool) -> Fleet:
    """``in_rows``: nobody looks at the agents one by one.

    Raises UsageError where ``num_envs`` or equal spaces are not what there is, and what joining raises.
    """
    fleet: Fleet
    if joining.direct:
        groups = joining.direct_groups(agents, num_envs)
        if in_rows:
            for group in groups:
                group.tell_rows()
        fleet = DirectFleet(groups, spin=joining.spin)
    else:
        fleet = HubFleet(joining.hub_groups(agents))
    try:
        _check(fleet.groups, joining.addresses, num_envs)
    except BaseException:
        fleet.close()
        raise
    return fleet


def _check(groups: Sequence[Group], addresses: Sequence[str], num_envs: int) -> None:
    """Raises UsageError where the number of agents is another one, or their spaces differ."""
    found = [
        (address, name) for address, group in zip(addresses, groups, strict=True) for name in group.interfaces
    ]
    if len(found) != num_envs:
        each = "; ".join(
            f"{address} has {listed(group.interfaces)}"
            for address, group in zip(addresses, groups, strict=True)
        )
        raise UsageError(
            f"num_envs is {num_envs!r}, but {pluralize(len(found), 'agent')} "
            f"{'was' if len(found) == 1 else 'were'} found: {each}",
            hint=f"num_envs={len(found)}, or choose other agents with agents=GLOB",
        )
    spaces = [
        (group.observation_spaces[name], group.action_spaces[name])
        for group in groups
        for name in group.interfaces
    ]
    for (address, name), (observation, action) in zip(found, spaces, strict=True):
        if not (_equal(observation, spaces[0][0]) and _equal(action, spaces[0][1])):
            raise UsageError(
                f"agent {name!r} of {address} has other spaces than agent {found[0][1]!r} of {found[0][0]}",
                hint="a vector environment needs equal ones; choose the agents with agents=GLOB",
            )


def _equal(one: Space, other: Space) -> bool:
    if isinstance(one, BoxSpace) and isinstance(other, BoxSpace):
        pairs = ((one.low, other.low), (one.high, other.high))
        return all(a.shape == b.shape and bool((a == b).all()) for a, b in pairs)
    return one == other
