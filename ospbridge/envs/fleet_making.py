"""Finding the agents of an environment of several: on simulators joined directly, or on daemons' hubs."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from ospbridge.envs.fleet import DirectFleet, HubFleet
from ospbridge.envs.group import DirectGroup
from ospbridge.envs.hub_group import HubGroup
from ospbridge.envs.sharing import Terms, acquire_all
from ospbridge.envs.tls_options import files_for
from ospbridge.errors import UsageError
from ospbridge.interface import BoxSpace
from ospbridge.osp.profile import profile_named
from ospbridge.transport.addresses import parse_endpoint, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ospbridge.envs.fleet import Fleet
    from ospbridge.envs.group import Group
    from ospbridge.interface import Match, Space
    from ospbridge.osp.timing import Limits
    from ospbridge.task.base import Task
    from ospbridge.transport.tls import TlsFiles

__all__ = ["attached_group", "direct_group", "fleet_of", "several"]


def fleet_of(
    simulators: Sequence[str] | None,
    bridges: Sequence[str] | None,
    patterns: Sequence[str],
    *,
    num_envs: int,
    profile: str,
    limits: Limits,
    wait: float,
    spin: bool,
    trace: str | None,
    make_task: Callable[..., Task],
    meant: Sequence[Match] = (),
    tls: TlsFiles | None = None,
    annotates: bool = False,
) -> Fleet:
    """A fleet of exactly ``num_envs`` agents with equal spaces. Raises UsageError where that is not what there is.

    ``meant``: where several agents fit, only these. ``tls`` is for the bridges on other hosts, ``annotates`` for all
    bridges.
    """
    if simulators is not None and bridges is not None:
        raise UsageError(
            "both simulator and bridge were given",
            hint="simulator joins directly, bridge goes through a daemon",
        )
    if simulators == () or bridges == ():
        raise UsageError("an empty list of addresses was given", hint="name at least one")
    with ExitStack() as undo:
        fleet: Fleet
        if simulators is not None:
            profile_named(profile)
            direct: list[DirectGroup] = []
            for at, simulator in enumerate(simulators):
                _, server = resolve(parse_endpoint(simulator))
                terms = Terms(server, profile, limits, spin, wait)
                direct.append(
                    direct_group(
                        terms, patterns, _trace_file(trace, at, len(simulators)), make_task, meant=meant
                    )
                )
                undo.callback(direct[-1].close)
            _check(direct, simulators, num_envs)
            fleet = DirectFleet(direct, spin=spin)
        else:
            attached: list[HubGroup] = []
            for bridge in bridges or (None,):
                files = files_for(bridge, bridges or (), tls)
                attached.append(
                    attached_group(
                        bridge,
                        patterns,
                        limits.connect,
                        meant=meant,
                        wait=wait,
                        spin=spin,
                        tls=files,
                        annotates=annotates,
                    )
                )
                undo.callback(attached[-1].close)
            _check(attached, bridges or ("the default hub",), num_envs)
            fleet = HubFleet(attached)
        undo.pop_all()
        return fleet


def _trace_file(trace: str | None, at: int, count: int) -> Path | None:
    """The datagrams of each simulator go to a file of their own: behind the first, NAME.1.SUFFIX and so on."""
    if trace is None:
        return None
    file = Path(trace)
    return file if not at or count == 1 else file.with_name(f"{file.stem}.{at}{file.suffix}")


def direct_group(
    terms: Terms,
    patterns: Sequence[str],
    trace: Path | None,
    make_task: Callable[..., Task],
    *,
    meant: Sequence[Match] = (),
) -> DirectGroup:
    """All free agents of a simulator that fit, taken. Raises what connecting raises, and AgentNotFound."""
    shared = acquire_all(terms, patterns, trace, meant=meant)
    try:
        return DirectGroup(shared, make_task)
    except BaseException:
        shared.release()
        raise


def attached_group(
    bridge: str | None,
    patterns: Sequence[str],
    connect_timeout: float,
    *,
    meant: Sequence[Match] = (),
    wait: float,
    spin: bool,
    tls: TlsFiles | None,
    annotates: bool = False,
) -> HubGroup:
    """All agents of a daemon that fit, taken. Raises what attaching raises."""
    from ospbridge.session.hub_client import HubClient

    client = HubClient.connect(bridge, timeout=connect_timeout, wait=wait, spin=spin, tls=tls)
    # None named would mean the only free one.
    attached = client.attach_all(patterns or ("*",), annotates=annotates, meant=meant)
    return HubGroup(client, attached, annotates=annotates)


def _check(groups: Sequence[Group], addresses: Sequence[str], num_envs: int) -> None:
    """Raises UsageError where the number of agents is another one, or their spaces differ."""
    found = [
        (address, name) for address, group in zip(addresses, groups, strict=True) for name in group.interfaces
    ]
    if len(found) != num_envs:
        each = "; ".join(
            f"{address} has {', '.join(group.interfaces)}"
            for address, group in zip(addresses, groups, strict=True)
        )
        raise UsageError(
            f"num_envs is {num_envs}, but {len(found)} agents were found: {each}",
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


def several(given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """A setting that may be one or several."""
    if given is None:
        return None
    return (given,) if isinstance(given, str) else tuple(given)
