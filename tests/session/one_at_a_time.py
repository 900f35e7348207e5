"""A server with a single loop: while it has a client it does not look at its main port, where INITs wait their turn."""

from __future__ import annotations

import socket
import threading
from time import monotonic
from typing import TYPE_CHECKING, Final, Self

from ospbridge.interface import Endpoint
from ospbridge.osp.server.machine import CloseHandler, OpenHandler, ServerMachine

if TYPE_CHECKING:
    from ospbridge.osp.profile import Profile
    from ospbridge.osp.world import World

LARGEST: Final = 65_536
LOOK_EVERY: Final = 0.05
"""Seconds between looks at whether it is to stop."""


class OneAtATime:
    """Hosts ``world`` for one client after the other. A client that dies is waited for, for ever."""

    def __init__(self, world: World, profile: Profile) -> None:
        self.machine = ServerMachine(world, profile)
        self._main = self._bound()
        self._handler: socket.socket | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.address = Endpoint("127.0.0.1", self._main.getsockname()[1])

    def _bound(self) -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        return sock

    def _run(self) -> None:
        machine = self.machine
        while not self._stopping.is_set():
            due = machine.next_deadline()
            wait = LOOK_EVERY if due is None else min(max(due - monotonic(), 0.001), LOOK_EVERY)
            sock = self._handler or self._main
            sock.settimeout(wait)
            try:
                data, peer = sock.recvfrom(LARGEST)
            except (TimeoutError, ConnectionError):
                pass
            else:
                if sock is self._main:
                    machine.receive_main(data, peer, monotonic())
                else:
                    machine.receive(self._handler_id, data, monotonic())
            while (due := machine.next_deadline()) is not None and due <= monotonic():
                machine.handle_timer(monotonic())
            self._apply()

    def _apply(self) -> None:
        for effect in self.machine.take_effects():
            if isinstance(effect, OpenHandler):
                assert isinstance(effect.peer, tuple)
                self._handler_id = effect.handler_id
                self._handler = self._bound()
                self._handler.connect(effect.peer)
            elif isinstance(effect, CloseHandler):
                assert self._handler is not None
                self._handler.close()
                self._handler = None
            else:
                assert self._handler is not None
                self._handler.send(effect.data)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(10)
        self._main.close()
        if self._handler is not None:
            self._handler.close()
