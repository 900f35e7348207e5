"""Messages on a byte stream: each behind its length, eight ASCII digits.

What this module must not do: touch a socket. Observed on Ray 2.47.1 and 2.60.0: both read the header with ``int``,
so leading spaces are understood; both write more than eight digits for a body that is too long, and then misread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.errors import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["HEADER_LENGTH", "LARGEST_BODY", "LARGEST_TAKEN", "Deframer", "header"]

HEADER_LENGTH: Final = 8
LARGEST_BODY: Final = 99_999_999
"""The longest body, in bytes, that eight digits can announce."""
LARGEST_TAKEN: Final = 32 * 2**20
"""The longest that is taken from a peer unless more is asked for: what its objects take may be many times that."""


def header(length: int) -> bytes:
    """The eight digits in front of a body of ``length`` bytes. Raises LocalProtocolError for one too long."""
    if not 0 <= length <= LARGEST_BODY:
        raise LocalProtocolError(
            f"a message of {length} bytes does not fit RLlink's header, which ends at {LARGEST_BODY}",
            hint="send fewer steps in a message; `split` cuts a batch in time",
        )
    return b"%08d" % length


class Deframer:
    """The receiving half of a stream: chunks in, bodies out.

    A body is copied once, out of the chunks it came in, and grows only with what really arrived: an announced length
    allocates nothing. ``largest`` is our own limit of that length in bytes.
    """

    __slots__ = ("_announced", "_body", "_broken", "_header", "_largest")

    def __init__(self, *, largest: int = LARGEST_TAKEN) -> None:
        if not 0 < largest <= LARGEST_BODY:
            raise LocalProtocolError(
                f"the limit of a message must be between 1 and {LARGEST_BODY} bytes, got {largest}"
            )
        self._largest = largest
        self._header = bytearray()
        self._body = bytearray()
        self._announced: int | None = None
        self._broken: RemoteProtocolError | None = None

    @property
    def empty(self) -> bool:
        """Nothing was received that belongs to an unfinished message."""
        return self._announced is None and not self._header

    @property
    def held(self) -> int:
        """Bytes of an unfinished body."""
        return len(self._body)

    def unfinished(self) -> str:
        """What of a message is there, for the errors of who sees the stream end."""
        if self._announced is None:
            return f"{len(self._header)} of {HEADER_LENGTH} bytes of a header"
        return f"{len(self._body)} of {self._announced} bytes of a message"

    def bodies(self, data: bytes | bytearray | memoryview) -> Iterator[bytearray]:
        """The bodies that ``data`` completes, to be taken to the end. Each belongs to the caller.

        Raises RemoteProtocolError for a header that is no length or one above the limit, now and ever after.
        """
        if self._broken is not None:
            raise self._broken
        rest = memoryview(data)
        while rest:
            if self._announced is None:
                missing = HEADER_LENGTH - len(self._header)
                self._header += rest[:missing]
                rest = rest[missing:]
                if len(self._header) < HEADER_LENGTH:
                    return
                self._announced = self._length()
                self._header.clear()
            missing = self._announced - len(self._body)
            self._body += rest[:missing]
            rest = rest[missing:]
            if len(self._body) == self._announced:
                body, self._body, self._announced = self._body, bytearray(), None
                yield body

    def _length(self) -> int:
        head = bytes(self._header)
        digits = head.lstrip(b" ")
        if not digits.isdigit():
            self._broken = RemoteProtocolError(
                "expected the length of an RLlink message, eight ASCII digits",
                data=head,
                offset=0,
                hint="something else than RLlink speaks there, or a length was written with more than eight digits",
            )
            raise self._broken
        length = int(digits)
        if length > self._largest:
            self._broken = RemoteProtocolError(
                f"expected a message of at most {self._largest} bytes, {length} were announced",
                data=head,
                offset=0,
                hint="where the peer is trusted and its messages are that large, raise the limit: with "
                "--rllink-largest-message of the daemon, with --largest-message of other commands",
            )
            raise self._broken
        return length
