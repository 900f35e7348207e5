"""What a fuzz target is, and bytes bent at random: what a damaged line, an older release or an enemy makes of them."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

_POWERS = (0, 1, 2, 3, 4, 6, 7, 8, 10, 12, 15, 16, 24, 30)
INTEGERS = (
    *(number for power in _POWERS for number in (2**power - 1, 2**power, -(2**power))),
    *(5, 100, 120, 250, 253, 254, 257, 300, 1000, -1000, 1022, 10**6, 2**31 - 1, -(2**31)),
)
"""Counts, lengths and ids that protocols stumble over."""
LARGE = (*INTEGERS, 2**31, 2**32 - 1, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**63))
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e-38, 3.4e38, float("inf"), float("-inf"), float("nan"))
LONGEST = 20_000
_DIGITS = re.compile(rb"-?\d+(?:\.\d+)?")

Mutate = Callable[[random.Random, bytes, Sequence[bytes]], bytes]
"""Makes a new input of one of the corpus, and of the others there."""


def _place(chance: random.Random, data: bytes, width: int = 4) -> int:
    """Where a value of ``width`` bytes may stand: behind a code, in steps of its width, more often than not."""
    room = max(len(data) - width, 0)
    if chance.random() < 0.7:
        return min(1 + chance.randrange(room // width + 1) * width, room)
    return chance.randint(0, room)


def _slice(chance: random.Random, data: bytes) -> tuple[int, int]:
    begin = chance.randint(0, len(data))
    return begin, min(len(data), begin + chance.choice((1, 2, 4, 4, 8, 32)))


def _overwritten(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Other bytes in the place of some: a number, what is nearly a length here, another input's, or any."""
    # In bytes or in values, or a little more or less.
    length = len(data) // chance.choice((1, 1, 4, 8)) + chance.randint(-2, 2)
    other = chance.choice(others)
    begin, end = _slice(chance, other)
    place = _place(chance, data)
    value = chance.choice(
        (
            *(struct.pack(form, chance.choice(INTEGERS)) for form in ("<i", "<i", ">i")),
            struct.pack("<i", length),
            struct.pack("<f", chance.choice(FLOATS)),
            other[begin:end],
            other[place : place + 4],
            chance.randbytes(1),
        )
    )
    return data[:place] + value + data[place + len(value) :]


def _lengthened(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """A part of it is there several times, not at all, or behind bytes that nobody sent."""
    begin, end = _slice(chance, data)
    strange = chance.randbytes(chance.choice((1, 2, 4, 9)))
    again = data[begin:end] * chance.choice((2, 3, 30, 300))
    return data[:begin] + chance.choice((b"", strange, again)) + data[end:]


def _spliced(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """It ends early, or goes on as another input."""
    other = chance.choice((b"", *others))
    place = chance.randint(0, len(data))
    # The same place of the other one, where fields of messages of one kind meet.
    return data[:place] + other[place if chance.random() < 0.5 else chance.randint(0, len(other)) :]


def _other_digits(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Another number where one is written in digits."""
    found = list(_DIGITS.finditer(data))
    if not found:
        return data
    begin, end = chance.choice(found).span()
    return data[:begin] + str(chance.choice((*LARGE, *FLOATS))).encode() + data[end:]


_WAYS = (*[_overwritten] * 6, *[_lengthened] * 3, *[_spliced] * 2, _other_digits)


def bend(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """``data`` with one to four things wrong with it."""
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 4))):
        data = chance.choice(_WAYS)(chance, data, others)
    return data[:LONGEST]


# --- trees of plain data -------------------------------------------------------------------------------------------

Tree = Any
"""Lists, maps, texts, numbers, bytes."""


LEAVES: tuple[Tree, ...] = (
    *(None, True, False, "", "x", "PING", b"", bytes(8), 1e300, -1.5),
    *([], {}, [[]], [{}], {"x": {}}),
)


def _changed(chance: random.Random, value: Tree, spare: Sequence[Tree]) -> Tree:
    """Another value in this one's place."""
    like: list[Tree] = []
    if isinstance(value, bool):
        like = [not value]
    elif isinstance(value, bytes):
        like = [bend(chance, value, (value,))]
    elif isinstance(value, int | float):
        like = [chance.choice((*LARGE, *FLOATS))]
    elif isinstance(value, list):
        at = chance.randint(0, len(value))
        like = [value[:at], value[at:], value + value[:at], [value], value[::-1]]
    if like and chance.random() < 0.6:
        return chance.choice(like)
    # As deep as it is now: a tree must not come to hold itself.
    return deepcopy(
        chance.choice((*spare, chance.choice(LEAVES), chance.choice(LEAVES), chance.choice(LARGE)))
    )


def _nodes(tree: Tree) -> Iterator[tuple[Any, Any]]:
    """Every container of ``tree`` with each of its keys."""
    keys = (
        list(tree) if isinstance(tree, dict) else range(min(len(tree), 30)) if isinstance(tree, list) else ()
    )
    for key in keys:
        yield tree, key
        yield from _nodes(tree[key])


def bend_tree(chance: random.Random, tree: Tree, spare: Sequence[Tree]) -> Tree:
    """``tree`` with one to three things wrong with it; it is changed where it stands. ``spare``: values to put in."""
    for _ in range(chance.choice((1, 1, 2, 3))):
        found = list(_nodes(tree))
        if not found:
            return chance.choice(LEAVES)
        holder, key = chance.choice(found)
        other_holder, other_key = chance.choice(found)
        way = chance.random()
        if way < 0.15:
            del holder[key]
        elif way < 0.25 and isinstance(holder, dict):
            holder[other_key if isinstance(other_holder, dict) else "x"] = holder.pop(key)
        else:
            holder[key] = _changed(chance, holder[key], [*spare, other_holder[other_key]])
    return tree


# --- lines of text -------------------------------------------------------------------------------------------------


def bend_lines(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """A text with lines that are lost, doubled, swapped or another's, or bent as bytes."""
    for _ in range(chance.choice((1, 1, 2, 3))):
        lines = data.splitlines(keepends=True) or [b"\n"]
        more = chance.choice(others).splitlines(keepends=True) or [b"\n"]
        at = chance.randrange(len(lines))
        key, equals, _ = lines[at].partition(b"=")
        lines[at : at + 1] = chance.choice(
            (
                [],
                [lines[at]] * 2,
                [lines[chance.randrange(len(lines))]],
                [chance.choice(more), lines[at]],
                # The value of one key for another.
                [key + equals + chance.choice(more).partition(b"=")[2] if equals else lines[at]],
                [_other_digits(chance, lines[at], others)],
                [bend(chance, lines[at], more)],
            )
        )
        data = b"".join(lines)
    return data[:LONGEST]


# --- scripts -------------------------------------------------------------------------------------------------------

# What happens to a machine, as bytes: how it stands, then datagrams or chunks, each with a byte of its own. Any bytes
# are a script. What mutates one knows its pieces, so that a bent length does not make noise of all the rest.

_HEAD = struct.Struct("<BH")
MOST_PIECES = 60


class Piece(NamedTuple):
    """``how``: when it comes, from whom; a machine's own business."""

    how: int
    data: bytes


def written(how: int, pieces: Iterable[Piece]) -> bytes:
    told = [bytes((how & 255,))]
    for piece in pieces:
        told += (_HEAD.pack(piece.how & 255, len(piece.data)), piece.data)
    return b"".join(told)


def read_script(data: bytes) -> tuple[int, list[Piece]]:
    """A last piece may be shorter than it says."""
    pieces = []
    place = 1
    while place + _HEAD.size <= len(data):
        how, length = _HEAD.unpack_from(data, place)
        place += _HEAD.size
        pieces.append(Piece(how, data[place : place + length]))
        place += length
    return (data[0] if data else 0), pieces


def bending(bend_piece: Mutate = bend) -> Mutate:
    """Mutates scripts: pieces are lost, doubled, late, another's, or bent by ``bend_piece``."""

    def mutate(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
        how, pieces = read_script(data)
        _, strange = read_script(chance.choice(others))
        for _ in range(chance.choice((1, 1, 2, 2, 3, 5))):
            if not pieces:
                pieces = strange[:] or [Piece(0, b"")]
            at = chance.randrange(len(pieces))
            piece = pieces[at]
            bytes_of = [each.data for each in (*pieces, *strange)]
            bent = Piece(piece.how, bend_piece(chance, piece.data, bytes_of))
            how = chance.choice((*[how] * 11, chance.randrange(256)))
            pieces[at : at + 1] = chance.choice(
                (
                    *([bent],) * 5,
                    [],
                    [piece] * chance.choice((2, 2, 3, 21)),
                    [chance.choice(pieces), piece],
                    [chance.choice(strange or pieces), piece],
                    [Piece(chance.randrange(256), piece.data)],
                    [piece, *strange],
                )
            )
        return written(how, pieces[:MOST_PIECES])

    return mutate


# --- targets -------------------------------------------------------------------------------------------------------

CORPUS = Path(__file__).parent / "corpus"
"""A directory a target: files as they are, or `.hex` with an input a line. In `recorded.hex` is the shortest input of
each shape that recordings of real peers and the examples of tests have, in `found.hex` what fuzzing found."""


@dataclass(frozen=True)
class Target:
    """``run`` takes any bytes and lets only bugs out: what it is documented to raise, it swallows itself."""

    name: str
    run: Callable[[bytes], None]
    mutate: Mutate = bend
    inputs: int = 20_000
    """How many an ordinary test run tries."""
    long: int = 1_000_000
    """How many the long check tries."""

    @cached_property
    def corpus(self) -> dict[str, bytes]:
        """By name: the lines of hexadecimal files, and other files as they are."""
        found: dict[str, bytes] = {}
        for path in sorted((CORPUS / self.name).iterdir()):
            if path.suffix != ".hex":
                found[path.name] = path.read_bytes()
                continue
            for number, line in enumerate(path.read_text().splitlines(), start=1):
                text = line.partition("#")[0].strip()
                if text or not line:
                    found[f"{path.name}:{number}"] = bytes.fromhex(text)
        return found
