"""From the first INIT to the session that the answer is for: what both drivers do without waiting.

From the answer on the server has a handler that waits for us: whoever dies before anything else is said leaves a lease
for it, and whoever gives up says goodbye to it.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Self

from ospbridge.interface import Endpoint
from ospbridge.osp.client.connecting import ConnectMachine
from ospbridge.osp.profile import profile_named
from ospbridge.session.conversation import Conversation
from ospbridge.session.lease import LeaseFile
from ospbridge.session.reclaim import successors
from ospbridge.session.seeing_off import SeeingOff
from ospbridge.session.settling import GOODBYES
from ospbridge.session.tenure import Tenure
from ospbridge.session.unconnected import Unconnected
from ospbridge.transport.guardian import Guarded
from ospbridge.transport.udp import LARGEST_DATAGRAM, closed_port_probe, connect_to, open_udp

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

    from ospbridge.observe.tally import Tally
    from ospbridge.observe.trace import TraceWriter
    from ospbridge.osp.profile import Profile
    from ospbridge.osp.timing import Limits
    from ospbridge.session.reclaim import Successor

__all__ = ["Arrival"]


class Arrival(Unconnected[ConnectMachine]):
    """A server at a numeric address is asked for a handler: the first INITs are out.

    A context, which turns back where its body fails: all that has answered gets its END. Nobody waits to hear that
    confirmed, so the lease stays.
    """

    def __init__(
        self,
        family: socket.AddressFamily,
        server: Endpoint,
        profile: str | Profile | None,
        *,
        limits: Limits | None,
        now: float,
        pauses: bool = False,
        trace: TraceWriter | None = None,
        tally: Tally | None = None,
        leases: Path | None = None,
    ) -> None:
        wanted = profile_named(profile) if isinstance(profile, str) else profile
        machine = ConnectMachine(server, wanted, limits=limits, jitter=random.random, now=now, pauses=pauses)
        super().__init__(open_udp(family), machine, trace=trace, tally=tally)
        self.early: list[bytes] = []
        """What the handler sent before the socket was connected to it."""
        self._leases = leases
        self._lease = LeaseFile(leases)
        self._guarded = Guarded(self.sock)
        self._place: Endpoint | None = None
        """The handler that the lease tells of."""
        try:
            self.probe = closed_port_probe(family, server)
            """Hears whether the server's port is closed."""
        except BaseException:
            self._turn_back()
            raise
        try:
            self._say()
        except BaseException as error:
            self.__exit__(type(error))
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.probe.close()
        if kind is not None:
            self._turn_back()

    def _turn_back(self) -> None:
        self.machine.turn_back()
        self._say()
        # A successor that says goodbye needs the port.
        self._guarded.drop(wait=self._lease.held)
        self.sock.close()
        self._lease.abandon()

    def _hear(self, now: float) -> None:
        try:
            self.probe.recv(LARGEST_DATAGRAM)
        except ConnectionRefusedError:
            self.machine.handle_refused()
        except BlockingIOError:
            pass
        except OSError as error:
            self.machine.handle_unreachable(str(error.strerror))
        super()._hear(now)
        self._hold_place()

    def _hold_place(self) -> None:
        """Keep a lease of the handler that has answered, though it is not adopted yet."""
        answered = self.machine.answered
        if answered is not None and not (self._lease.held and answered[0] == self._place):
            self._place = answered[0]
            self.tenure().renew({})

    def successors(self) -> Iterator[Successor]:
        """Of sessions of ours that died, for whose places the machine pauses."""
        machine = self.machine
        return successors(machine.server, self._leases, machine.limits, no_later=machine.paused_until)

    @property
    def found(self) -> tuple[Endpoint, Profile]:
        """The handler that has answered, and what it speaks, as far as is known by now."""
        assert self.machine.answered is not None
        return self.machine.answered

    def tenure(self) -> Tenure:
        """That of the handler that has answered."""
        handler, profile = self.found
        host, port = self.sock.getsockname()[:2]
        return Tenure(
            self._lease,
            self._guarded,
            self.machine.server,
            local=Endpoint(host, port),
            handler=handler,
            profile=profile,
            owed=self.machine.owed,
        )

    def connect(self) -> Tenure:
        """The socket hears the handler alone from here on, whose tenure this is."""
        if self.machine.surplus:
            GOODBYES.note(self.machine.server)
        self.early = connect_to(self.sock, self.found[0])
        return self.tenure()

    def conversation(self) -> Conversation:
        """With the handler, which the socket is connected to."""
        tenure, machine = self.connect(), self.machine
        return Conversation(
            machine.server,
            *self.found,
            limits=machine.limits,
            answered_after=machine.answered_after,
            leases=self._leases,
            tenure=tenure,
        )

    def others(self) -> SeeingOff | None:
        """Handlers that other INITs are answered by, of a server that may owe such answers."""
        machine = self.machine
        return SeeingOff.beside(self.sock, machine.server, self.found[1], machine.owed, trace=self._trace)
