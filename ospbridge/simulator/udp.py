"""The UDP driver of what answers as an OSP server: a main socket, a connected socket for each handler, one loop.

The loop blocks in ``epoll``; after datagrams it polls for a moment before it sleeps, because waking a sleeping process
costs more than a step. ``UdpServer`` knows nothing of worlds: ``machine`` says what is answered. ``UdpSimulator``
serves a world: it is what `ospbridge sim` runs.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import signal
import socket
import threading
import time
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ospbridge.errors import ConfigurationError, SessionClosed
from ospbridge.interface import DEFAULT_PORT, Endpoint
from ospbridge.osp.profile import DOCUMENT, Profile
from ospbridge.osp.server import PROBING, BaseServer, CloseHandler, Faults, OpenHandler, ServerMachine
from ospbridge.simulator.faults import FaultPlan, FaultyLine
from ospbridge.simulator.hosting import check_world
from ospbridge.transport.spinning import OWN_CORE

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from ospbridge.osp.world import World

__all__ = ["LOST_RESETS", "UdpServer", "UdpSimulator"]

MAIN, WAKE = 0, -1
"""Sockets that are no handler's: the main one, and the end of a pair to which whoever ends the loop writes."""
LARGEST: Final = 65_536
BUFFER: Final = 4 * 1024 * 1024
"""Bytes asked for in both directions of a socket, for bursts; the kernel gives what it allows."""
MOST_READS: Final = 64
"""Rounds of reading before a step that is due runs although more datagrams wait."""
SPIN: Final = 50e-6
"""Seconds that are spent polling before the loop sleeps."""
LONGEST_SLEEP: Final = 3600.0
"""Seconds: epoll takes no more than some weeks."""
REPORT_EVERY: Final = 1.0
LOST_RESETS: Final = 1 / 300
"""How often a stalling simulator loses a reset that directly follows another, as a real server does under load."""
_OTHERWISE: Final = {
    errno.EADDRINUSE: "another simulator may run there; stop it, or take a free port with --port 0",
    errno.EADDRNOTAVAIL: "this host has no such address; 127.0.0.1 is this host alone, 0.0.0.0 all of them",
    errno.EAFNOSUPPORT: "this host speaks no IPv6; 127.0.0.1 is this host by IPv4",
    errno.EACCES: "ports below 1024 are not for every user: take another one with --port",
}
"""What to do where nobody may listen."""
Delivery: TypeAlias = "Callable[[float], object]"
"""Lets a datagram arrive, at a time."""


class UdpServer:
    """Serves ``machine`` at ``host``:``port`` (0 picks a port). ``address`` says where, as soon as it is made.

    ``faults``, ``report`` and ``spin`` are those of ``UdpSimulator``. Raises ConfigurationError if the address cannot
    be had.
    """

    def __init__(
        self,
        machine: BaseServer[Any],
        *,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        faults: FaultPlan | None = None,
        report: Callable[[dict[str, int]], None] | None = None,
        spin: bool | None = None,
    ) -> None:
        main = _bound(host, port)
        self.machine = machine
        self.address: Endpoint = Endpoint(*main.getsockname()[:2])
        """Where clients find it."""
        self._plan = None if faults is None or faults.harmless else faults
        self._lines: dict[tuple[int, str], FaultyLine[Delivery]] = {}
        """By handler and direction, as far as there are faults."""
        self._report = report
        self._reported: dict[str, int] = {}
        self._report_at = math.inf
        """When numbers are told that came too soon behind the latest report."""
        self._next_report = 0.0
        self._spin = spin
        self._epoll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        """By handler id; none once the server is closed."""
        self._ids: dict[int, int] = {}
        """Handler ids by the descriptors that are read."""
        wake_in, self._wake_out = socket.socketpair()
        for end in (wake_in, self._wake_out):
            end.setblocking(False)
        self._add(WAKE, wake_in)
        self._add(MAIN, main)
        self._thread: threading.Thread | None = None
        self._stopping = False

    # --- running ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until ``stop_soon`` is called, from a signal handler or another thread; then close.

        Raises SessionClosed for a simulator that was stopped, as its port is given up.
        """
        self._check()
        background = threading.current_thread() is not threading.main_thread()
        if self._spin is None:
            self._spin = not background and (len(os.sched_getaffinity(0)) > 1 or OWN_CORE in os.environ)
        # A signal that comes just before the loop sleeps, or in another thread, interrupts no wait: Python's handler
        # would run when the next datagram comes. With a descriptor to write to, the interpreter wakes the loop itself.
        before = (
            None if background else signal.set_wakeup_fd(self._wake_out.fileno(), warn_on_full_buffer=False)
        )
        try:
            while not self._stopping:
                self._turn()
            self._report_problems(math.inf)
        finally:
            if before is not None:
                signal.set_wakeup_fd(before)
            self.stop()

    def start(self) -> Self:
        """Serve in a background thread. Raises SessionClosed for a simulator that was stopped."""
        self._check()
        if self._thread is not None:
            raise RuntimeError("the simulator runs already")
        self._thread = threading.Thread(target=self.run, name="ospbridge-simulator", daemon=True)
        self._thread.start()
        return self

    def _check(self) -> None:
        if not self._sockets:
            raise SessionClosed(f"the simulator at {self.address} was stopped")

    def stop_soon(self) -> None:
        """Make ``run`` return; may be called from a signal handler and any thread."""
        self._stopping = True
        with contextlib.suppress(OSError):
            self._wake_out.send(b"\0")

    def stop(self) -> None:
        """End the background thread and close all sockets. Clients are not told."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            # The loop must not be left with descriptors that are closed, or that are somebody else's by now.
            self.stop_soon()
            thread.join()
        sockets, self._sockets = self._sockets, {}
        if sockets:
            self._epoll.close()
            for sock in (self._wake_out, *sockets.values()):
                sock.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- the loop --------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Wait, read all that is there, run what is due."""
        ready = self._wait()
        rounds = 0
        while ready:
            for fd, _ in ready:
                self._read(fd)
            rounds += 1
            if not self.machine.due or rounds >= MOST_READS:
                break
            ready = self._epoll.poll(0)
        now = time.monotonic()
        for line in list(self._lines.values()):
            for deliver in line.arrivals(now):
                deliver(now)
        self.machine.handle_timer(now)
        self._carry_out(now)
        if self.machine.problems:
            self._report_problems(now)

    def _wait(self) -> list[tuple[int, int]]:
        """The descriptors that can be read."""
        deadline = self.machine.next_deadline()
        deadline = min(
            math.inf if deadline is None else deadline,
            self._report_at,
            *(line.next_deadline() for line in self._lines.values()),
        )
        if self._spin:
            end = min(time.monotonic() + SPIN, deadline)
            while time.monotonic() < end:
                if ready := self._epoll.poll(0):
                    return ready
        return self._epoll.poll(min(max(0.0, deadline - time.monotonic()), LONGEST_SLEEP))

    def _read(self, fd: int) -> None:
        """One datagram of a ready socket."""
        handler_id = self._ids.get(fd)
        if handler_id is None:
            return  # its handler was closed in this very round
        sock = self._sockets[handler_id]
        try:
            if handler_id == MAIN:
                deliver = partial(self.machine.receive_main, *sock.recvfrom(LARGEST))
            else:
                deliver = partial(self.machine.receive, handler_id, sock.recv(LARGEST))
        except ConnectionRefusedError:
            self._met_closed_port(fd)
            return
        except OSError:
            # Nothing there; or a firewall turned an earlier datagram away. The real server does not care either.
            return
        if handler_id != WAKE:
            now = time.monotonic()
            self._transmit(handler_id, "in", deliver, now)
            self._carry_out(now)

    def _transmit(self, handler_id: int, direction: str, deliver: Delivery, now: float) -> None:
        """Let a datagram arrive, unless faults have it otherwise."""
        if self._plan is None:
            deliver(now)
            return
        line = self._lines.get((handler_id, direction))
        if line is None:
            line = FaultyLine(self._plan, f"{direction} {handler_id}")
            self._lines[handler_id, direction] = line
        for arrived in line.transmit(deliver, now):
            arrived(now)

    def _carry_out(self, now: float) -> None:
        """Do what the machine asked for."""
        for effect in self.machine.take_effects():
            if isinstance(effect, OpenHandler):
                self._open(effect.handler_id, effect.peer)
            elif isinstance(effect, CloseHandler):
                self._forget(effect.handler_id)
            else:
                deliver = partial(self._send, effect.handler_id, effect.data)
                self._transmit(effect.handler_id, "out", deliver, now)

    def _send(self, handler_id: int, data: bytes, _now: float) -> None:
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
        if self.machine.deaf_after_closed_port:
            self._watch_no_more(fd)

    def _open(self, handler_id: int, peer: Any) -> None:
        main = self._sockets[MAIN]
        sock = socket.socket(main.family, socket.SOCK_DGRAM)
        try:
            _prepare(sock)
            sock.bind((main.getsockname()[0], 0))
            sock.connect(peer)
            with contextlib.suppress(BlockingIOError):  # what came before that is a stranger's
                while True:
                    sock.recv(LARGEST)
        except OSError:
            # An INIT from an address that cannot be answered; the handler stays, as a client that vanished would.
            sock.close()
            return
        self._add(handler_id, sock)

    def _add(self, handler_id: int, sock: socket.socket) -> None:
        self._sockets[handler_id] = sock
        self._ids[sock.fileno()] = handler_id
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    def _watch_no_more(self, fd: int) -> None:
        if self._ids.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def _forget(self, handler_id: int) -> None:
        self._lines.pop((handler_id, "in"), None)
        line = self._lines.pop((handler_id, "out"), None)
        for deliver in [] if line is None else line.arrivals(math.inf):
            deliver(math.inf)
        sock = self._sockets.pop(handler_id, None)
        if sock is not None:
            self._watch_no_more(sock.fileno())
            sock.close()

    def _report_problems(self, now: float) -> None:
        """Tell the numbers of ignored datagrams if there are new ones, at most once a second."""
        counts = {kind: n for kind, n in self.machine.problems.items() if kind not in PROBING}
        if self._report is None or counts == self._reported:
            self._report_at = math.inf
        elif now < self._next_report:
            self._report_at = self._next_report
        else:
            self._reported, self._report_at, self._next_report = counts, math.inf, now + REPORT_EVERY
            self._report(counts)


class UdpSimulator(UdpServer):
    """Serves ``world`` at ``host``:``port`` (0 picks a port), in a background thread where it is a context manager.

    ``profile``: as which kind of server. ``stall``: probability that a completion is delayed by 50 ms, and that a step
    of a NERD server runs 5 ms after its last request, as a real server's now and then do. ``lose_reset``: probability
    that a reset directly behind another is acknowledged and never runs; by default ``LOST_RESETS`` where a NERD server
    stalls, else 0. ``faults``: what happens to datagrams on their way. ``ledger``: called with a record of each step
    and reset that ran. ``report``: called at most once a second with the numbers of ignored datagrams by kind, when
    there were new ones. ``spin``: whether to poll before sleeping; by default where a core is to spare and ``run`` has
    a process of its own. ``max_handlers``: how many clients may be connected.

    Raises ConfigurationError if the address cannot be had, or the world cannot be told in OSP.
    """

    machine: ServerMachine

    def __init__(
        self,
        world: World,
        *,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        profile: Profile = DOCUMENT,
        stall: float = 0.0,
        lose_reset: float | None = None,
        faults: FaultPlan | None = None,
        ledger: Callable[[dict[str, Any]], None] | None = None,
        report: Callable[[dict[str, int]], None] | None = None,
        spin: bool | None = None,
        max_handlers: int = 64,
    ) -> None:
        if not isinstance(profile, Profile):
            raise ConfigurationError(
                f"profile must be one of ospbridge.osp.profile, got {profile!r}",
                hint="from ospbridge.osp.profile import DOCUMENT, NERD",
            )
        if lose_reset is None:
            lose_reset = LOST_RESETS if stall > 0.0 and profile.loses_wakeups else 0.0
        for name, value in (("stall", stall), ("lose_reset", lose_reset)):
            if not 0.0 <= value <= 1.0:
                raise ConfigurationError(f"{name} must be a probability in [0, 1], got {value}")
        check_world(world, profile)
        seed = 0 if faults is None else faults.seed
        chances = Faults(
            stall=_chance(stall, f"{seed}/stall"),
            late=_chance(stall, f"{seed}/late"),
            lose_reset=_chance(lose_reset, f"{seed}/reset"),
        )
        machine = ServerMachine(world, profile, faults=chances, ledger=ledger, max_handlers=max_handlers)
        super().__init__(machine, host=host, port=port, faults=faults, report=report, spin=spin)


def _chance(probability: float, seed: str) -> Callable[[], bool]:
    """What happens with that probability, in a random sequence of its own."""
    draw = Random(seed).random
    return lambda: draw() < probability


def _bound(host: str, port: int) -> socket.socket:
    """The main socket. SO_REUSEADDR stays off: two simulators on one port would share its datagrams."""
    if not isinstance(port, int) or not 0 <= port < 65536:  # type: ignore[redundant-expr]  # users may check no types
        # The resolver takes what is larger, and cuts it.
        raise ConfigurationError(
            f"cannot listen at port {port!r}: expected 0 to 65535", hint="port 0 takes a free one"
        )
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    except (socket.gaierror, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it can be no host's name"
        raise ConfigurationError(
            f"cannot resolve the host {host!r}: {why}", hint="give an address such as 127.0.0.1"
        ) from None
    with contextlib.ExitStack() as stack:
        try:
            sock = stack.enter_context(socket.socket(family, socket.SOCK_DGRAM))
            _prepare(sock)
            sock.bind(address)
        except OSError as error:
            hint = _OTHERWISE.get(error.errno or 0, "take an address and a port that this user may listen at")
            raise ConfigurationError(f"cannot listen at {host}:{port}: {error.strerror}", hint=hint) from None
        stack.pop_all()
    return sock


def _prepare(sock: socket.socket) -> None:
    """Never wait for it, and make room for a burst: what does not fit is lost."""
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
