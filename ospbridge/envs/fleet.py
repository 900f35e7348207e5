"""The backends of a vector environment, driven side by side from one thread: sessions of this process, or hubs.

A group is the agents of one simulator that one backend drives. Groups know nothing of each other; a turn gives some of
them a step and others a reset, all requests are out before any answer is read, and what ends one group's episode ends
no other's.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from gymnasium.utils.seeding import np_random
from gymnasium.vector import AutoresetMode

from ospbridge.envs.backend import ActionRows
from ospbridge.envs.conventions import drawn_seed, osp_seed
from ospbridge.envs.sharing import TRUNCATING
from ospbridge.errors import LocalProtocolError, UsageError
from ospbridge.session.fleet import SessionFleet, cores_wanted
from ospbridge.session.rebuild import Attempts
from ospbridge.text import listed, pluralize

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ospbridge.envs.backend import Found
    from ospbridge.envs.connect import Connector
    from ospbridge.envs.direct import DirectBackend
    from ospbridge.envs.hub import HubBackend
    from ospbridge.osp.client import Exchange
    from ospbridge.session.blocking import BlockingSession

__all__ = ["Fleet", "Group", "Turn", "fleet_of"]

B_co = TypeVar("B_co", bound="DirectBackend | HubBackend", covariant=True)
NO_ACTIONS: Final[Mapping[str, Any]] = MappingProxyType({})
HURRY: Final = 0.5
"""Seconds after which daemons that are still to be told goodbye are not waited for."""


class Group(Generic[B_co]):
    """A backend's environments: which they are, how their world is seeded, whether their episode is over."""

    def __init__(self, backend: B_co, first: int) -> None:
        self.backend = backend
        self.names = list(backend.agents)
        self.first = first
        self.slice = slice(first, first + len(self.names))
        self.ended = False
        self.next_seed = 0
        """For the next reset; 0: to be drawn."""
        self.random, _ = np_random()

    @property
    def numbers(self) -> range:
        """Which environments they are."""
        return range(self.first, self.first + len(self.names))

    def seed(self, seed: int) -> None:
        """Gymnasium's seed for the next reset, and of those that will be drawn."""
        self.random, _ = np_random(seed)
        self.next_seed = osp_seed(seed)

    def draw(self) -> int:
        """The simulator's seed for the reset to come: what a single environment would give it."""
        seed, self.next_seed = self.next_seed, 0
        return seed or drawn_seed(self.random)

    def not_playing(self, mode: AutoresetMode) -> LocalProtocolError:
        """The error for a step without an episode."""
        which = ", ".join(map(str, self.numbers))
        hint = "call reset first"
        if mode is AutoresetMode.DISABLED:
            hint += ', with options={"reset_mask": terminations | truncations} for those that ended'
        return LocalProtocolError(
            f"the episodes of environments {which} are over, or none was begun", hint=hint
        )

    def end_together(self, found: Found) -> None:
        """The end of one episode is the end of all of the group (reset policy any)."""
        first = next(
            (name for name, feedback in found.items() if feedback.terminated or feedback.truncated), None
        )
        if first is None:
            return
        self.ended = True
        for feedback in found.values():
            if not feedback.over:
                feedback.truncate(
                    f"the episode of agent {first!r} ended, and all agents of a simulator reset together"
                )


def _numbered(backends: Sequence[B_co]) -> list[Group[B_co]]:
    """The groups of a vector environment, whose agents are numbered through."""
    groups: list[Group[B_co]] = []
    first = 0
    for backend in backends:
        groups.append(Group(backend, first))
        first += len(backend.agents)
    return groups


class Turn(NamedTuple):
    """What one group is to do: a reset where ``seed`` is not 0, else a step."""

    group: Group[Any]
    seed: int = 0
    actions: Mapping[str, Any] = NO_ACTIONS


class Fleet(Protocol):
    """Groups whose backends are of one kind."""

    @property
    def groups(self) -> Sequence[Group[DirectBackend | HubBackend]]:
        """In the order of the environments."""
        ...

    def actions(self, names: Sequence[str], rows: Any) -> Mapping[str, Any]:
        """One action of each of a group's agents, as its turn takes them."""
        ...

    def send(self, turns: Sequence[Turn]) -> None:
        """All requests of these turns. Raises LocalProtocolError for an action that cannot be sent: nothing was.

        So it is where a reset cannot even be asked for: its error is raised, and no group has taken a step.
        """
        ...

    def recv(self) -> list[Found | Exception]:
        """What the turns brought, in their order; an error that is no end of an episode stands in its turn's place."""
        ...

    def close(self) -> None:
        """Give all agents back, within 2 s. Safe to call again, and between ``send`` and ``recv``."""
        ...


class DirectFleet:
    """Groups of which each has a session of this process."""

    def __init__(self, backends: Sequence[DirectBackend], *, spin: bool) -> None:
        self.groups = _numbered(backends)
        hosts = [backend.shared.options.simulator.host for backend in backends]
        self._link = SessionFleet(spin=spin, cores=cores_wanted(hosts))
        self._turns: tuple[Turn, ...] = ()
        self._plain: list[bool] = []
        """Of each turn, whether it is a step of the session itself."""
        self._closed = False

    def actions(self, names: Sequence[str], rows: Any) -> Mapping[str, Any]:
        return dict(zip(names, rows, strict=True))

    def send(self, turns: Sequence[Turn]) -> None:
        # An action that cannot be sent is told before anything has happened; then what may take its time.
        work: dict[int, Exchange[Found] | None] = {
            at: turn.group.backend.stepping(turn.actions) for at, turn in enumerate(turns) if not turn.seed
        }
        for at, turn in enumerate(turns):
            if turn.seed:
                work[at] = turn.group.backend.resetting(turn.seed)
        self._link.begin([(turn.group.backend.shared.session, work[at]) for at, turn in enumerate(turns)])
        self._turns = tuple(turns)
        self._plain = [work[at] is None for at in range(len(turns))]

    def recv(self) -> list[Found | Exception]:
        results = self._link.finish()
        self._conclude(results)
        self._try_again(results)
        return [
            _taken(turn.group.backend.begun if turn.seed else turn.group.backend.stepped, result)
            for turn, result in zip(self._turns, results, strict=True)
        ]

    def _conclude(self, results: list[Any]) -> None:
        """Evaluate steps of sessions themselves. Those that end an episode ask more, side by side."""
        asked: list[int] = []
        work: list[tuple[BlockingSession, Exchange[Found]]] = []
        for at, result in enumerate(results):
            if not self._plain[at] or isinstance(result, Exception):
                continue
            backend = self._turns[at].group.backend
            results[at] = found = backend.evaluate(result)
            if isinstance(found, Generator):
                asked.append(at)
                work.append((backend.shared.session, found))
        if work:
            for at, result in zip(asked, self._link.run(work), strict=True):
                results[at] = result

    def _try_again(self, results: list[Any]) -> None:
        """Resets that found the session lost rebuild it and try again, all at once."""
        resets = [(at, turn, Attempts()) for at, turn in enumerate(self._turns) if turn.seed]
        failed = bool(resets)
        while failed:
            failed = False
            work = []
            for at, turn, attempts in resets:
                result = results[at]
                if not isinstance(result, TRUNCATING):
                    continue
                shared = turn.group.backend.shared
                shared.give_up(result)
                if not attempts.again(free=shared.free):
                    continue
                failed = True
                try:
                    work.append((at, shared, turn.group.backend.resetting(turn.seed)))
                except Exception as error:  # noqa: BLE001  # this group's result, raised in its turn
                    results[at] = error
            again = self._link.run([(shared.session, exchange) for _, shared, exchange in work])
            for (at, _, _), result in zip(work, again, strict=True):
                results[at] = result

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        backends = [group.backend for group in self.groups]
        self._link.close([backend.shared.session for backend in backends if backend.shared.mine])
        for backend in backends:
            backend.close()


class HubFleet:
    """Groups of which each has a connection to a hub: one message a turn for all agents of a group."""

    def __init__(self, backends: Sequence[HubBackend]) -> None:
        self.groups = _numbered(backends)
        self._sent: list[tuple[Turn, Exception | None]] = []

    def actions(self, names: Sequence[str], rows: Any) -> Mapping[str, Any]:
        return ActionRows(names, rows)

    def send(self, turns: Sequence[Turn]) -> None:
        self._give_up()
        for turn in turns:
            if not turn.seed:
                turn.group.backend.prepare_step(turn.actions)
        resets = [turn for turn in turns if turn.seed]
        mixed = 0 < len(resets) < len(turns)
        for turn in resets:
            failed = self._ask(turn)
            if failed is not None and mixed:
                # No step is under way yet; what it brought would be thrown away.
                self._give_up()
                raise failed
        for turn in turns:
            if not turn.seed:
                self._ask(turn)
        if mixed:
            self._sent.sort(key=lambda sent: sent[0].group.first)

    def _ask(self, turn: Turn) -> Exception | None:
        backend = turn.group.backend
        # Before it is asked, so that Ctrl-C just behind that leaves no answer that nobody expects.
        self._sent.append((turn, None))
        try:
            if turn.seed:
                backend.ask_reset(turn.seed)
            else:
                backend.ask_step()
        except Exception as error:  # noqa: BLE001  # raised by ``recv``, behind the others' answers
            self._sent[-1] = turn, error
            return error
        return None

    def recv(self) -> list[Found | Exception]:
        found: list[Found | Exception] = []
        try:
            for turn, failed in self._sent:
                backend = turn.group.backend
                found.append(failed or _taken(backend.begun if turn.seed else backend.stepped))
        except BaseException:
            self._give_up()
            raise
        self._sent = []
        return found

    def _give_up(self) -> None:
        """Answers may be on their way that nobody will read, and have no numbers: hang up on who was to give them."""
        sent, self._sent = self._sent, []
        for turn, failed in sent:
            if failed is None:
                turn.group.backend.hang_up()

    def close(self) -> None:
        hurry_at = monotonic() + HURRY
        for group in self.groups:
            group.backend.close(None if monotonic() < hurry_at else 0.0)


def _taken(take: Callable[..., Found], *result: Any) -> Found | Exception:
    """Every group takes its answer before the error of one of them is raised."""
    try:
        return take(*result)
    except Exception as error:  # noqa: BLE001  # raised by the caller
        return error


def fleet_of(connector: Connector, agents: str | Sequence[str], num_envs: int, *, in_rows: bool) -> Fleet:
    """A fleet of exactly as many agents, with equal spaces. ``in_rows``: nobody looks at the agents one by one.

    Raises UsageError where ``num_envs`` or equal spaces are not what there is, and what connecting raises.
    """
    fleet: DirectFleet | HubFleet
    if connector.direct:
        backends = connector.direct_backends(agents, num_envs)
        if in_rows:
            for backend in backends:
                backend.tell_rows()
        fleet = DirectFleet(backends, spin=connector.spin)
    else:
        fleet = HubFleet(connector.hub_backends(agents))
    try:
        _check(fleet.groups, connector.addresses, num_envs)
    except BaseException:
        fleet.close()
        raise
    return fleet


def _check(
    groups: Sequence[Group[DirectBackend | HubBackend]], addresses: Sequence[str], num_envs: int
) -> None:
    """Raises UsageError where the number of agents is another one, or their spaces differ."""
    found = [
        (address, agent)
        for address, group in zip(addresses, groups, strict=True)
        for agent in group.backend.agents.values()
    ]
    if len(found) != num_envs:
        each = "; ".join(
            f"{address} has {listed(group.names)}" for address, group in zip(addresses, groups, strict=True)
        )
        raise UsageError(
            f"num_envs is {num_envs!r}, but {pluralize(len(found), 'agent')} "
            f"{'was' if len(found) == 1 else 'were'} found: {each}",
            hint=f"num_envs={len(found)}, or choose other agents with agents=GLOB",
        )
    at, first = found[0]
    for address, agent in found:
        if (agent.observation_space, agent.action_space) != (first.observation_space, first.action_space):
            raise UsageError(
                f"agent {agent.interface.name!r} of {address} has other spaces than agent "
                f"{first.interface.name!r} of {at}",
                hint="a vector environment needs equal ones; choose the agents with agents=GLOB",
            )
