"""Several lock-step groups driven side by side from one thread: sessions of this process, or connections to hubs.

A group is the agents of one simulator that one session, or one hub connection, controls. Groups know nothing of each
other; a turn gives some of them a step and others a reset, all requests are out before any answer is read, and what
ends one group's episode ends no other's.
"""

from __future__ import annotations

from collections.abc import Generator
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ospbridge.envs.groups.rows import ActionRows
from ospbridge.envs.sharing import LOSSES
from ospbridge.session.fleet import SessionFleet, cores_wanted
from ospbridge.session.rebuild import Attempts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ospbridge.envs.groups.group import DirectGroup, Found, NamedGroup
    from ospbridge.envs.groups.hub_group import HubGroup
    from ospbridge.osp.client import Exchange
    from ospbridge.session.blocking import BlockingSession

__all__ = ["DirectFleet", "Fleet", "HubFleet", "Turn"]

NO_ACTIONS: Final[Mapping[str, Any]] = MappingProxyType({})
HURRY: Final = 0.5
"""Seconds after which daemons that are still to be told goodbye are not waited for."""


class Turn(NamedTuple):
    """What one group is to do: a reset where ``seed`` is not 0, else a step."""

    group: int
    seed: int = 0
    actions: Mapping[str, Any] = NO_ACTIONS


class Fleet(Protocol):
    """Groups of one kind."""

    @property
    def groups(self) -> Sequence[NamedGroup]:
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

    def cancel_step(self, turns: Sequence[Turn]) -> None:
        """Nobody is told what the steps among these brought, as after Ctrl-C: the next ones truncate the episodes."""
        ...

    def close(self) -> None:
        """Give all agents back, within 2 s. Safe to call again, and between ``send`` and ``recv``."""
        ...


class DirectFleet:
    """Groups of which each has a session of this process."""

    def __init__(self, groups: Sequence[DirectGroup], *, spin: bool) -> None:
        self.groups = groups
        hosts = [group.shared.terms.simulator.host for group in groups]
        self._link = SessionFleet(spin=spin, cores=cores_wanted(hosts))
        self._turns: tuple[Turn, ...] = ()
        self._plain: list[bool] = []
        """Of each turn, whether it is a step of the session itself."""
        self._closed = False

    def actions(self, names: Sequence[str], rows: Any) -> Mapping[str, Any]:
        return dict(zip(names, rows, strict=True))

    def send(self, turns: Sequence[Turn]) -> None:
        groups = self.groups
        # An action that cannot be sent is told before anything has happened; then what may take its time.
        work: dict[int, Exchange[Found] | None] = {
            turn.group: groups[turn.group].stepping(turn.actions) for turn in turns if not turn.seed
        }
        for turn in turns:
            if turn.seed:
                work[turn.group] = groups[turn.group].resetting(turn.seed)
        self._link.begin([(groups[turn.group].shared.session, work[turn.group]) for turn in turns])
        self._turns = tuple(turns)
        self._plain = [work[turn.group] is None for turn in turns]

    def recv(self) -> list[Found | Exception]:
        results = self._link.finish()
        self._conclude(results)
        self._try_again(results)
        return [
            _taken(group.begun if turn.seed else group.stepped, result)
            for turn, result in zip(self._turns, results, strict=True)
            for group in (self.groups[turn.group],)
        ]

    def _conclude(self, results: list[Any]) -> None:
        """Evaluate steps of sessions themselves. Those that end an episode ask more, side by side."""
        asked: list[int] = []
        work: list[tuple[BlockingSession, Exchange[Found]]] = []
        for at, result in enumerate(results):
            if not self._plain[at] or isinstance(result, Exception):
                continue
            group = self.groups[self._turns[at].group]
            results[at] = found = group.evaluate(result)
            if isinstance(found, Generator):
                asked.append(at)
                work.append((group.shared.session, found))
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
                if not isinstance(result, LOSSES):
                    continue
                group = self.groups[turn.group]
                group.shared.give_up(result)
                if not attempts.again(free=group.shared.free):
                    continue
                failed = True
                try:
                    work.append((at, group.shared, group.resetting(turn.seed)))
                except Exception as error:  # noqa: BLE001  # this group's result, raised in its turn
                    results[at] = error
            again = self._link.run([(shared.session, exchange) for _, shared, exchange in work])
            for (at, _, _), result in zip(work, again, strict=True):
                results[at] = result

    def cancel_step(self, turns: Sequence[Turn]) -> None:
        for turn in turns:
            if not turn.seed:
                self.groups[turn.group].cancel_step()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._link.close([group.shared.session for group in self.groups if group.shared.mine])
        for group in self.groups:
            group.close()


class HubFleet:
    """Groups of which each has a connection to a hub: one message a turn for all agents of a group."""

    def __init__(self, groups: Sequence[HubGroup]) -> None:
        self.groups = groups
        self._sent: list[tuple[Turn, Exception | None]] = []

    def actions(self, names: Sequence[str], rows: Any) -> Mapping[str, Any]:
        return ActionRows(names, rows)

    def send(self, turns: Sequence[Turn]) -> None:
        groups = self.groups
        self._give_up()
        for turn in turns:
            if not turn.seed:
                groups[turn.group].prepare_step(turn.actions)
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
            place = {turn.group: at for at, turn in enumerate(turns)}
            self._sent.sort(key=lambda sent: place[sent[0].group])

    def _ask(self, turn: Turn) -> Exception | None:
        group = self.groups[turn.group]
        # Before it is asked, so that Ctrl-C just behind that leaves no answer that nobody expects.
        self._sent.append((turn, None))
        try:
            if turn.seed:
                group.ask_reset(turn.seed)
            else:
                group.ask_step()
        except Exception as error:  # noqa: BLE001  # raised by ``recv``, behind the others' answers
            self._sent[-1] = turn, error
            return error
        return None

    def recv(self) -> list[Found | Exception]:
        found: list[Found | Exception] = []
        try:
            for turn, failed in self._sent:
                group = self.groups[turn.group]
                found.append(failed or _taken(group.begun if turn.seed else group.stepped))
        except BaseException:
            self._give_up()
            raise
        self._sent = []
        return found

    def cancel_step(self, turns: Sequence[Turn]) -> None:
        for turn in turns:
            if not turn.seed:
                self.groups[turn.group].cancel_step()

    def _give_up(self) -> None:
        """Answers may be on their way that nobody will read, and have no numbers: hang up on who was to give them."""
        sent, self._sent = self._sent, []
        for turn, failed in sent:
            if failed is None:
                self.groups[turn.group].hang_up()

    def close(self) -> None:
        hurry_at = monotonic() + HURRY
        for group in self.groups:
            group.close(None if monotonic() < hurry_at else 0.0)


def _taken(take: Callable[..., Found], *result: Any) -> Found | Exception:
    """Every group takes its answer before the error of one of them is raised."""
    try:
        return take(*result)
    except Exception as error:  # noqa: BLE001  # raised by the caller
        return error
