"""From the spool to the upstream: in order, in batches, each kept until it is proven that it was read.

Only the PONG to a PING behind them proves that episodes have arrived; what was not proven is sent again, under the same
ids, and to RLlib under others. The disk is waited for in worker threads.

Observed on Ray 2.60.0: a replay buffer takes an id that comes twice for an episode that goes on behind its end, which
ends the training of DQN and SAC.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from ospbridge.daemon.relay.suspicion import Suspicion, Turn
from ospbridge.errors import ConfigurationError, LocalProtocolError, OspBridgeError
from ospbridge.observe import logs
from ospbridge.observe.sparing import Sparing
from ospbridge.rllink.cutting import split
from ospbridge.rllink.exchanges import deliver
from ospbridge.rllink.fragments import EpisodeFragment
from ospbridge.rllink.parcels import unpacked

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Never

    from ospbridge.daemon.relay.fitting import Fitting
    from ospbridge.daemon.relay.link import Connection, Link
    from ospbridge.record.spool import Entry, Spool

__all__ = ["Shipping"]

log = logs.get(__name__)
MOST_STEPS: Final = 10_000
"""Of a delivery, unless one episode alone has more."""
FEW_STEPS: Final = 1000
"""With fewer than that a delivery waits for more, for a while."""
LINGER: Final = 0.5
"""Seconds of that while."""
LARGEST: Final = 2 * 2**20
"""Bytes of a delivery, unless one episode alone has more."""
MISFIT: Final = 30.0
"""Seconds until experience that does not fit the upstream is looked at again, unless another server comes sooner."""
UNREADABLE: Final = 10.0
"""Seconds until a spool that cannot be read is tried again."""


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
        self._misfit = Sparing()
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
            entries = await self._taken(self._suspicion.after, steps=1 if alone else MOST_STEPS, size=LARGEST)
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
        if self._misfit.due():
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
