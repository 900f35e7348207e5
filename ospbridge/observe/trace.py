"""Traces: every datagram of a session with its meaning, one JSON object a line.

A line is ``{"t": seconds since the start, "dir": "c>s" | "s>c" | "note", "hex", "port", "note", "client"}``; the port
is the server's. ``tests/osp/traces`` holds recordings of real peers in the same form. This module writes and reads
them, and says in words what a datagram means. It does no networking: sessions hand over what they sent and received.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final, Self

import msgspec
import numpy as np
import orjson

from ospbridge.errors import ConfigurationError, RemoteProtocolError
from ospbridge.observe.sole_writer import begun, ended, why_not
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import (
    REPLIES,
    REQUESTS,
    Init,
    InitAck,
    Message,
    RegisterForValueAck,
    Truncated,
    decode_reply,
    decode_request,
)
from ospbridge.osp.profile import PROFILES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

__all__ = ["Describer", "Direction", "TraceRecord", "TraceWriter", "describe", "read_trace"]

SHOWN_VALUES: Final = 8
SHOWN_CHARACTERS: Final = 80
LONGEST_LINE: Final = 1 << 20
"""Bytes. The largest datagram is 64 KiB, twice that in hex; what is longer is no trace."""
LATEST: Final = 1e12
"""Seconds, which is longer than anybody traces; what is computed of larger numbers may be none."""
_WHAT_IS_A_TRACE: Final = "a trace is what --trace FILE writes: one JSON object a line"


class Direction(StrEnum):
    """Who sent the datagram of a record."""

    CLIENT_TO_SERVER = "c>s"
    """A request, or an acknowledgement."""
    SERVER_TO_CLIENT = "s>c"
    """A reply, or what came unasked."""
    NOTE = "note"
    """Something worth knowing that is no datagram."""


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One line of a trace."""

    time: float
    """Seconds since the trace began."""
    direction: Direction
    """Who sent it."""
    data: bytes
    """The datagram; empty for a note."""
    port: int = 0
    """The server's."""
    note: str = ""
    """What it means, for people."""
    client: str = ""
    """Whose it is, where several write to one trace."""

    def encode(self) -> bytes:
        """The line, with its end. Characters that UTF-8 cannot hold become question marks."""
        return orjson.dumps(
            {
                "t": round(self.time, 6),
                "dir": self.direction.value,
                "hex": self.data.hex(),
                "port": self.port,
                "note": _storable(self.note),
                "client": _storable(self.client),
            },
            option=orjson.OPT_APPEND_NEWLINE,
        )


def _storable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


# --- in words -------------------------------------------------------------------------------------------------------


def describe(data: bytes, direction: Direction, limit: int | None = None) -> str:
    """What a datagram means, in one printable line: ``NEXT_SIMULATION_STEP agent 1 inputs [0.1, 0.2]``.

    Long vectors and strings are shortened. What does not decode is described by its error; nothing is raised for it.
    ``limit`` is the length at which the server cuts its datagrams.
    """
    if direction is Direction.NOTE:
        raise ValueError("a note has no datagram to describe")
    request = direction is Direction.CLIENT_TO_SERVER
    try:
        message = decode_request(data) if request else decode_reply(data, limit=limit)
    except RemoteProtocolError as error:
        known = data and data[0] in (REQUESTS if request else REPLIES)
        reason = error.message.rpartition(" [")[0]  # the bytes stand beside it in the record
        return f"malformed {Code(data[0]).name}: {reason}" if known else f"garbage: {reason}"
    if not isinstance(message, Truncated):
        return _in_words(message)
    if message.announced is None:
        return f"{_in_words(message.message)} (cut by the server at {message.received} bytes)"
    return (
        f"{_in_words(message.message)} "
        f"(cut by the server: {message.received} of {message.announced} values arrived)"
    )


class Describer:
    """Describes the datagrams of a conversation one after the other, and learns from them where servers cut.

    Which kind of server answers at a port is told by the form of its INIT_ACK; that kind's profile knows the limit.
    """

    def __init__(self) -> None:
        self._limits: dict[int, int | None] = {}

    def __call__(self, data: bytes, direction: Direction, port: int) -> str:
        """As ``describe``, for the server's ``port``."""
        if direction is Direction.SERVER_TO_CLIENT and data[:1] == _INIT_ACK:
            self._learn(data, port)
        return describe(data, direction, self._limits.get(port))

    def _learn(self, data: bytes, port: int) -> None:
        try:
            form = InitAck.decode(data).form
        except RemoteProtocolError:
            return
        self._limits[port] = next(
            (profile.datagram_limit for profile in PROFILES.values() if profile.init_form is form), None
        )


_INIT_ACK: Final = bytes((Code.INIT_COMMUNICATION_ACK,))
_LABELS: Final = {"agent_id": "agent", "event_id": "event", "value_id": "value"}
_ONLY_WHERE_THERE: Final = {"infos", "events", "observed"}
"""Parts of a completion that most have none of."""


_CONTENTS: Final = {
    code: tuple((name, _LABELS.get(name, name)) for name, _ in kind.LAYOUT)
    for code, kind in (REQUESTS | REPLIES).items()
}
"""By code, the fields that carry content, with the word for each."""


def _in_words(message: Message) -> str:
    if isinstance(message, Init | InitAck):
        return f"{message.CODE.name} {message.major}.{message.minor} in {message.form.value}"
    words = [message.CODE.name]
    optional = _ONLY_WHERE_THERE if message.CODE is Code.NEXT_SIMULATION_STEP_COMPLETED else ()
    for name, label in _CONTENTS[message.CODE]:
        value = getattr(message, name)
        if name in optional and not (value if isinstance(value, int) else len(value)):
            continue
        words += (label, _value_in_words(value))
    if isinstance(message, RegisterForValueAck) and not message.counted:
        words.append("without a count")
    return " ".join(words)


def _value_in_words(value: object) -> str:
    if isinstance(value, str):
        return _string_in_words(value)
    if isinstance(value, float):
        return _number_in_words(value)
    if isinstance(value, np.ndarray):
        return _vector_in_words(len(value), value[:SHOWN_VALUES].tolist())
    if isinstance(value, tuple):
        return _vector_in_words(len(value), value[:SHOWN_VALUES])
    return str(value)


def _string_in_words(text: str) -> str:
    if len(text) <= SHOWN_CHARACTERS:
        return ascii(text)
    return f"{text[:SHOWN_CHARACTERS]!a} and {len(text) - SHOWN_CHARACTERS} characters more"


def _number_in_words(value: float) -> str:
    return f"{value:.7g}"  # as many digits as a 32-bit float has; one more would show its rounding


def _vector_in_words(length: int, first: Sequence[object]) -> str:
    if length > SHOWN_VALUES:
        first = first[: SHOWN_VALUES - 2]
    shown = [_number_in_words(value) if isinstance(value, float) else str(value) for value in first]
    if length > SHOWN_VALUES:
        shown.append(f"... {length - len(first)} more")
    return f"[{', '.join(shown)}]"


# --- writing --------------------------------------------------------------------------------------------------------


class TraceWriter:
    """Writes the datagrams of one client to a file, each as soon as it is told of.

    Each record is one unbuffered write, so that whatever ends the process, what was told before it is in the file.
    There is no thread and no timer: between datagrams a trace costs nothing. A disk that fills up ends the trace with
    a warning in the log, never the session. An existing file is replaced, but not while another trace is written there.
    """

    def __init__(self, path: str | os.PathLike[str], client: str = "") -> None:
        self.path = Path(path)
        self.client = client
        self._describe = Describer()
        self._start = time.monotonic()
        try:
            self._file: BinaryIO | None = begun(self.path)
        except OSError as error:
            raise ConfigurationError(
                f"cannot write a trace to {self.path}: {why_not(error)}",
                hint="name a file in a directory that exists and may be written to, for each trace its own",
            ) from None

    def sent(self, data: bytes, port: int) -> None:
        """The client sent ``data`` to the server's ``port``."""
        self._datagram(data, Direction.CLIENT_TO_SERVER, port)

    def received(self, data: bytes, port: int) -> None:
        """The client received ``data`` from the server's ``port``."""
        self._datagram(data, Direction.SERVER_TO_CLIENT, port)

    def note(self, text: str) -> None:
        """Something worth knowing that is no datagram."""
        self._write(Direction.NOTE, b"", 0, text)

    def close(self) -> None:
        """End the trace. What is told afterwards is not written; closing twice does no harm."""
        file, self._file = self._file, None
        if file is not None:
            ended(file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _datagram(self, data: bytes, direction: Direction, port: int) -> None:
        if self._file is not None:
            self._write(direction, data, port, self._describe(data, direction, port))

    def _write(self, direction: Direction, data: bytes, port: int, note: str) -> None:
        if self._file is None:
            return
        record = TraceRecord(time.monotonic() - self._start, direction, data, port, note, self.client)
        rest = memoryview(record.encode())
        try:
            while rest:
                # A disk that fills up takes a part, and says no to the rest: what came behind a part could not be read.
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self.close()
            from ospbridge.observe import logs

            logs.get(__name__).warning("trace ended", path=str(self.path), reason=error.strerror)


# --- reading --------------------------------------------------------------------------------------------------------


class _Line(msgspec.Struct):
    t: Annotated[float, msgspec.Meta(ge=-LATEST, le=LATEST)]
    dir: Direction
    hex: str = ""
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0
    note: str = ""
    client: str = ""


_LINE: Final = msgspec.json.Decoder(_Line)


TOLD_EVERY: Final = 5000
"""Lines; a shorter trace is read in a moment."""


def read_trace(
    path: str | os.PathLike[str], progress: Callable[[int, int], None] = lambda *_: None
) -> Iterator[TraceRecord]:
    """The records of a trace, one by one. Raises ConfigurationError with file and line for what is none.

    A last line without its end, as a killed or still running writer leaves it, is told as a note.
    ``progress(done, of)`` is told in bytes of a long one, now and then; not of a pipe, whose end nobody knows.
    """
    now = 0.0
    try:
        with Path(path).open("rb") as file:
            number = 0
            size = os.fstat(file.fileno()).st_size if file.seekable() else 0
            while line := file.readline(LONGEST_LINE):
                number += 1
                if line.isspace() and len(line) < LONGEST_LINE:
                    continue
                try:
                    record = _parse(line)
                except ValueError as error:
                    if not line.endswith(b"\n") and len(line) < LONGEST_LINE and number > 1:
                        text = "the last line is incomplete: its writer was stopped, or has not finished it"
                        yield TraceRecord(now, Direction.NOTE, b"", note=text)
                        return
                    raise ConfigurationError(
                        f"{path}:{number}: expected a record of a trace, got {line[:40]!r}: {error}",
                        hint=_WHAT_IS_A_TRACE,
                    ) from None
                now = record.time
                if size and number % TOLD_EVERY == 0:
                    progress(min(file.tell(), size), size)
                yield record
    except OSError as error:
        raise ConfigurationError(
            f"cannot read the trace {path}: {error.strerror}", hint=_WHAT_IS_A_TRACE
        ) from None


def _parse(line: bytes) -> TraceRecord:
    """Raises ValueError for what is no record, in whatever way."""
    if len(line) == LONGEST_LINE:
        raise ValueError(f"the line is longer than {LONGEST_LINE} bytes")
    try:
        parsed = _LINE.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    try:
        data = bytes.fromhex(parsed.hex)
    except ValueError:
        raise ValueError("the datagram in `hex` is not written in pairs of hexadecimal digits") from None
    return TraceRecord(parsed.t, parsed.dir, data, parsed.port, parsed.note, parsed.client)
