"""Observing: what attached environments live through goes upstream, as it ends, whole and in order.

An episode is checked, then put into a spool on disk, and sent from there in batches; nothing that an environment or a
conductor waits for is done here. What is sent is what the environment saw and gave, also where the bridge ended its
episode. Only the PONG to a PING behind them proves that episodes have arrived; what was not proven is sent again, under
the same ids, and to RLlib under others. Observed on Ray 2.60.0: a replay buffer takes an id that comes twice for an
episode that goes on behind its end, which ends the training of DQN and SAC.

A delivery that fails may be the upstream's trouble or that of what was sent. What fails again and again is sent one by
one; and an entry that fails alone again and again is to blame when what is behind it gets through, twice: an upstream
that lets nothing through, or comes to its senses in between, loses nothing.
"""

from __future__ import annotations

import re
import uuid
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from functools import lru_cache, partial
from time import monotonic
from typing import TYPE_CHECKING, Final

import numpy as np
import trio

from ospbridge.daemon.relay.compatibility import Fitting, Kind, why_improbable
from ospbridge.errors import ConfigurationError, LocalProtocolError, OspBridgeError, UsageError
from ospbridge.hub.status import SpoolStatus
from ospbridge.interface import DiscreteSpace, chosen
from ospbridge.observe import logs
from ospbridge.observe.runtime import state_directory
from ospbridge.observe.sparing import Sparing, SparingMore
from ospbridge.record.spool import CLOSE_WITHIN, Made, Spool, SpoolFigures
from ospbridge.rllink.batches import check_fragment, cut, split
from ospbridge.rllink.dialects import MSGPACK, packed_up, unpacked
from ospbridge.rllink.exchanges import deliver
from ospbridge.rllink.messages import EpisodeFragment, sendable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Never, Self

    from ospbridge.daemon.attachment import Attachment
    from ospbridge.daemon.conductor import Conductor
    from ospbridge.daemon.relay.link import Connection, Link, Upstream
    from ospbridge.record.collecting import Collected, Recorded
    from ospbridge.record.episode import RecordedEpisode
    from ospbridge.record.spool import Entry
    from ospbridge.rllink.batches import Needs
    from ospbridge.transport.tls import StreamAddress

__all__ = [
    "TRIES",
    "Observing",
    "Suspicion",
    "Turn",
    "default_spool",
    "fragment_of",
    "pieces_of",
]

TRIES: Final = 3
"""Failures in a row until something else is tried."""
log = logs.get(__name__)
MOST_STEPS: Final = 10_000
"""Of a delivery, unless one episode alone has more."""
FEW_STEPS: Final = 1000
"""With fewer than that a delivery waits for more, for a while."""
LINGER: Final = 0.5
"""Seconds of that while."""
LARGEST_DELIVERY: Final = 2 * 2**20
"""Bytes of a delivery, unless one episode alone has more."""
MISFIT: Final = 30.0
"""Seconds until experience that does not fit the upstream is looked at again, unless another server comes sooner."""
UNREADABLE: Final = 10.0
"""Seconds until a spool that cannot be read is tried again."""
LONGEST: Final = 50_000
"""Steps of an episode that is sent in one piece."""
LARGEST: Final = 8 * 2**20
"""Bytes of an episode that is sent in one piece."""
DOUBT_EVERY: Final = 0.1
"""Seconds between episodes whose annotations are computed again: what is wrong with one is wrong with all."""
LOOK_AGAIN: Final = 5.0
"""Seconds between looks at how the spool stands."""


class Turn(Enum):
    """What a failure changes."""

    NONE = "none"
    ONE_BY_ONE = "one by one"
    LOOK_BEHIND = "look behind"
    """One entry is suspected: see whether what is behind it gets through."""
    ALL_FAILS = "all fails"
    """It does not: the suspicion is dropped."""


class Suspicion:
    """Entries are known by their numbers, which ascend."""

    def __init__(self) -> None:
        self._failures = 0
        self._one_by_one_until = 0
        self._suspect = 0
        self._accused = 0
        """The one that failed while what was behind it got through, once."""

    @property
    def after(self) -> int:
        """Behind which entry the next delivery begins; 0: with the first."""
        return self._suspect

    @property
    def alone(self) -> bool:
        """The next delivery is of one entry."""
        return bool(self._suspect or self._one_by_one_until)

    def one_by_one(self, last: int) -> None:
        """Send all up to ``last`` one by one."""
        self._one_by_one_until = last

    def failed(self, first: int, last: int) -> Turn:
        """A delivery of these did not arrive."""
        self._failures += 1
        if self._failures < TRIES:
            return Turn.NONE
        self._failures = 0
        if self._suspect:
            self._suspect = self._accused = 0
            self._one_by_one_until = 0
            return Turn.ALL_FAILS
        if first < last:
            self._one_by_one_until = last
            return Turn.ONE_BY_ONE
        self._suspect = first
        return Turn.LOOK_BEHIND

    def nothing_behind(self) -> None:
        """There is no other entry to compare the suspected one with: try that one again."""
        self._one_by_one_until = self._suspect
        self._suspect = 0
        self._failures = TRIES - 1

    def arrived(self, last: int) -> int:
        """A delivery that ended with ``last`` has arrived. The entry that is to blame for the failures before, or 0."""
        self._failures = 0
        guilty = 0
        if self._suspect and self._suspect == self._accused:
            guilty, self._accused = self._accused, 0
        elif self._suspect:
            self._accused = self._suspect
            self._one_by_one_until = max(self._one_by_one_until, self._suspect)
        else:
            if last == self._accused:
                self._accused = 0
            if last >= self._one_by_one_until:
                self._one_by_one_until = 0
        self._suspect = 0
        return guilty


class Shipping:
    """``run`` sends until cancelled. ``link.run`` must be running; ``news`` must be called when the spool has more.

    ``fitting`` None: the upstream takes experience of any shape.
    """

    def __init__(self, spool: Spool, link: Link, fitting: Fitting | None = None) -> None:
        self.delivered = 0
        """Steps that have arrived."""
        self.discarded = 0
        """Steps that were given up."""
        self.trouble = ""
        """Why nothing arrives although the upstream is there."""
        self._spool = spool
        self._link = link
        self._fitting = fitting
        self._suspicion = Suspicion()
        self._more = trio.Event()
        self._unreadable = Sparing()
        self._misfit = SparingMore()
        self._doubtful = spool.found
        """Entries up to this number may have been read, when they were sent before."""
        self._again = _suffix()
        """Tells their ids from those of the time before."""

    def news(self) -> None:
        """There is more in the spool."""
        self._more.set()

    async def run(self) -> Never:
        """Send what the spool holds, and what comes into it."""
        while True:
            connection = await self._link.connection()
            entries = await self._next()
            if self._link.connected is connection:
                await self._send(connection, entries)
            else:
                self._spool.hand_back()

    # --- what to send ------------------------------------------------------------------------------------------------

    async def _next(self) -> list[Entry]:
        """The entries of the next delivery; waits until there are some."""
        lingered = False
        while True:
            self._more = trio.Event()
            alone = self._suspicion.alone
            entries = await self._taken(
                self._suspicion.after, steps=1 if alone else MOST_STEPS, size=LARGEST_DELIVERY
            )
            if not entries and self._suspicion.after:
                self._suspicion.nothing_behind()
            elif not entries:
                await self._more.wait()
            elif alone or lingered or sum(entry.steps for entry in entries) >= FEW_STEPS:
                return entries
            else:
                lingered = True
                await trio.sleep(LINGER)

    async def _taken(self, after: int, *, steps: int, size: int) -> list[Entry]:
        """As ``Spool.take``; a spool that cannot be read is waited for."""
        while True:
            found = self._spool.take_at_once(after=after, steps=steps, size=size)
            if found is not None:
                return found
            take = partial(self._spool.take, after=after, steps=steps, size=size)
            try:
                # Who leaves does not wait for a disk that hangs; what is taken for nobody stays in the spool.
                return await trio.to_thread.run_sync(take, abandon_on_cancel=True)
            except ConfigurationError as error:
                unreadable = error
            self.trouble = unreadable.message
            if self._unreadable.due():
                log.error("nothing can be sent", reason=unreadable.message, hint=unreadable.hint)
            await trio.sleep(UNREADABLE)

    # --- sending -----------------------------------------------------------------------------------------------------

    async def _send(self, connection: Connection, entries: Sequence[Entry]) -> None:
        entries, fragments = await self._sound(entries)
        if not entries:
            return
        try:
            entries, fragments = await self._fitting_ones(connection, entries, fragments)
            if not entries:
                return
            fragments = self._told_apart(entries, fragments)
            messages = split(fragments, connection.dialect, await_weights=False)
            await connection.perform(lambda machine: deliver(machine, messages))
        except LocalProtocolError as error:
            # Nothing was sent: no message can carry one of them.
            if len(entries) > 1:
                self._suspicion.one_by_one(entries[-1].seq)
            else:
                self._give_up(entries, error.message)
        except OspBridgeError as error:
            self._link.drop(connection, error)
            self._spool.hand_back()
            self._doubtful = max(self._doubtful, entries[-1].seq)
            self._again = _suffix()
            self._failed(entries, error)
        else:
            await self._arrived(entries)

    async def _fitting_ones(
        self, connection: Connection, entries: Sequence[Entry], fragments: list[EpisodeFragment]
    ) -> tuple[Sequence[Entry], list[EpisodeFragment]]:
        """Those in front of the first that would end the upstream's training. Where that is the first, it is waited."""
        fitting = self._fitting
        if fitting is None:
            return entries, fragments
        try:
            await fitting.ask(connection)
        except OspBridgeError as error:
            # Nothing was sent, so that the entries are not to blame.
            self._link.drop(connection, error)
            self._spool.hand_back()
            return [], []
        at, why = next(
            ((at, why) for at, each in enumerate(fragments) if (why := fitting.misfit(each))), (None, "")
        )
        if at != 0:
            fitting.tell_risk(connection, fragments[:at])
            return entries[:at], fragments[:at]
        self._spool.hand_back()
        fitting.ask_again()
        agent = f" of agent {fragments[0].agent!r}" if fragments[0].agent else ""
        self.trouble = f"episode {fragments[0].id}{agent} does not fit the upstream: {why}"
        if self._misfit.due(why):
            log.error(
                "experience does not fit the upstream",
                upstream=str(self._link.address),
                reason=self.trouble,
                hint="nothing is lost as long as the spool has room: start the server with the spaces of this agent; "
                f"or, where it waits since another scenario or other options, stop the daemon and move "
                f"{self._spool.path} away",
            )
        with trio.move_on_after(MISFIT):
            await connection.gone.wait()
        return [], []

    def _told_apart(
        self, entries: Sequence[Entry], fragments: list[EpisodeFragment]
    ) -> list[EpisodeFragment]:
        """What RLlib may have read before has other ids: it may not survive one that comes twice."""
        if self._fitting is None or not self._fitting.is_rllib:
            return fragments
        return [
            replace(fragment, id=f"{fragment.id}-{self._again}") if entry.seq <= self._doubtful else fragment
            for entry, fragment in zip(entries, fragments, strict=True)
        ]

    async def _sound(self, entries: Sequence[Entry]) -> tuple[list[Entry], list[EpisodeFragment]]:
        """Those that can be read, and what they hold; the others are given up."""
        sound, fragments = [], []
        if all(isinstance(entry.content, EpisodeFragment) for entry in entries):
            opened = _opened(entries)
        else:
            opened = await trio.to_thread.run_sync(_opened, entries)
        for entry, found in opened:
            if isinstance(found, ConfigurationError):
                self._give_up([entry], found.message)
            else:
                sound.append(entry)
                fragments.append(found)
        return sound, fragments

    async def _arrived(self, entries: Sequence[Entry]) -> None:
        self.trouble = ""
        if self._fitting is not None:
            self._fitting.ask_again()
        self.delivered += sum(entry.steps for entry in entries)
        self._spool.forget(entries)
        log.debug(
            "delivered",
            upstream=str(self._link.address),
            entries=len(entries),
            steps=sum(entry.steps for entry in entries),
        )
        guilty = self._suspicion.arrived(entries[-1].seq)
        if guilty:
            found = [entry for entry in await self._taken(guilty - 1, steps=1, size=1) if entry.seq == guilty]
            self._give_up(found, "the upstream was lost each time it was sent, and took what was behind it")

    def _failed(self, entries: Sequence[Entry], error: OspBridgeError) -> None:
        turn = self._suspicion.failed(entries[0].seq, entries[-1].seq)
        if turn is Turn.NONE:
            return
        what = f"{len(entries)} episodes" if len(entries) > 1 else f"episode {entries[0].key}"
        self.trouble = f"it was lost again and again over {what}: {error.message}"
        log.error(
            "the upstream does not take what it is sent",
            upstream=str(self._link.address),
            reason=self.trouble,
            next=_NEXT[turn],
            hint="see the server's own log; nothing is lost as long as the spool has room",
        )

    def _give_up(self, entries: Sequence[Entry], why: str) -> None:
        """They will never arrive."""
        for entry in entries:
            log.error(
                "an episode is given up",
                upstream=str(self._link.address),
                episode=entry.key,
                steps=entry.steps,
                reason=why,
            )
        self.discarded += sum(entry.steps for entry in entries)
        self._spool.forget(entries)


_NEXT: Final = {
    Turn.ONE_BY_ONE: "they are sent one by one",
    Turn.LOOK_BEHIND: "what is behind it is tried",
    Turn.ALL_FAILS: "all of it is sent again",
}


def _suffix() -> str:
    return uuid.uuid4().hex[:8]


def _opened(entries: Sequence[Entry]) -> list[tuple[Entry, EpisodeFragment | ConfigurationError]]:
    found: list[tuple[Entry, EpisodeFragment | ConfigurationError]] = []
    for entry in entries:
        try:
            found.append((entry, _content(entry)))
        except ConfigurationError as error:
            found.append((entry, error))
    return found


def _content(entry: Entry) -> EpisodeFragment:
    if entry.damage:
        raise ConfigurationError(entry.damage, hint="see whether the disk fails")
    return entry.content if isinstance(entry.content, EpisodeFragment) else unpacked(entry.body)


class Observing:
    """``run`` sends until cancelled, within its context. ``link.run`` must be running.

    Opening the context raises ConfigurationError where the spool cannot be used.
    """

    def __init__(self, upstream: Upstream, conductors: Sequence[Conductor], link: Link) -> None:
        self.unfit = 0
        """Steps of episodes that could not be sent, because something of them is no number."""
        self.largest = LARGEST
        """Bytes of an episode that goes on, of which a chronicle makes a part: it is cut there anyway."""
        self._upstream = upstream
        self._conductors = conductors
        self._link = link
        self._path = upstream.spool or default_spool(upstream.address)
        self._spool: Spool | None = None
        self._shipping: Shipping | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._complaint = Sparing()
        self._doubt = Sparing()
        self._doubted_at = 0.0
        self.drain = CLOSE_WITHIN
        """Seconds for what is not on disk yet, in the end."""
        self._seen = SpoolFigures(0, 0, 0, 0, 0, 0, "")
        """What of the spool was looked at last."""
        self._said = SpoolFigures(0, 0, 0, 0, 0, 0, "")
        """What of the spool was said of those that were dropped."""

    # --- its life ----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        upstream = self._upstream
        self._spool = Spool(
            self._path, limit=upstream.spool_limit, when_full=upstream.spool_full, on_stored=self._stored
        )
        fitting = None if upstream.unannotated else Fitting(read_pickle=upstream.read_pickle)
        self._shipping = Shipping(self._spool, self._link, fitting)
        for conductor in self._conductors:
            conductor.tracker.listeners.append(self)
        kept = self._spool.figures.entries
        log.info("observing", upstream=str(upstream.address), spool=str(self._path), kept=kept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """All environments have left: what has not arrived stays in the spool."""
        for conductor in self._conductors:
            conductor.tracker.listeners.remove(self)
        assert self._spool is not None
        self._spool.close(self.drain)
        self._look()
        figures = self._spool.figures
        log.info(
            "observing ended",
            upstream=str(self._upstream.address),
            spool=str(self._path),
            kept=figures.entries,
            dropped=figures.dropped,
        )

    async def run(self) -> Never:
        """Send what is spooled."""
        assert self._shipping is not None
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._shipping.run)
            while True:
                self._look()
                await trio.sleep(LOOK_AGAIN)
        raise AssertionError("the nursery is left by an exception only")

    def _stored(self) -> None:
        """In the spool's thread."""
        if self._token is not None and self._shipping is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._shipping.news, idempotent=True)

    def _look(self) -> None:
        """Say what has changed for the worse, or back."""
        assert self._spool is not None
        figures = self._spool.figures
        before, self._seen = self._seen, figures
        if bool(figures.trouble) != bool(before.trouble):
            if figures.trouble:
                log.error("episodes cannot be spooled", reason=figures.trouble, unwritten=figures.unwritten)
            else:
                log.info("episodes are spooled again", spool=str(self._path))
        if figures.moved > before.moved:
            log.error(
                "the spool's file was gone",
                spool=str(self._path),
                kept=figures.entries,
                hint="it was removed or replaced, and made anew with what it held: stop the daemon before you do that",
            )
        if figures.dropped > self._said.dropped and self._complaint.due():
            reason, hint = self._lost_to(figures)
            self._said = figures
            log.warning(
                "episodes are dropped",
                upstream=str(self._upstream.address),
                reason=reason,
                dropped=figures.dropped,
                hint=hint,
            )

    def _lost_to(self, figures: SpoolFigures) -> tuple[str, str]:
        """Why more were dropped than was said, and what to do about it."""
        if figures.no_room > self._said.no_room:
            reason = f"the spool {self._path} is full ({self._upstream.spool_full})"
            return reason, "see why the upstream does not take them, or raise --rllink-spool-limit"
        if figures.refused > self._said.refused:
            reason = figures.trouble or f"the disk of the spool {self._path} took nothing for a while"
            return reason, "make room on that disk, or name a file on another with --rllink-spool"
        reason = f"too much at once waits for the disk of the spool {self._path}"
        return (
            reason,
            "name a file on a faster disk with --rllink-spool, or observe fewer agents with one daemon",
        )

    # --- what a chronicle calls --------------------------------------------------------------------------------------

    def admit(self, attachment: Attachment) -> None:
        """Raises UsageError for an environment that does not annotate, where the upstream needs that."""
        if self._upstream.unannotated or not self._chooses(attachment):
            return
        if not attachment.policy.annotates:
            raise UsageError(
                f"agent {attachment.name!r} is observed for the RLlink server {self._upstream.address}, which needs "
                "action_logp and action_dist_inputs of every step, and this environment does not give them",
                hint="make it with annotates=True and call env.unwrapped.annotate(action_logp=..., "
                "action_dist_inputs=...) before each step; or, for a server that needs neither, such as "
                "`ospbridge sink`, start the daemon with --rllink-unannotated",
            )
        kind = _kind(attachment)
        others = {str(_kind(other)) for other in self._observed if other is not attachment}
        if others - {str(kind)}:
            raise UsageError(
                f"agent {attachment.name!r} has {kind}, and the RLlink server {self._upstream.address}, which it is "
                f"observed for, learns from agents with {', '.join(sorted(others))}",
                hint="choose agents of one kind with --rllink-agents, and give the others a server of their own; for a "
                "server that takes any, such as `ospbridge sink`, say --rllink-unannotated",
            )
        attachment.policy.dist_inputs_size = kind.dist_inputs

    @property
    def _observed(self) -> Iterator[Attachment]:
        """Environments that are attached, and wanted."""
        for conductor in self._conductors:
            yield from filter(self.wants, conductor.lockstep.attachments)

    def wants(self, attachment: Attachment) -> bool:
        """Environments at the hub that play an agent of this upstream's."""
        return attachment.policy.annotates is not None and self._chooses(attachment)

    def _chooses(self, attachment: Attachment) -> bool:
        patterns = self._upstream.agents
        if not patterns:
            return True
        # Which agent a name means depends on which others its simulator has.
        there = next((c.lockstep.held for c in self._conductors if attachment in c.lockstep.attachments), ())
        return attachment.name in chosen((*there, attachment.name), patterns)

    def finished(self, attachment: Attachment, collected: Collected) -> None:
        """Put it into the spool. Never waits: what costs time is left to the spool's thread, for many at once."""
        assert self._spool is not None
        self._spool.put_made(collected.nbytes, partial(self._packed, collected))

    def _packed(self, collected: Collected) -> list[Made]:
        """Its pieces; none where it cannot be sent. In the spool's thread."""
        try:
            fragment = fragment_of(collected.episode())
            check_fragment(fragment, _needs(collected.whose, unannotated=self._upstream.unannotated))
            self._doubted(fragment, collected)
            return [
                Made(f"{piece.id}-{piece.t_started:08}", piece.steps, packed_up(piece), piece)
                for piece in pieces_of(fragment)
            ]
        except LocalProtocolError as error:
            self._not_sent(collected, error.message)
        except Exception as error:  # noqa: BLE001  # whatever it was, the next one may be sent
            self._not_sent(collected, f"{type(error).__name__}: {error}")
        return []

    def _doubted(self, fragment: EpisodeFragment, collected: Collected) -> None:
        """Tell of annotations that are not of these actions. Who draws otherwise than RLlib may know better."""
        if monotonic() < self._doubted_at + DOUBT_EVERY:
            return
        self._doubted_at = monotonic()
        reason = why_improbable(fragment, collected.whose.action_space)
        if reason and self._doubt.due():
            log.warning(
                "annotations are not of the actions that they came with",
                simulator=collected.whose.simulator,
                agent=collected.whose.agent,
                reason=reason,
                hint="where actions are stretched or limited before they are given to step, say "
                "annotate(action=...) as well, with the action as it was drawn",
            )

    def _not_sent(self, collected: Collected, reason: str) -> None:
        self.unfit += len(collected)
        log.warning(
            "an episode is not sent",
            simulator=collected.whose.simulator,
            agent=collected.whose.agent,
            steps=len(collected),
            reason=reason,
        )

    # --- how it stands -----------------------------------------------------------------------------------------------

    @property
    def delivered(self) -> int:
        """Steps that have arrived."""
        return self._shipping.delivered if self._shipping is not None else 0

    @property
    def discarded(self) -> int:
        """Steps that were given up."""
        return self.unfit + (self._shipping.discarded if self._shipping is not None else 0)

    @property
    def trouble(self) -> str:
        """Why nothing arrives although the upstream is there; empty where it does."""
        return self._shipping.trouble if self._shipping is not None else ""

    @property
    def spool(self) -> SpoolStatus:
        """What waits."""
        file = str(self._path).encode("utf-8", "replace").decode()
        if self._spool is None:
            return SpoolStatus(file)
        found = self._spool.figures
        return SpoolStatus(file, found.entries, found.bytes, found.unwritten, found.dropped, found.trouble)


@lru_cache(maxsize=256)
def _needs(whose: Recorded, *, unannotated: bool) -> Needs:
    """What the episodes of an environment must be like: asked at the end of each."""
    needs = Kind(whose.observation_space, whose.action_space).needs
    if unannotated:
        return replace(needs, action_dist_inputs=False, action_logp=False, dist_inputs_size=None)
    return needs


def _kind(attachment: Attachment) -> Kind:
    return Kind.of(attachment.held.task)


def default_spool(address: StreamAddress) -> Path:
    """Where the episodes for an upstream wait unless told otherwise."""
    # Where zeros are left out tells addresses of IPv6 apart.
    name = re.sub(r"[^A-Za-z0-9.]+", lambda found: "--" if "::" in found[0] else "-", str(address))
    return state_directory() / f"spool-{name}.sqlite"


def fragment_of(episode: RecordedEpisode) -> EpisodeFragment:
    """As it leaves: actions as they were drawn, and an end that was forced upon an episode is a truncation."""
    with np.errstate(over="ignore"):
        rewards = episode.rewards.astype(np.float32)
    return EpisodeFragment(
        episode.id,
        episode.observations,
        episode.actions if episode.drawn_actions is None else episode.drawn_actions,
        rewards,
        terminated=bool(episode.terminated[-1]),
        truncated=bool(episode.truncated[-1]) and episode.how != "continued",
        action_dist_inputs=episode.action_dist_inputs,
        action_logp=episode.action_logp,
        t_started=episode.t_started,
        weights_seq_no=episode.weights_seq_no,
        agent=sendable(episode.agent),
        simulator=sendable(episode.simulator),
        choices=episode.action_space.n if isinstance(episode.action_space, DiscreteSpace) else None,
    )


def pieces_of(fragment: EpisodeFragment) -> Iterator[EpisodeFragment]:
    """The whole, or as few pieces as keep each within its bounds."""
    most = max(1, min(LONGEST, fragment.steps * LARGEST // MSGPACK.size(fragment)))
    while fragment.steps > most:
        first, fragment = cut(fragment, most, continued=True)
        yield first
    yield fragment
