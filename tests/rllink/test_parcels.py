"""Fragments on a disk: they come back as they were, and damage is found."""

from __future__ import annotations

import numpy as np
import pytest

from ospbridge.errors import ConfigurationError
from ospbridge.rllink.cutting import cut
from ospbridge.rllink.dialects import JSON, MSGPACK, Dialect
from ospbridge.rllink.fragments import EpisodeFragment
from ospbridge.rllink.framing import HEADER_LENGTH
from ospbridge.rllink.messages import Episodes
from ospbridge.rllink.parcels import packed_up, unpacked


def fragment(*, box: bool = True, notes: bool = True) -> EpisodeFragment:
    random = np.random.default_rng(1)
    steps = 7
    return EpisodeFragment(
        "an id",
        random.normal(size=(steps + 1, 3)).astype(np.float32),
        random.normal(size=(steps, 2)).astype(np.float32) if box else random.integers(0, 4, steps),
        random.normal(size=steps).astype(np.float32),
        truncated=True,
        action_dist_inputs=random.normal(size=(steps, 4)).astype(np.float32) if notes else None,
        action_logp=random.normal(size=steps).astype(np.float32) if notes else None,
        t_started=5,
        weights_seq_no=3,
        agent="räder/1",
        simulator="127.0.0.1:45454",
        choices=None if box else 4,
    )


def same(one: EpisodeFragment, other: EpisodeFragment) -> bool:
    for name in set(EpisodeFragment.__slots__) - {"written"}:
        mine, theirs = getattr(one, name), getattr(other, name)
        if isinstance(mine, np.ndarray):
            if mine.dtype != theirs.dtype or mine.shape != theirs.shape or mine.tobytes() != theirs.tobytes():
                return False
        elif mine != theirs:
            return False
    return True


def test_a_fragment_that_was_packed_up_is_sent_as_it_is_otherwise() -> None:
    before, after = fragment(box=True, notes=True), fragment(box=True, notes=True)
    packed_up(after)
    assert MSGPACK.encode(Episodes((before, after))) == MSGPACK.encode(Episodes((before, before)))
    assert JSON.encode(Episodes((before, after))) == JSON.encode(Episodes((before, before)))
    whole, pieces = (cut(one, 3, continued=True) for one in (before, after))
    assert MSGPACK.encode(Episodes(pieces)) == MSGPACK.encode(Episodes(whole))


@pytest.mark.parametrize("box", [True, False])
@pytest.mark.parametrize("notes", [True, False])
def test_a_fragment_comes_back_bit_for_bit(box: bool, notes: bool) -> None:
    sent = fragment(box=box, notes=notes)
    assert same(sent, unpacked(packed_up(sent)))


@pytest.mark.parametrize("box", [True, False])
@pytest.mark.parametrize("dialect", [JSON, MSGPACK])
def test_both_dialects_carry_what_it_is_called_and_where_it_comes_from(dialect: Dialect, box: bool) -> None:
    sent = fragment(box=box)
    told = dialect.encode(Episodes((sent,)))
    assert len(told) - HEADER_LENGTH <= dialect.size(sent)
    received = dialect.decode(memoryview(told)[HEADER_LENGTH:])
    assert isinstance(received, Episodes)
    assert same(sent, received.fragments[0])


@pytest.mark.parametrize("at", [0, 5, 40, -1])
def test_one_wrong_bit_is_found(at: int) -> None:
    parcel = bytearray(packed_up(fragment()))
    parcel[at] ^= 1
    with pytest.raises(ConfigurationError, match="checksum"):
        unpacked(bytes(parcel))


@pytest.mark.parametrize("parcel", [b"", b"abc", b"\0" * 4])
def test_what_is_too_short_is_found(parcel: bytes) -> None:
    with pytest.raises(ConfigurationError, match="damaged"):
        unpacked(parcel)
