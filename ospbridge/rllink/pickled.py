"""Reading a pickle without executing it: opcodes become inert records of names and arguments.

Nothing is imported, called or constructed but lists, tuples, dicts, numbers, texts and ``Record``.
``pickletools`` takes the bytes apart. The opcodes are those that pickle writes in protocols 2 to 5; text forms of
protocol 0, persistent ids, extension codes and out-of-band buffers are refused. Time and memory are bounded by the
length of the bytes.
"""

from __future__ import annotations

import io
import pickletools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ospbridge.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Name", "Record", "read_pickle"]

LARGEST_PICKLE: Final = 1024 * 1024
MOST_OPCODES: Final = 50_000
"""Settings of RLlib have some 1,600."""
HIGHEST_PROTOCOL: Final = 5
HINT: Final = "the learner's settings can be given by hand instead of being read"

_Key = str | int | float | bool | bytes | None


@dataclass(frozen=True, slots=True, eq=False)
class Name:
    """A class or function by name. It is not looked up."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(slots=True, eq=False)
class Record:
    """An object that would have been made by calling ``maker`` with ``arguments``, and what was then put into it."""

    maker: Any
    arguments: Any
    state: Any = None
    items: dict[_Key, Any] = field(default_factory=dict)
    entries: list[Any] = field(default_factory=list)


def read_pickle(data: bytes, *, largest: int = LARGEST_PICKLE) -> Any:
    """The inert tree of a pickle. Raises RemoteProtocolError for anything else, with the offset."""
    if len(data) > largest:
        told = f"expected a pickle of at most {largest} bytes, got {len(data)}"
        raise RemoteProtocolError(told, data=data[:48], offset=0, hint=HINT)
    stream = io.BytesIO(data)
    stack = _Stack()
    place = 0
    try:
        while stack.run(stream):
            place = stream.tell()
        return stack.only()
    except ValueError as error:
        told = str(error)
    except IndexError:
        told = "expected something on the stack, it is empty"
    raise RemoteProtocolError(f"reading a pickle: {told}", data=data, offset=place, hint=HINT)


class _Bad(ValueError):
    """Not a pickle that is read here."""


_MARK: Final = object()


class _Stack:
    """The machine that a pickle is a program for, with nothing in it that could do harm."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.opcodes = 0

    def run(self, stream: io.BytesIO) -> bool:
        """The next opcode; False for the last one. Raises ValueError, and IndexError where the stack is empty."""
        code = stream.read(1)
        if not code:
            raise _Bad("expected a STOP, the pickle ends")
        self.opcodes += 1
        if self.opcodes > MOST_OPCODES:
            raise _Bad(f"more than {MOST_OPCODES} opcodes")
        if code not in _BY_CODE:
            raise _Bad(f"opcode 0x{code.hex()} is not read")
        argument, action = _BY_CODE[code]
        action(self, None if argument is None else argument.reader(stream))
        return code != b"."

    def only(self) -> Any:
        """What is left at the end."""
        value = self.pop()
        if self.stack:
            raise _Bad(f"expected one object at STOP, there are {len(self.stack) + 1}")
        return value

    def top(self) -> Any:
        value = self.stack[-1]
        if value is _MARK:
            raise _Bad("expected an object on the stack, there is a mark")
        return value

    def pop(self) -> Any:
        self.top()
        return self.stack.pop()

    def last(self, count: int) -> tuple[Any, ...]:
        return tuple(reversed([self.pop() for _ in range(count)]))

    def to_mark(self) -> list[Any]:
        """What lies above the last mark, taken off together with it."""
        values = []
        while (value := self.stack.pop()) is not _MARK:
            values.append(value)
        values.reverse()
        return values

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def protocol(self, version: int) -> None:
        if version > HIGHEST_PROTOCOL:
            raise _Bad(f"expected a protocol up to {HIGHEST_PROTOCOL}, got {version}")

    def remember(self, index: int | None) -> None:
        self.memo[len(self.memo) if index is None else index] = self.top()

    def recall(self, index: int) -> None:
        if index not in self.memo:
            raise _Bad(f"object {index} was never remembered")
        self.stack.append(self.memo[index])

    def name(self, text: str) -> None:
        module, _, name = text.partition(" ")
        self.stack.append(Name(module, name))

    def name_on_stack(self, _: None) -> None:
        name, module = self.pop(), self.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise _Bad("expected a module and a name, both as text")
        self.stack.append(Name(module, name))

    def make(self, _: None) -> None:
        arguments, maker = self.pop(), self.pop()
        self.stack.append(Record(maker, arguments))

    def make_with_keywords(self, _: None) -> None:
        named, arguments, maker = self.pop(), self.pop(), self.pop()
        self.stack.append(Record(maker, (arguments, named)))

    def make_from_mark(self, _: None) -> None:
        maker, *arguments = self.to_mark()
        self.stack.append(Record(maker, tuple(arguments)))

    def build(self, _: None) -> None:
        state, target = self.pop(), self.top()
        if not isinstance(target, Record):
            raise _Bad("expected an object to give a state to")
        target.state = state

    def append(self, values: list[Any]) -> None:
        target = self.top()
        entries = target.entries if isinstance(target, Record) else target
        if not isinstance(entries, list):
            raise _Bad("expected a list to append to")
        entries.extend(values)

    def set_items(self, values: list[Any]) -> None:
        """Items are left out whose keys are no plain values, or integers beyond 64 bits.

        To compare the former can take for ever, and of the latter any number may have one hash.
        """
        target = self.top()
        items = target.items if isinstance(target, Record) else target
        if not isinstance(items, dict) or len(values) % 2:
            raise _Bad("expected a dict, and keys and values in pairs")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if isinstance(key, int) and key.bit_length() > 64:
                continue
            if key is None or isinstance(key, (str, int, float, bytes)):
                items[key] = value

    def dict_from_mark(self, _: None) -> None:
        values = self.to_mark()
        self.stack.append({})
        self.set_items(values)


def _text(stack: _Stack, value: str) -> None:
    """Half of a pair of surrogates is no character, and whoever shows the text could not write it."""
    stack.push(value.encode("utf-8", "replace").decode())


_ACTIONS: Final[dict[str, Callable[[_Stack, Any], Any]]] = {
    "PROTO": _Stack.protocol,
    # a frame says only how long it is
    **dict.fromkeys(("FRAME", "STOP"), lambda _, argument: argument),
    "MARK": lambda stack, _: stack.push(_MARK),
    "POP": lambda stack, _: stack.pop(),
    "POP_MARK": lambda stack, _: stack.to_mark(),
    "DUP": lambda stack, _: stack.push(stack.top()),
    # values
    **dict.fromkeys(("NONE", "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"), _Stack.push),
    "NEWTRUE": lambda stack, _: stack.push(True),
    "NEWFALSE": lambda stack, _: stack.push(False),
    **dict.fromkeys(("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"), _text),
    **dict.fromkeys(("SHORT_BINBYTES", "BINBYTES", "BINBYTES8"), _Stack.push),
    "BYTEARRAY8": lambda stack, value: stack.push(bytes(value)),
    # containers; a set is the list of its members
    "EMPTY_TUPLE": lambda stack, _: stack.push(()),
    "TUPLE": lambda stack, _: stack.push(tuple(stack.to_mark())),
    "TUPLE1": lambda stack, _: stack.push(stack.last(1)),
    "TUPLE2": lambda stack, _: stack.push(stack.last(2)),
    "TUPLE3": lambda stack, _: stack.push(stack.last(3)),
    **dict.fromkeys(("EMPTY_LIST", "EMPTY_SET"), lambda stack, _: stack.push([])),
    "LIST": lambda stack, _: stack.push(stack.to_mark()),
    "FROZENSET": lambda stack, _: stack.push(tuple(stack.to_mark())),
    "APPEND": lambda stack, _: stack.append([stack.pop()]),
    **dict.fromkeys(("APPENDS", "ADDITEMS"), lambda stack, _: stack.append(stack.to_mark())),
    "EMPTY_DICT": lambda stack, _: stack.push({}),
    "DICT": _Stack.dict_from_mark,
    "SETITEM": lambda stack, _: stack.set_items([stack.pop(), stack.pop()][::-1]),
    "SETITEMS": lambda stack, _: stack.set_items(stack.to_mark()),
    # objects
    "GLOBAL": _Stack.name,
    "STACK_GLOBAL": _Stack.name_on_stack,
    **dict.fromkeys(("REDUCE", "NEWOBJ"), _Stack.make),
    "NEWOBJ_EX": _Stack.make_with_keywords,
    "OBJ": _Stack.make_from_mark,
    "BUILD": _Stack.build,
    # what was seen before
    **dict.fromkeys(("MEMOIZE", "BINPUT", "LONG_BINPUT"), _Stack.remember),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), _Stack.recall),
}
_BY_CODE: Final = {
    opcode.code.encode("latin-1"): (opcode.arg, _ACTIONS[opcode.name])
    for opcode in pickletools.opcodes
    if opcode.name in _ACTIONS
}
