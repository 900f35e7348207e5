"""What happens to a machine, as bytes: how it stands, then datagrams or chunks, each with a byte of its own.

Any bytes are a script. What mutates one knows its pieces, so that a bent length does not make noise of all the rest.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.fuzz.mutating import Mutate, bend

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


def read(data: bytes) -> tuple[int, list[Piece]]:
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
        how, pieces = read(data)
        _, strange = read(chance.choice(others))
        for _ in range(chance.choice((1, 1, 2, 2, 3, 5))):
            if not pieces:
                pieces = strange[:] or [Piece(0, b"")]
            at = chance.randrange(len(pieces))
            way = chance.randrange(12)
            if way == 0:
                del pieces[at]
            elif way == 1:
                pieces[at:at] = [pieces[at]] * chance.choice((1, 1, 2, 20))
            elif way == 2:
                other = chance.randrange(len(pieces))
                pieces[at], pieces[other] = pieces[other], pieces[at]
            elif way == 3 and strange:
                pieces.insert(at, chance.choice(strange))
            elif way == 4:
                how = chance.randrange(256)
            elif way == 5:
                pieces[at] = Piece(chance.randrange(256), pieces[at].data)
            elif way == 6:
                pieces = pieces[:at] + strange
            else:
                bytes_of = [piece.data for piece in (*pieces, *strange)]
                pieces[at] = Piece(pieces[at].how, bend_piece(chance, pieces[at].data, bytes_of))
        return written(how, pieces[:MOST_PIECES])

    return mutate
