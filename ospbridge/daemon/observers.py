"""Those who look on: what happens to an agent, kept for observers for a while. They drive nothing and have no vote.

A channel exists while somebody observes its agent. It keeps the latest moments only, within bounds of number and size:
who asks too rarely is told how many were dropped. Nothing is kept, and a step does no more than look whether there is a
channel, while nobody observes. Steps of an agent that rests are not told.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np
import trio

from ospbridge.daemon.attachment import unknown_agent
from ospbridge.errors import LocalProtocolError, SessionLost
from ospbridge.hub.replies import Kind, Moment, Moments

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from ospbridge.daemon.attachment import Attachment, HeldAgent
    from ospbridge.daemon.lockstep import LockStep

__all__ = ["Observers"]

MOST_KEPT: Final = 4096
"""Moments of one agent."""
LARGEST_KEPT: Final = 8 * 1024 * 1024
"""Bytes of arrays of one agent's moments; the latest moment is kept even if it is larger."""
MOST_TOLD: Final = 256
"""Moments in one reply."""
LARGEST_TOLD: Final = 1024 * 1024


class _Channel:
    """The latest moments of one agent, numbered from 1 without gaps."""

    def __init__(self, held: HeldAgent) -> None:
        self.held = held
        self.last = 0
        """The number of the latest moment."""
        self.news = trio.lowlevel.ParkingLot()
        self._moments: deque[Moment] = deque()
        self._size = 0

    def append(
        self,
        kind: Kind,
        attachment: Attachment,
        episode: int,
        seed: int,
        *,
        inputs: NDArray[np.float32] | bytes | None = None,
        reason: str = "",
    ) -> None:
        """Keep what the attachment stands at now. For an end that no step brought, ``reason`` says why."""
        feedback = attachment.feedback
        told = feedback if kind is not Kind.END else None
        self.last += 1
        moment = Moment(
            self.last,
            kind,
            episode,
            attachment.episode.steps,
            b"" if inputs is None else bytes(inputs),
            attachment.observation.tobytes(),
            attachment.infos.tobytes() if told is not None else b"",
            told.reward if told is not None else 0.0,
            told is not None and told.terminated,
            told.truncated if told is not None else True,
            told.reason if told is not None else reason,
            seed,
        )
        self._moments.append(moment)
        self._size += _size(moment)
        while len(self._moments) > MOST_KEPT or (self._size > LARGEST_KEPT and len(self._moments) > 1):
            self._size -= _size(self._moments.popleft())
        self.news.unpark_all()

    def since(self, after: int) -> Moments:
        """What came after the moment of that number, as much as fits into one reply."""
        kept = self._moments
        first = self.last - len(kept) + 1
        dropped = max(first - after - 1, 0)
        chosen: list[Moment] = []
        size = 0
        for moment in islice(kept, max(after + 1 - first, 0), None):
            size += _size(moment)
            if chosen and (size > LARGEST_TOLD or len(chosen) == MOST_TOLD):
                break
            chosen.append(moment)
        return Moments(chosen, dropped)


class Observers:
    """Who observes which agent of one conductor. ``channels`` is empty while nobody does."""

    def __init__(self, lockstep: LockStep) -> None:
        self.channels: dict[str, _Channel] = {}
        self._lockstep = lockstep
        self._joined: dict[tuple[str, object], _Channel] = {}
        """By agent and observer; of an agent that others have replaced since it is none of ``channels``."""
        self._pending: dict[Attachment, tuple[int, NDArray[np.float32] | bytes]] = {}
        """Whose step is over but not told yet, since it may still be cut: its episode and inputs."""

    # --- observers -------------------------------------------------------------------------------------------------

    def join(self, name: str, observer: object) -> tuple[HeldAgent, int]:
        """Look on from now. Returns the agent, and the number of the latest moment. Raises AgentNotFound."""
        held = self._lockstep.held.get(name)
        if held is None:
            raise unknown_agent(self._lockstep.held, name)
        channel = self.channels.get(name)
        if channel is None or channel.held is not held:
            if channel is not None:
                # Those who looked on at the agent's predecessor are told when they ask.
                channel.news.unpark_all()
            channel = self.channels[name] = _Channel(held)
        self._joined[name, observer] = channel
        return held, channel.last

    def leave(self, observer: object) -> None:
        """It looks on at nothing any more."""
        self._joined = {key: channel for key, channel in self._joined.items() if key[1] is not observer}
        for name, channel in tuple(self.channels.items()):
            channel.news.unpark_all()
            if channel not in self._joined.values():
                del self.channels[name]

    async def since(self, name: str, observer: object, after: int, wait: float) -> Moments:
        """What came after that moment; nothing only where nothing comes for ``wait`` seconds. Raises SessionLost."""
        channel = self._channel(name, observer)
        if after >= channel.last:
            with trio.move_on_after(wait):
                await channel.news.park()
            channel = self._channel(name, observer)
        return channel.since(after)

    def _channel(self, name: str, observer: object) -> _Channel:
        channel = self._joined.get((name, observer))
        if channel is None:
            raise LocalProtocolError(
                f"this connection does not observe agent {name!r}", hint="observe it first"
            )
        if self._lockstep.held.get(name) is not channel.held:
            raise SessionLost(
                channel.held.missing or f"agent {name!r} is another one since the simulator was joined again",
                hint="observe it anew",
            )
        return channel

    # --- what happens ----------------------------------------------------------------------------------------------

    def began(self, playing: Iterable[Attachment]) -> None:
        """A reset ran for these."""
        for attachment in playing:
            channel = self.channels.get(attachment.name)
            if channel is not None:
                channel.append(Kind.RESET, attachment, attachment.held.episodes + 1, self._lockstep.seed)

    def stepped(
        self, playing: Iterable[Attachment], inputs: Mapping[str, NDArray[np.float32] | bytes]
    ) -> None:
        """A step ran for these; it is told by ``ended`` or ``settled``."""
        for attachment in playing:
            if attachment.name in self.channels:
                self._pending[attachment] = (attachment.held.episodes + 1, inputs[attachment.name])

    def settled(self) -> None:
        """Whose episode the step has not ended plays on."""
        for attachment in tuple(self._pending):
            self._tell_step(attachment)

    def ended(self, attachment: Attachment, how: str, reason: str) -> None:
        """An episode is over, by its last step or by something else."""
        channel = self.channels.get(attachment.name)
        if channel is None:
            return
        feedback = attachment.feedback
        stepped = attachment in self._pending
        self._tell_step(attachment)
        if not stepped or feedback is None or not (feedback.terminated or feedback.truncated):
            channel.append(
                Kind.END, attachment, attachment.held.episodes, self._lockstep.seed, reason=reason or how
            )

    def _tell_step(self, attachment: Attachment) -> None:
        episode, inputs = self._pending.pop(attachment, (0, None))
        channel = self.channels.get(attachment.name)
        if inputs is not None and channel is not None and attachment.feedback is not None:
            channel.append(Kind.STEP, attachment, episode, self._lockstep.seed, inputs=inputs)


def _size(moment: Moment) -> int:
    return len(moment.inputs) + len(moment.observation) + len(moment.infos)
