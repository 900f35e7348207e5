"""Headers of eight digits, and bodies out of chunks of any size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ospbridge.errors import LocalProtocolError, RemoteProtocolError
from ospbridge.rllink.framing import LARGEST_BODY, LARGEST_TAKEN, Deframer, header


def framed(body: bytes) -> bytes:
    return header(len(body)) + body


@pytest.mark.parametrize("length", [LARGEST_BODY + 1, -1])
def test_a_length_that_eight_digits_cannot_say_is_refused_before_sending(length: int) -> None:
    with pytest.raises(LocalProtocolError, match="does not fit RLlink's header") as caught:
        header(length)
    assert "split" in caught.value.hint


@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(1, 30), max_size=40))
def test_bodies_come_out_whole_however_the_stream_is_cut(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(framed, bodies))
    deframer = Deframer()
    got: list[bytes] = []
    place = 0
    for length in [*cuts, len(stream)]:
        got += map(bytes, deframer.bodies(stream[place : place + length]))
        place += length
    assert got == bodies
    assert deframer.empty


def test_a_body_belongs_to_who_took_it() -> None:
    chunk = bytearray(framed(b"one") + framed(b"two"))
    one, two = Deframer().bodies(chunk)
    chunk[:] = bytes(len(chunk))
    one += b"!"
    assert (bytes(one), bytes(two)) == (b"one!", b"two")


def test_leading_spaces_are_understood_as_real_servers_do() -> None:
    (body,) = Deframer().bodies(b"       5hello")
    assert body == b"hello"


@pytest.mark.parametrize(
    "head",
    [
        *(b"GET / HT", b"-0000005", b"+0000005", b"0000 005", b"5       ", b"        ", b"00_00_05"),
        *(b"0x000005", "٣٣٣٣".encode(), b"\0\0\0\0\0\0\0\5"),
    ],
)
def test_a_header_that_is_no_length_is_told_with_its_bytes(head: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="eight ASCII digits") as caught:
        list(Deframer().bodies(head + b"body"))
    assert caught.value.data == head
    assert caught.value.hint


def test_less_is_taken_than_can_be_announced_unless_more_is_asked_for() -> None:
    assert list(Deframer().bodies(b"%08d" % LARGEST_TAKEN)) == []
    with pytest.raises(RemoteProtocolError, match=f"at most {LARGEST_TAKEN} bytes") as caught:
        list(Deframer().bodies(b"%08d" % (LARGEST_TAKEN + 1)))
    assert "--rllink-largest-message" in caught.value.hint


def test_what_came_before_a_bad_header_is_still_given_out() -> None:
    bodies = Deframer().bodies(framed(b"good") + b"not good")
    assert next(bodies) == b"good"
    with pytest.raises(RemoteProtocolError):
        next(bodies)


def test_what_is_unfinished_is_told() -> None:
    deframer = Deframer()
    assert list(deframer.bodies(b"0000")) == []
    assert not deframer.empty
    assert deframer.unfinished() == "4 of 8 bytes of a header"
    assert list(deframer.bodies(b"0010abc")) == []
    assert deframer.unfinished() == "3 of 10 bytes of a message"
