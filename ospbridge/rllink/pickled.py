"""Reading a pickle without executing it: opcodes become inert records of names and arguments.

Nothing is imported, called or constructed but lists, tuples, dicts, numbers, texts and ``Record``. The opcodes are
those that pickle writes in protocols 2 to 5; text forms of protocol 0, persistent ids, extension codes and
out-of-band buffers are refused. Time and memory are bounded by the length of the bytes. Source: the opcodes'
description in Python's documentation of ``pickletools``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ospbridge.errors import RemoteProtocolError
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Name", "Record", "read_pickle"]

LARGEST_PICKLE: Final = 1024 * 1024
DEEPEST: Final = 1000
"""Open marks, which is how far containers are nested while they are written."""
LARGEST_MEMO: Final = 200_000
LONGEST_TEXT: Final = 256 * 1024
LONGEST_INTEGER: Final = 16
"""Bytes of an integer. Longer ones, as in the states of random generators, are no setting, and become a Record."""
HIGHEST_PROTOCOL: Final = 5
HINT: Final = "the learner's settings can be given by hand instead of being read"

_Key = str | int | float | bool | bytes | None


@dataclass(frozen=True, slots=True, eq=False)
class Name:
    """A class or function by name. It is not looked up."""

    module: str
    name: str


INTEGER: Final = Name("builtins", "int")


@dataclass(slots=True, eq=False)
class Record:
    """An object that would have been made by calling ``maker`` with ``arguments``, and what was then put into it."""

    maker: Any
    arguments: Any
    state: Any = None
    items: dict[_Key, Any] = field(default_factory=dict)
    entries: list[Any] = field(default_factory=list)


class _Bad(Exception):
    """Not a pickle that is read here."""


def read_pickle(data: bytes, *, largest: int = LARGEST_PICKLE) -> Any:
    """The inert tree of a pickle. Raises RemoteProtocolError for anything else, with the offset."""
    if len(data) > largest:
        raise RemoteProtocolError(
            f"expected a pickle of at most {largest} bytes, got {len(data)}",
            data=data[:48],
            offset=0,
            hint=HINT,
        )
    reader = _Reader(data)
    try:
        return reader.read()
    except _Bad as error:
        told = str(error)
    except IndexError:
        told = "expected something on the stack, it is empty"
    except UnicodeDecodeError:
        told = "expected text in UTF-8"
    raise RemoteProtocolError(f"reading a pickle: {told}", data=data, offset=reader.began, hint=HINT)


_INT32: Final = struct.Struct("<i")
_UINT16: Final = struct.Struct("<H")
_UINT32: Final = struct.Struct("<I")
_UINT64: Final = struct.Struct("<Q")
_FLOAT: Final = struct.Struct(">d")
_MARK: Final = object()


class _Reader:
    """The machine that a pickle is a program for, with nothing in it that could do harm."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.place = 0
        self.began = 0
        """Where the opcode at hand stands."""
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.marks = 0
        self.stopped = False

    def read(self) -> Any:
        while not self.stopped:
            self.began = self.place
            if self.place >= len(self.data):
                raise _Bad("expected a STOP, the pickle ends")
            opcode = self.data[self.place]
            self.place += 1
            action = _OPCODES.get(opcode)
            if action is None:
                raise _Bad(f"opcode 0x{opcode:02x} is not read")
            action(self)
        if len(self.stack) != 1 or self.stack[0] is _MARK:
            raise _Bad(f"expected one object at STOP, there are {len(self.stack)}")
        return self.stack[0]

    # --- bytes -----------------------------------------------------------------------------------------------------

    def take(self, length: int) -> bytes:
        if length > len(self.data) - self.place:
            raise _Bad(f"expected {pluralize(length, 'byte')}, {len(self.data) - self.place} are left")
        taken = self.data[self.place : self.place + length]
        self.place += length
        return taken

    def number(self, layout: struct.Struct) -> Any:
        return layout.unpack(self.take(layout.size))[0]

    def line(self) -> str:
        end = self.data.find(b"\n", self.place, self.place + LONGEST_TEXT)
        if end < 0:
            raise _Bad("expected a line of text")
        text = self.data[self.place : end].decode()
        self.place = end + 1
        return text

    # --- the stack -------------------------------------------------------------------------------------------------

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise _Bad("expected an object on the stack, there is a mark")
        return value

    def top(self) -> Any:
        value = self.stack[-1]
        if value is _MARK:
            raise _Bad("expected an object on the stack, there is a mark")
        return value

    def mark(self) -> None:
        if self.marks >= DEEPEST:
            raise _Bad(f"nested deeper than {DEEPEST}")
        self.marks += 1
        self.stack.append(_MARK)

    def to_mark(self) -> list[Any]:
        """What lies above the last mark, taken off together with it."""
        values = []
        while (value := self.stack.pop()) is not _MARK:
            values.append(value)
        self.marks -= 1
        values.reverse()
        return values

    def remember(self, index: int) -> None:
        if len(self.memo) >= LARGEST_MEMO:
            raise _Bad(f"more than {LARGEST_MEMO} objects are to be remembered")
        self.memo[index] = self.top()

    def recall(self, index: int) -> None:
        if index not in self.memo:
            raise _Bad(f"object {index} was never remembered")
        self.stack.append(self.memo[index])

    # --- what needs more than a line -------------------------------------------------------------------------------

    def protocol(self) -> None:
        version = self.take(1)[0]
        if version > HIGHEST_PROTOCOL:
            raise _Bad(f"expected a protocol up to {HIGHEST_PROTOCOL}, got {version}")

    def text(self, length: int) -> None:
        if length > LONGEST_TEXT:
            raise _Bad(f"a text of {length} bytes is longer than {LONGEST_TEXT}")
        text = self.take(length).decode("utf-8", "surrogatepass")
        # Half of a pair of surrogates is no character, and whoever shows the text could not write it.
        self.stack.append(text.encode("utf-8", "replace").decode())

    def integer(self, length: int) -> None:
        if length < 0:
            raise _Bad(f"an integer of {length} bytes")
        data = self.take(length)
        short = length <= LONGEST_INTEGER
        self.stack.append(int.from_bytes(data, "little", signed=True) if short else Record(INTEGER, (data,)))

    def tuple_of(self, count: int) -> None:
        values = [self.pop() for _ in range(count)]
        self.stack.append(tuple(reversed(values)))

    def name(self) -> None:
        name, module = self.pop(), self.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise _Bad("expected a module and a name, both as text")
        self.stack.append(Name(module, name))

    def make(self, *, keywords: bool = False) -> None:
        named = self.pop() if keywords else None
        arguments = self.pop()
        maker = self.pop()
        self.stack.append(Record(maker, (arguments, named) if keywords else arguments))

    def make_from_mark(self) -> None:
        values = self.to_mark()
        if not values:
            raise _Bad("expected a class above the mark")
        self.stack.append(Record(values[0], tuple(values[1:])))

    def build(self) -> None:
        state = self.pop()
        target = self.top()
        if not isinstance(target, Record):
            raise _Bad("expected an object to give a state to")
        target.state = state

    def append(self, values: list[Any]) -> None:
        target = self.top()
        if isinstance(target, Record):
            target = target.entries
        if not isinstance(target, list):
            raise _Bad("expected a list to append to")
        target.extend(values)

    def set_items(self, values: list[Any]) -> None:
        """Items are left out whose keys are no plain values, or integers beyond 64 bits.

        To compare the former can take for ever, and of the latter any number may have one hash.
        """
        if len(values) % 2:
            raise _Bad("expected keys and values in pairs")
        target = self.top()
        if isinstance(target, Record):
            target = target.items
        if not isinstance(target, dict):
            raise _Bad("expected a dict to put items into")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if isinstance(key, int) and key.bit_length() > 64:
                continue
            if key is None or isinstance(key, (str, int, float, bytes)):
                target[key] = value

    def dict_from_mark(self) -> None:
        values = self.to_mark()
        self.stack.append({})
        self.set_items(values)

    def stop(self) -> None:
        self.stopped = True


def _fixed(value: Any) -> Callable[[_Reader], None]:
    return lambda reader: reader.stack.append(value)


def _pair(reader: _Reader) -> list[Any]:
    value, key = reader.pop(), reader.pop()
    return [key, value]


def _named(reader: _Reader) -> None:
    reader.stack += (reader.line(), reader.line())
    reader.name()


def _bytes(layout: struct.Struct) -> Callable[[_Reader], None]:
    return lambda reader: reader.stack.append(reader.take(reader.number(layout)))


def _text(layout: struct.Struct) -> Callable[[_Reader], None]:
    return lambda reader: reader.text(reader.number(layout))


def _number(layout: struct.Struct) -> Callable[[_Reader], None]:
    return lambda reader: reader.stack.append(reader.number(layout))


_UINT8: Final = struct.Struct("<B")
_OPCODES: Final[dict[int, Callable[[_Reader], Any]]] = {
    0x80: _Reader.protocol,
    0x95: lambda reader: reader.take(8),  # a frame says only how long it is
    ord("."): _Reader.stop,
    ord("("): _Reader.mark,
    ord("0"): _Reader.pop,
    ord("1"): _Reader.to_mark,
    ord("2"): lambda reader: reader.stack.append(reader.top()),
    # values
    ord("N"): _fixed(None),
    0x88: _fixed(True),
    0x89: _fixed(False),
    ord("J"): _number(_INT32),
    ord("K"): _number(_UINT8),
    ord("M"): _number(_UINT16),
    ord("G"): _number(_FLOAT),
    0x8A: lambda reader: reader.integer(reader.number(_UINT8)),
    0x8B: lambda reader: reader.integer(reader.number(_INT32)),
    ord("X"): _text(_UINT32),
    0x8C: _text(_UINT8),
    0x8D: _text(_UINT64),
    ord("B"): _bytes(_UINT32),
    ord("C"): _bytes(_UINT8),
    0x8E: _bytes(_UINT64),
    0x96: _bytes(_UINT64),
    # containers
    ord(")"): _fixed(()),
    ord("t"): lambda reader: reader.stack.append(tuple(reader.to_mark())),
    0x85: lambda reader: reader.tuple_of(1),
    0x86: lambda reader: reader.tuple_of(2),
    0x87: lambda reader: reader.tuple_of(3),
    ord("]"): lambda reader: reader.stack.append([]),
    ord("l"): lambda reader: reader.stack.append(reader.to_mark()),
    ord("a"): lambda reader: reader.append([reader.pop()]),
    ord("e"): lambda reader: reader.append(reader.to_mark()),
    ord("}"): lambda reader: reader.stack.append({}),
    ord("d"): _Reader.dict_from_mark,
    ord("s"): lambda reader: reader.set_items(_pair(reader)),
    ord("u"): lambda reader: reader.set_items(reader.to_mark()),
    0x8F: lambda reader: reader.stack.append([]),  # a set, as the list of its members
    0x90: lambda reader: reader.append(reader.to_mark()),
    0x91: lambda reader: reader.stack.append(tuple(reader.to_mark())),
    # objects
    ord("c"): _named,
    0x93: _Reader.name,
    ord("R"): _Reader.make,
    0x81: _Reader.make,
    0x92: lambda reader: reader.make(keywords=True),
    ord("o"): _Reader.make_from_mark,
    ord("b"): _Reader.build,
    # what was seen before
    0x94: lambda reader: reader.remember(len(reader.memo)),
    ord("q"): lambda reader: reader.remember(reader.number(_UINT8)),
    ord("r"): lambda reader: reader.remember(reader.number(_UINT32)),
    ord("h"): lambda reader: reader.recall(reader.number(_UINT8)),
    ord("j"): lambda reader: reader.recall(reader.number(_UINT32)),
}
