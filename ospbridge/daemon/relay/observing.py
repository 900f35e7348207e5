"""Observing: what attached environments live through goes upstream, as it ends, whole and in order.

An episode is checked, then put into a spool on disk, and sent from there; nothing that an environment or a conductor
waits for is done here. What is sent is what the environment saw and gave, also where the bridge ended its episode.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from time import monotonic
from typing import TYPE_CHECKING, Final

import numpy as np
import trio

from ospbridge.daemon.relay.acting import Kind
from ospbridge.daemon.relay.fitting import Fitting
from ospbridge.daemon.relay.probabilities import why_improbable
from ospbridge.daemon.relay.shipping import Shipping
from ospbridge.errors import LocalProtocolError, UsageError
from ospbridge.hub.status import SpoolStatus
from ospbridge.interface import DiscreteSpace, chosen
from ospbridge.observe import logs
from ospbridge.observe.sparing import Sparing
from ospbridge.observe.state import state_directory
from ospbridge.record.spool import CLOSE_WITHIN, Made, Spool, SpoolFigures
from ospbridge.rllink.checking import check_fragment
from ospbridge.rllink.cutting import cut
from ospbridge.rllink.dialects import MSGPACK
from ospbridge.rllink.fragments import EpisodeFragment, sendable
from ospbridge.rllink.parcels import packed_up

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Never, Self

    from ospbridge.daemon.attachment import Attachment
    from ospbridge.daemon.conductor import Conductor
    from ospbridge.daemon.relay.link import Link
    from ospbridge.daemon.relay.settings import Upstream
    from ospbridge.record.collecting import Collected, Recorded
    from ospbridge.record.episode import RecordedEpisode
    from ospbridge.rllink.checking import Needs
    from ospbridge.transport.tls import StreamAddress

__all__ = ["Observing"]

log = logs.get(__name__)
LONGEST: Final = 50_000
"""Steps of an episode that is sent in one piece."""
LARGEST: Final = 8 * 2**20
"""Bytes of an episode that is sent in one piece."""
DOUBT_EVERY: Final = 0.1
"""Seconds between episodes whose annotations are computed again: what is wrong with one is wrong with all."""
LOOK_AGAIN: Final = 5.0
"""Seconds between looks at how the spool stands."""


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
        self._trouble = ""
        """Of the spool, as it was said."""
        self._moved = 0
        """How often the spool's file was gone, as it was said."""
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
        if bool(figures.trouble) != bool(self._trouble):
            if figures.trouble:
                log.error("episodes cannot be spooled", reason=figures.trouble, unwritten=figures.unwritten)
            else:
                log.info("episodes are spooled again", spool=str(self._path))
            self._trouble = figures.trouble
        if figures.moved > self._moved:
            self._moved = figures.moved
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
