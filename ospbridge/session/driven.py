"""What a session is, whichever driver moves its datagrams: whom it is with, and how it takes its leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from ospbridge.session.lost_agents import given_up
from ospbridge.session.settling import GOODBYES
from ospbridge.transport.guardian import take_problem

if TYPE_CHECKING:
    import socket

    from ospbridge.interface import Endpoint
    from ospbridge.osp.client.machine import Exchange
    from ospbridge.osp.client.notices import Notice
    from ospbridge.osp.profile import Profile
    from ospbridge.session.arriving import Arrival
    from ospbridge.session.conversation import Conversation
    from ospbridge.session.datagrams import Datagrams
    from ospbridge.session.seeing_off import SeeingOff

__all__ = ["Driven"]

L = TypeVar("L", bound="Datagrams")


class Driven(Generic[L]):
    """Base of the sessions, over a socket that is connected to the handler."""

    def __init__(self, sock: socket.socket, conversation: Conversation, link: L) -> None:
        self.conversation = conversation
        self.machine = conversation.machine
        self.link = link
        self.closed = False
        """Nothing can be asked any more; closing has no more to do."""
        self._socket = sock
        self._others: SeeingOff | None = None
        """Handlers that other INITs of this session are answered by."""

    def _arrived(self, arrival: Arrival) -> None:
        """Take over what came on the way here, and what may still come of it."""
        self._others = arrival.others()
        self.link.take_early(arrival.early)
        if problem := take_problem():
            self.machine.notices.remark(
                f"no guardian protects the agents of this process: {problem}; if it is killed, they may stay taken"
            )

    @property
    def profile(self) -> Profile:
        """The kind of server that was found."""
        return self.machine.profile

    @property
    def server(self) -> Endpoint:
        """The simulator's address, resolved."""
        return self.conversation.server

    @property
    def controlled(self) -> tuple[str, ...]:
        """Names of the agents this session controls."""
        return tuple(self.conversation.votes)

    def take_notices(self) -> list[Notice]:
        """What happened unasked: resets by others, late and doubled datagrams; and what to know of the simulator."""
        if not self.closed:
            self.link.drain()
        return self.conversation.take_notices()

    # --- leaving ---------------------------------------------------------------------------------------------------

    def goodbye(self) -> Exchange[bool] | None:
        """For ``link``, which may be another one from here on; None where nobody is left to say it to."""
        if self.machine.lost is not None:
            if self.over:
                return None
            # It may be there again, and would keep the agents.
            self.link = self.link.successor(self.conversation.take_heart())
        return self.conversation.leave()

    def surplus(self, *, confirmed: bool) -> SeeingOff | None:
        """Whom to see off behind a ``goodbye`` that ended so: only then does a server read on."""
        return self._others if confirmed or self.link.gone else None

    def left(self, *, confirmed: bool) -> None:
        """The ``goodbye`` ended so: nothing more is to be said, to its handler or another."""
        if not self.over:
            GOODBYES.note(self.server)
        try:
            if confirmed or self.over:
                self.conversation.forget_lease(refused=not (confirmed or self.conversation.evicted))
            if not confirmed and not self.conversation.evicted:
                given_up(self.server, self.controlled)
        finally:
            self._drop()

    @property
    def over(self) -> bool:
        """Nobody keeps an agent for this session."""
        return self.link.gone or self.conversation.evicted

    def _drop(self) -> None:
        self.closed = True
        # Whoever finds the lease unlocked takes it that its port can be had.
        self.conversation.unguard()
        self._socket.close()
        if self._others is not None:
            self._others.close()
        self.conversation.abandon_lease()
