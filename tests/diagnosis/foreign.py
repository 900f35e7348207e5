"""A server of any manners on a socket of its own, for probes that must end."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

from ospbridge.interface import Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import Self

GREETING = b"\x06\x01\x01\x78"
"""What a NERD server answers to an INIT."""


class ForeignServer:
    """Answers each datagram with what ``manners`` makes of it, until the block ends."""

    def __init__(self, manners: Callable[[bytes], Iterable[bytes]]) -> None:
        self._manners = manners
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0.05)
        self.address = Endpoint(*self._socket.getsockname())
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self) -> None:
        while not self._over.is_set():
            try:
                data, peer = self._socket.recvfrom(65536)
            except (TimeoutError, ConnectionError):
                continue
            for answer in self._manners(data):
                if self._over.is_set():
                    return
                self._socket.sendto(answer, peer)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._socket.close()
