"""A network between clients and a simulator that swallows everything for a while, now and then."""

from __future__ import annotations

import select
import socket
import threading
import time
from contextlib import suppress
from typing import Final, Self

from ospbridge.interface import Endpoint

LARGEST: Final = 65_536
Address = tuple[str, int]


class HoledNetwork:
    """Clients find the simulator at ``address``. ``holed`` may be set at any time: nothing passes then, either way,
    not even behind the hole, where the network was busy and has yet to look at it.

    A client has a socket of its own towards the simulator. A handler answers from a port of its own, and so each answer
    of a new port gets a socket here too, which is the handler for its client, and hands on what the client says to it.
    """

    def __init__(self, simulator: Endpoint) -> None:
        self._holed = False
        self.answers_left: int | None = None
        """So many answers of the simulator still pass; None: all of them."""
        self.swallowed = 0
        self._simulator = (simulator.host, simulator.port)
        self._epoll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._main = self._added()
        self.address = "{}:{}".format(*self._main.getsockname())
        self._outside: dict[Address, socket.socket] = {}
        """By client: where the simulator sees it."""
        self._client_of: dict[int, Address] = {}
        """By descriptor of an outside."""
        self._inside: dict[tuple[int, Address], socket.socket] = {}
        """By outside and handler: where the client sees the handler."""
        self._way_of: dict[int, tuple[socket.socket, Address]] = {}
        """By descriptor of an inside: the outside to send from, and the handler."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def holed(self) -> bool:
        return self._holed

    @holed.setter
    def holed(self, now: bool) -> None:
        if self._holed and not now:
            for sock in list(self._sockets.values()):
                with suppress(BlockingIOError):
                    while True:
                        with suppress(ConnectionError):
                            sock.recv(LARGEST)
                            self.swallowed += 1
        self._holed = now

    def hole(self, seconds: float) -> float:
        """When it was over."""
        self.holed = True
        time.sleep(seconds)
        self.holed = False
        return time.monotonic()

    def _added(self) -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
        self._sockets[sock.fileno()] = sock
        self._epoll.register(sock, select.EPOLLIN)
        return sock

    def _run(self) -> None:
        while not self._stopping.is_set():
            for descriptor, _ in self._epoll.poll(0.1):
                try:
                    data, source = self._sockets[descriptor].recvfrom(LARGEST)
                except (BlockingIOError, ConnectionError):
                    continue
                if self._holed or self._kept_back(descriptor):
                    self.swallowed += 1
                else:
                    self._pass_on(descriptor, data, source)

    def _kept_back(self, descriptor: int) -> bool:
        left = self.answers_left
        if left is None or descriptor not in self._client_of:
            return False
        self.answers_left = max(left - 1, 0)
        return left == 0

    def _pass_on(self, descriptor: int, data: bytes, source: Address) -> None:
        client = self._client_of.get(descriptor)
        if client is not None:
            inside = self._inside.get((descriptor, source))
            if inside is None:
                inside = self._inside[descriptor, source] = self._added()
                self._way_of[inside.fileno()] = (self._sockets[descriptor], source)
            inside.sendto(data, client)
        elif descriptor in self._way_of:
            outside, handler = self._way_of[descriptor]
            outside.sendto(data, handler)
        else:
            if source not in self._outside:
                self._outside[source] = self._added()
                self._client_of[self._outside[source].fileno()] = source
            self._outside[source].sendto(data, self._simulator)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(10)
        for sock in self._sockets.values():
            sock.close()
        self._epoll.close()
