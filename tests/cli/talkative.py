"""A simulator that says far too much: names that fill whole datagrams. It speaks raw OSP, as NERD servers do."""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from ospbridge.interface import Endpoint

READS_WITHIN: Final = 2.0
"""Seconds until a client that does not read is sent the next piece all the same."""
END: Final = b"\x78"
INIT: Final = b"\x05\x01\x01" + END
STEERS: Final = "\x1b]0;\u202e".encode()
"""What would set a terminal's title and turn the direction of writing, if it was shown as it is."""


SHORT: Final = 1000
"""Bytes of a datagram that needs no room made for it."""


def _unread(port: int) -> bool:
    """Whether something waits in the receive buffer of that port, as the system says."""
    lines = Path("/proc/net/udp").read_text().splitlines()[1:]
    queues = [fields[4] for fields in map(str.split, lines) if fields[1].endswith(f":{port:04X}")]
    return any(int(queue.partition(":")[2], 16) for queue in queues)


class TalkativeServer:
    """Offers so many ``agents``, all of them ``free`` or taken, each with so many ``inputs``.

    ``name`` and ``input_name`` are the bytes of what they are called, control characters among them, and a number
    behind them. Whoever asks for a list gets all of it, one datagram a piece.
    """

    def __init__(
        self, agents: int, *, name: int = 7, inputs: int = 1, input_name: int = 7, free: bool
    ) -> None:
        self._agents = agents
        self._name = STEERS + b"A" * (name - len(STEERS))
        self._inputs = inputs
        self._input_name = STEERS + b"I" * (input_name - len(STEERS))
        self._free = free
        self._sockets: list[socket.socket] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.lists = 0
        """Lists that were begun."""
        self.address = Endpoint("127.0.0.1", self._bound().getsockname()[1])

    def _bound(self) -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self._sockets.append(sock)
        return sock

    def _run(self) -> None:
        while not self._stopping.is_set():
            for sock in select.select(self._sockets, [], [], 0.02)[0]:
                with suppress(ConnectionError):
                    data, client = sock.recvfrom(65_536)
                    handler = self._bound() if data == INIT else sock
                    for answer in self._answers(data):
                        if len(answer) > SHORT:
                            self._await_room(client[1])
                        handler.sendto(answer + END, client)

    def _await_room(self, port: int) -> None:
        """Until the client has read all: a receive buffer takes few datagrams of this size."""
        until = time.monotonic() + READS_WITHIN
        while _unread(port) and not self._stopping.is_set() and time.monotonic() < until:
            time.sleep(0.0002)

    def _answers(self, data: bytes) -> Iterator[bytes]:
        code = data[0]
        agent = data[1:5]
        if data == INIT:
            yield b"\x06\x01\x01"
        elif code == 90:
            yield b"\x5b" + struct.pack("<i", self._agents)
            yield from self._pieces(92, self._agents, self._agent)
        elif code == 95:
            yield b"\x60" + agent + struct.pack("<iii", self._inputs, 0, 0) + b"type\x00"
            yield from self._pieces(98, self._inputs, self._input)
        elif code in (100, 105):
            yield bytes([code + 1]) + agent + bytes([self._free])
        elif code == 40:
            yield b"\x29" + struct.pack("<i", 0)
        elif code in (7, 10):
            yield bytes([code + 1])

    def _pieces(self, code: int, count: int, piece: Callable[[int], bytes]) -> Iterator[bytes]:
        self.lists += 1
        for at in range(count):
            if self._stopping.is_set():
                return
            yield bytes([code]) + struct.pack("<i", at) + piece(at)

    def _agent(self, at: int) -> bytes:
        return struct.pack("<i", at + 1) + b"type\x00%c%b%d\x00" % (self._free, self._name, at)

    def _input(self, at: int) -> bytes:
        return struct.pack("<ff", -1.0, 1.0) + b"%b%d\x00" % (self._input_name, at)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(10)
        for sock in self._sockets:
            sock.close()
