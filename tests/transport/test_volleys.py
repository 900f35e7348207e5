"""Several datagrams in one call: they arrive as if each had been sent by itself, or are sent by themselves."""

from __future__ import annotations

import errno
import socket
import sys
from typing import TYPE_CHECKING, Any

import pytest

from ospbridge.transport.volleys import MOST, NOT_HERE, Volleys

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = pytest.mark.loopback


class Line:
    """A connected socket whose calls are counted, and the one that it sends to."""

    def __init__(self, family: socket.AddressFamily = socket.AF_INET) -> None:
        self.receiver = socket.socket(family, socket.SOCK_DGRAM)
        self.receiver.bind(("127.0.0.1" if family == socket.AF_INET else "::1", 0))
        self.receiver.setblocking(False)
        self._sender = socket.socket(family, socket.SOCK_DGRAM)
        self._sender.connect(self.receiver.getsockname())
        self.alone = 0
        self.together = 0
        self.refused: OSError | None = None
        """What a call for several is answered with."""

    def send(self, data: Any, flags: int) -> int:
        self.alone += 1
        return self._sender.send(data, flags)

    def sendmsg(self, buffers: Any, control: Any, flags: int) -> int:
        self.together += 1
        if self.refused is not None:
            raise self.refused
        return self._sender.sendmsg(buffers, control, flags)

    def getsockopt(self, level: int, option: int) -> int:
        return self._sender.getsockopt(level, option)

    def volleys(self) -> Volleys:
        return Volleys(self)  # type: ignore[arg-type]  # as far as it is one

    def sent(self, volleys: Volleys, datagrams: Sequence[bytes | bytearray]) -> list[bytes]:
        """What arrives."""
        volleys.send(self, datagrams)  # type: ignore[arg-type]  # as far as it is one
        found = []
        while True:
            try:
                found.append(self.receiver.recv(65_536))
            except BlockingIOError:
                return found

    def close(self) -> None:
        self.receiver.close()
        self._sender.close()


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line()
    yield made
    made.close()


def datagrams(count: int, size: int) -> list[bytes | bytearray]:
    return [bytearray([number % 256]) * size for number in range(count)]


only_on_linux = pytest.mark.skipif(sys.platform != "linux", reason="UDP_SEGMENT is Linux's")


@only_on_linux
@pytest.mark.parametrize("count, size, calls", [(2, 6, 1), (MOST, 500, 1), (MOST + 1, 6, 2), (10, 20_000, 4)])
def test_those_of_one_size_arrive_one_by_one_in_order(line: Line, count: int, size: int, calls: int) -> None:
    wanted = datagrams(count, size)
    assert line.sent(line.volleys(), wanted) == wanted
    assert (line.together, line.alone) == (calls, 0)


@pytest.mark.parametrize(
    "wanted",
    [[], [b"a"], [b"a", b"bc"], [b"ab", b"ab", b"a"], [b"", b""], datagrams(2, 40_000)],
    ids=["none", "one", "longer", "shorter", "empty", "too long for two"],
)
def test_all_others_are_sent_by_themselves(line: Line, wanted: list[bytes | bytearray]) -> None:
    assert line.sent(line.volleys(), wanted) == wanted
    assert (line.together, line.alone) == (0, len(wanted))


@only_on_linux
@pytest.mark.parametrize("number", sorted(NOT_HERE), ids=errno.errorcode.get)
def test_where_the_way_does_not_allow_it_each_is_sent_once_by_itself_from_then_on(
    line: Line, number: int
) -> None:
    volleys = line.volleys()
    line.refused = OSError(number, "not here")
    for _ in range(2):
        assert line.sent(volleys, datagrams(5, 42)) == datagrams(5, 42)
    assert (line.together, line.alone) == (1, 10)
    assert not volleys.enabled
