"""The UDP driver of what answers as an OSP server: a main socket, a connected socket for each handler, one loop.

The loop blocks in ``epoll``; while datagrams keep coming it polls a bounded time before it sleeps, because waking a
sleeping process costs more than a step. ``UdpServer`` either owns its thread (``run``) or runs in the background
(``start`` and ``stop``, or as a context manager). It knows nothing of worlds: ``machine`` says what is answered.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from ospbridge.errors import SessionClosed
from ospbridge.interface import DEFAULT_PORT, Endpoint
from ospbridge.osp.server import PROBING, CloseHandler, OpenHandler, Send
from ospbridge.simulator.faults import FaultPlan, FaultyLine
from ospbridge.simulator.listening import bound, enlarge
from ospbridge.transport.spinning import OWN_CORE

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Hashable
    from types import TracebackType
    from typing import Self

    from ospbridge.osp.server import Effect

__all__ = ["Answerer", "UdpServer"]

LARGEST: Final = 65_536
MOST_READS: Final = 64
"""Rounds of reading before a step that is due runs although more datagrams wait."""
SPIN: Final = 50e-6
"""Longest time, in seconds, that is spent polling before the loop sleeps."""
LONGEST_SLEEP: Final = 3600.0
"""Seconds: epoll takes no more than some weeks."""
REPORT_EVERY: Final = 1.0


class Answerer(Protocol):
    """The server's side of the protocol, without I/O; ``ServerMachine`` says more of each."""

    problems: Counter[str]

    @property
    def due(self) -> bool:
        """Whether ``handle_timer`` should be called as soon as nothing more is there to read."""

    def receive_main(self, data: bytes, peer: Hashable, now: float) -> None: ...

    def receive(self, handler_id: int, data: bytes, now: float) -> None: ...

    def next_deadline(self) -> float | None: ...

    def handle_timer(self, now: float) -> None: ...

    def take_effects(self) -> list[Effect]: ...


class UdpServer:
    """Serves ``machine`` at ``host``:``port`` (0 picks a port). ``address`` says where, as soon as it is made.

    ``faults``: what happens to datagrams on their way. ``report``: called at most once a second with the numbers of
    ignored datagrams by kind, when there were new ones. ``spin``: whether to poll before sleeping; by default where a
    core is to spare and the loop has a process of its own. ``deaf_after_closed_port``: a handler whose datagram met a
    closed port is heard no more, as ``Profile`` says of real servers.

    Raises ConfigurationError if the address cannot be had.
    """

    def __init__(
        self,
        machine: Answerer,
        *,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        faults: FaultPlan | None = None,
        report: Callable[[dict[str, int]], None] | None = None,
        spin: bool | None = None,
        deaf_after_closed_port: bool = False,
    ) -> None:
        self._deaf_after_closed_port = deaf_after_closed_port
        self._plan = None if faults is None or faults.harmless else faults
        self._machine = machine
        self._main, self._family = bound(host, port)
        self._bound_host = self._main.getsockname()[0]
        self.address: Endpoint = Endpoint(*self._main.getsockname()[:2])
        """Where clients find it."""
        self._report = report
        self._reported: dict[str, int] = {}
        self._next_report = 0.0
        self._report_due: float | None = None
        """When numbers are told that came too soon behind the latest report; the loop must not sleep beyond that."""
        self._spin_asked = spin
        self._spin = 0.0
        self._longest_spin = 0.0
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._epoll = select.epoll()
        self._epoll.register(self._main.fileno(), select.EPOLLIN)
        self._epoll.register(self._wake_in.fileno(), select.EPOLLIN)
        self._sockets: dict[int, socket.socket] = {}
        self._handler_of: dict[int, int] = {}
        self._incoming: dict[int, FaultyLine[Any]] = {}
        self._outgoing: dict[int, FaultyLine[bytes]] = {}
        self._buffer = bytearray(LARGEST)
        self._view = memoryview(self._buffer)
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._closed = False

    # --- running ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until ``stop_soon`` is called, from a signal handler or another thread; then close.

        Raises SessionClosed for a simulator that was stopped, as its port is given up.
        """
        self._check()
        background = threading.current_thread() is not threading.main_thread()
        spin = self._spin_asked
        if spin is None:
            spin = not background and (len(os.sched_getaffinity(0)) > 1 or OWN_CORE in os.environ)
        self._longest_spin = SPIN if spin else 0.0
        # A signal that comes just before the loop sleeps, or in another thread, interrupts no wait: Python's handler
        # would run when the next datagram comes. With a descriptor to write to, the interpreter wakes the loop itself.
        before = (
            None if background else signal.set_wakeup_fd(self._wake_out.fileno(), warn_on_full_buffer=False)
        )
        try:
            while not self._stopping:
                self._turn()
            self._tell_problems(at_once=True)
        finally:
            if before is not None:
                signal.set_wakeup_fd(before)
            self.close()

    def start(self) -> Self:
        """Serve in a background thread. Raises SessionClosed for a simulator that was stopped."""
        self._check()
        if self._thread is not None:
            raise RuntimeError("the simulator runs already")
        self._thread = threading.Thread(target=self.run, name="ospbridge-simulator", daemon=True)
        self._thread.start()
        return self

    def _check(self) -> None:
        if self._closed:
            raise SessionClosed(f"the simulator at {self.address} was stopped")

    def stop_soon(self) -> None:
        """Make ``run`` return; may be called from a signal handler and any thread."""
        self._stopping = True
        with contextlib.suppress(OSError):
            self._wake_out.send(b"\0")

    def stop(self) -> None:
        """End the background thread and close all sockets. Clients are not told."""
        self.close()

    def close(self) -> None:
        """End the background thread, if there is one, and close all sockets. Idempotent."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            # The loop must not be left with descriptors that are closed, or that are somebody else's by now.
            self.stop_soon()
            thread.join()
        if self._closed:
            return
        self._closed = True
        self._epoll.close()
        for sock in (self._main, self._wake_in, self._wake_out, *self._sockets.values()):
            sock.close()
        self._sockets.clear()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- the loop --------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Wait, read all that is there, run what is due."""
        machine = self._machine
        ready = self._wait()
        rounds = 0
        while ready:
            for fd, _ in ready:
                self._read(fd)
            rounds += 1
            if not machine.due or rounds >= MOST_READS:
                break
            ready = self._epoll.poll(0)
        if self._plan is not None or machine.next_deadline() is not None:
            now = time.monotonic()
            if self._plan is not None:
                self._deliver_late(now)
            machine.handle_timer(now)
            self._carry_out(now)
        if self._report is not None and machine.problems:
            self._tell_problems()

    def _wait(self) -> list[tuple[int, int]]:
        timeout = -1.0
        deadline = self._deadline()
        if deadline is not None:
            timeout = min(max(0.0, deadline - time.monotonic()), LONGEST_SLEEP)
        if self._spin > 0.0 and timeout != 0.0:
            poll = self._epoll.poll
            end = time.monotonic() + self._spin
            while time.monotonic() < end:
                ready = poll(0)
                if ready:
                    self._spin = self._longest_spin
                    return ready
            self._spin /= 2 if self._spin > 5e-6 else math.inf
        ready = self._epoll.poll(timeout)
        if ready and not self._spin:
            # It slept; the next datagrams of a step in progress come soon.
            self._spin = min(self._longest_spin, 20e-6)
        return ready

    def _deadline(self) -> float | None:
        deadline = self._machine.next_deadline()
        if self._report_due is not None:
            deadline = self._report_due if deadline is None else min(self._report_due, deadline)
        if self._plan is None:
            return deadline
        lines = (*self._incoming.values(), *self._outgoing.values())
        late = min((line.next_deadline() for line in lines), default=math.inf)
        if late == math.inf:
            return deadline
        return late if deadline is None else min(late, deadline)

    def _read(self, fd: int) -> None:
        """One datagram of a ready socket."""
        handler_id = self._handler_of.get(fd)
        if handler_id is None:
            if fd == self._main.fileno():
                self._read_main()
            elif fd == self._wake_in.fileno():
                with contextlib.suppress(BlockingIOError):
                    self._wake_in.recv(LARGEST)
            return
        try:
            size = self._sockets[handler_id].recv_into(self._buffer)
        except ConnectionRefusedError:
            self._met_closed_port(fd)
            return
        except OSError:
            # Nothing there; or a firewall turned an earlier datagram away. The real server does not care either.
            return
        data = bytes(self._view[:size])
        now = time.monotonic()
        if self._plan is None:
            self._machine.receive(handler_id, data, now)
        else:
            for arrived in self._incoming_line(handler_id).transmit(data, now):
                self._machine.receive(handler_id, arrived, now)
        self._carry_out(now)

    def _read_main(self) -> None:
        try:
            data, peer = self._main.recvfrom(LARGEST)
        except OSError:
            return
        now = time.monotonic()
        if self._plan is None:
            self._machine.receive_main(data, peer, now)
        else:
            for arrived, sender in self._incoming_line(0).transmit((data, peer), now):
                self._machine.receive_main(arrived, sender, now)
        self._carry_out(now)

    def _carry_out(self, now: float) -> None:
        """Do what the machine asked for."""
        for effect in self._machine.take_effects():
            if type(effect) is Send:
                if self._plan is None:
                    self._send(effect.handler_id, effect.data)
                else:
                    for data in self._outgoing_line(effect.handler_id).transmit(effect.data, now):
                        self._send(effect.handler_id, data)
            elif type(effect) is OpenHandler:
                self._open(effect.handler_id, effect.peer)
            elif type(effect) is CloseHandler:
                self._forget(effect.handler_id)

    def _send(self, handler_id: int, data: bytes) -> None:
        sock = self._sockets.get(handler_id)
        if sock is None:
            return
        try:
            sock.send(data)
        except ConnectionError:
            self._met_closed_port(sock.fileno())
            # The error belongs to an earlier datagram and kept this one from leaving.
            with contextlib.suppress(OSError):
                sock.send(data)
        except OSError:
            # The buffer is full, or the client's host cannot be reached: lost, as datagrams may be.
            pass

    def _met_closed_port(self, fd: int) -> None:
        """A datagram of a handler came back: it goes on, or hears nobody from here on, until it is closed."""
        if self._deaf_after_closed_port and self._handler_of.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def _open(self, handler_id: int, peer: Any) -> None:
        sock = socket.socket(self._family, socket.SOCK_DGRAM)
        sock.setblocking(False)
        enlarge(sock)
        try:
            sock.bind((self._bound_host, 0))
            sock.connect(peer)
            with contextlib.suppress(BlockingIOError):  # what came before that is a stranger's
                while True:
                    sock.recv(LARGEST)
        except OSError:
            # An INIT from an address that cannot be answered; the handler stays, as a client that vanished would.
            sock.close()
            return
        self._sockets[handler_id] = sock
        self._handler_of[sock.fileno()] = handler_id
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    def _forget(self, handler_id: int) -> None:
        if self._plan is not None:
            self._incoming.pop(handler_id, None)
            for data in self._outgoing_line(handler_id).arrivals(math.inf):
                self._send(handler_id, data)
            self._outgoing.pop(handler_id, None)
        sock = self._sockets.pop(handler_id, None)
        if sock is not None:
            if self._handler_of.pop(sock.fileno(), None) is not None:
                self._epoll.unregister(sock.fileno())
            sock.close()

    # --- faults and reports ----------------------------------------------------------------------------------------

    def _incoming_line(self, handler_id: int) -> FaultyLine[Any]:
        """The line towards a handler; 0 is the main port."""
        line = self._incoming.get(handler_id)
        if line is None:
            assert self._plan is not None
            line = self._incoming[handler_id] = FaultyLine(self._plan, f"in {handler_id}")
        return line

    def _outgoing_line(self, handler_id: int) -> FaultyLine[bytes]:
        line = self._outgoing.get(handler_id)
        if line is None:
            assert self._plan is not None
            line = self._outgoing[handler_id] = FaultyLine(self._plan, f"out {handler_id}")
        return line

    def _deliver_late(self, now: float) -> None:
        for handler_id, incoming in list(self._incoming.items()):
            for item in incoming.arrivals(now):
                if handler_id == 0:
                    data, peer = item
                    self._machine.receive_main(data, peer, now)
                else:
                    self._machine.receive(handler_id, item, now)
        for handler_id, outgoing in list(self._outgoing.items()):
            for late in outgoing.arrivals(now):
                self._send(handler_id, late)
        self._carry_out(now)

    def _tell_problems(self, *, at_once: bool = False) -> None:
        if self._report is None:
            return
        counts = {kind: n for kind, n in self._machine.problems.items() if kind not in PROBING}
        if counts == self._reported:
            return
        now = time.monotonic()
        self._report_due = None if at_once or now >= self._next_report else self._next_report
        if self._report_due is None:
            self._reported = counts
            self._next_report = now + REPORT_EVERY
            self._report(counts)
