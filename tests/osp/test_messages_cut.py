"""Datagrams that a server cut at its limit (OSP.md, D15): told apart from whole ones, and how much of them arrived."""

from __future__ import annotations

import numpy as np
import pytest

from ospbridge.errors import RemoteProtocolError
from ospbridge.osp.messages import (
    AgentInfoNext,
    DeregisterFromValueAck,
    EndAck,
    Message,
    RegisterForValueAck,
    StepCompleted,
    Truncated,
    ValueContent,
    ValueInfo,
    decode_reply,
)

LIMIT = 1024
HEADER = 21
"""Bytes of a completion in front of its outputs."""
ROOM = (1021 - HEADER) // 4
"""Values of a completion that a server with that limit sends."""


def cut_as_nerd_does(message: Message) -> bytes:
    """What arrives: whole values or characters only; behind vectors the end byte, behind a cut string its zero."""
    data = message.encode()
    if len(data) + 1 <= LIMIT - 2:
        return data + b"\x78"
    if isinstance(message, StepCompleted | RegisterForValueAck | DeregisterFromValueAck):
        return data[:1021] + b"\x78"
    return data[:1022] + b"\0"


def completion(outputs: int, infos: int = 0, events: int = 0, observed: int = 0) -> StepCompleted:
    return StepCompleted(
        7,
        np.arange(outputs, dtype=np.float32),
        -np.arange(infos, dtype=np.float32),
        tuple(range(1, events + 1)),
        observed,
    )


def test_300_outputs_are_cut_to_the_1022_bytes_that_were_observed() -> None:
    whole = completion(300)
    assert len(whole.encode(end=True)) == 1222
    decoded = decode_reply(cut_as_nerd_does(whole), limit=LIMIT)
    assert isinstance(decoded, Truncated)
    assert isinstance(decoded.message, StepCompleted)
    assert (decoded.received, decoded.announced) == (250, 300)
    assert decoded.message.announced == (300, 0, 0)
    assert np.array_equal(decoded.message.outputs, whole.outputs[:250])


@pytest.mark.parametrize("length", [1022, 1023, 1024])
@pytest.mark.parametrize("end", [b"", b"\x78"])
def test_a_completion_cut_anywhere_at_the_limit_keeps_its_whole_values(length: int, end: bytes) -> None:
    whole = completion(400)
    data = whole.encode()[: length - len(end)] + end
    decoded = decode_reply(data, limit=LIMIT)
    assert isinstance(decoded, Truncated)
    assert isinstance(decoded.message, StepCompleted)
    assert np.array_equal(decoded.message.outputs, whole.outputs[:250])
    assert (decoded.received, decoded.announced) == (250, 400)


def test_a_cut_in_the_infos_leaves_the_outputs_whole() -> None:
    decoded = decode_reply(cut_as_nerd_does(completion(200, 100)), limit=LIMIT)
    assert isinstance(decoded, Truncated)
    assert isinstance(decoded.message, StepCompleted)
    assert (len(decoded.message.outputs), len(decoded.message.infos)) == (200, 50)
    assert (decoded.received, decoded.announced) == (250, 300)
    assert decoded.message.announced == (200, 100, 0)


def test_a_cut_in_the_events_leaves_outputs_and_infos_whole() -> None:
    decoded = decode_reply(cut_as_nerd_does(completion(200, 40, 20, observed=2)), limit=LIMIT)
    assert isinstance(decoded, Truncated)
    assert isinstance(decoded.message, StepCompleted)
    assert decoded.message.events == tuple(range(1, 11))
    assert decoded.message.observed == 2
    assert (decoded.received, decoded.announced) == (250, 260)


def test_a_cut_completion_encodes_to_its_bytes_again() -> None:
    data = cut_as_nerd_does(completion(200, 100))
    decoded = decode_reply(data, limit=LIMIT)
    assert isinstance(decoded, Truncated)
    assert decoded.message.encode(end=True) == data


@pytest.mark.parametrize("outputs", [ROOM - 1, ROOM])
def test_a_completion_that_just_fits_is_whole(outputs: int) -> None:
    message = completion(outputs)
    assert decode_reply(message.encode(end=True), limit=LIMIT) == message
    assert decode_reply(message.encode(), limit=LIMIT) == message


def test_the_same_bytes_are_refused_from_a_server_that_has_no_limit() -> None:
    with pytest.raises(RemoteProtocolError, match="expected 300 outputs in 1200 bytes, 1001 left"):
        decode_reply(cut_as_nerd_does(completion(300)))


def test_missing_values_below_the_limit_are_an_error() -> None:
    data = completion(300).encode()[:1000]
    with pytest.raises(RemoteProtocolError, match="expected 300 outputs"):
        decode_reply(data, limit=LIMIT)


@pytest.mark.parametrize("surplus", [2, 3, 4])
def test_surplus_bytes_at_the_limit_are_an_error_and_no_cut(surplus: int) -> None:
    data = completion(ROOM).encode() + bytes(surplus)
    with pytest.raises(RemoteProtocolError, match="expected the end of the datagram") as caught:
        decode_reply(data, limit=LIMIT)
    assert caught.value.data == data


def test_a_negative_count_at_the_limit_is_an_error_with_the_whole_datagram() -> None:
    data = b"\x55\x01\0\0\0\xff\xff\xff\xff" + bytes(1014)
    with pytest.raises(RemoteProtocolError, match="number of outputs") as caught:
        decode_reply(data, limit=LIMIT)
    assert caught.value.data == data


@pytest.mark.parametrize("kind", [RegisterForValueAck, DeregisterFromValueAck])
def test_a_cut_list_of_ids_says_how_many_were_announced(
    kind: type[RegisterForValueAck | DeregisterFromValueAck],
) -> None:
    ids = tuple(range(1000, 1300))
    decoded = decode_reply(cut_as_nerd_does(kind(ids)), limit=LIMIT)
    assert isinstance(decoded, Truncated)
    assert isinstance(decoded.message, kind)
    assert decoded.message.ids == ids[:254]
    assert (decoded.received, decoded.announced) == (254, 300)


@pytest.mark.parametrize("kind", [RegisterForValueAck, DeregisterFromValueAck])
def test_a_list_of_ids_that_just_fits_is_whole(
    kind: type[RegisterForValueAck | DeregisterFromValueAck],
) -> None:
    message = kind(tuple(range(1000, 1254)))
    assert decode_reply(message.encode(end=True), limit=LIMIT) == message


@pytest.mark.parametrize(
    "message",
    [
        ValueContent(1, "v" * 2000),
        ValueInfo(0, 1, "String", "n" * 2000),
        AgentInfoNext(0, -1.0, 1.0, "n" * 2000),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_cut_string_keeps_its_zero_and_says_that_it_was_cut(message: Message) -> None:
    data = cut_as_nerd_does(message)
    assert len(data) == 1023
    decoded = decode_reply(data, limit=LIMIT)
    assert isinstance(decoded, Truncated)
    assert (decoded.received, decoded.announced) == (1023, None)
    assert decoded.message.encode() == data


def test_a_cut_in_the_first_of_two_strings_leaves_the_second_empty() -> None:
    decoded = decode_reply(cut_as_nerd_does(ValueInfo(3, 4, "T" * 2000, "/name")), limit=LIMIT)
    assert isinstance(decoded, Truncated)
    assert isinstance(decoded.message, ValueInfo)
    assert (decoded.message.index, decoded.message.type[:2], decoded.message.name) == (3, "TT", "")


def test_a_long_string_with_the_end_byte_behind_it_is_whole() -> None:
    message = ValueContent(1, "v" * 1016)
    data = message.encode(end=True)
    assert len(data) == 1023
    assert decode_reply(data, limit=LIMIT) == message


def test_a_fixed_message_is_never_cut() -> None:
    with pytest.raises(RemoteProtocolError, match="expected the end of the datagram"):
        decode_reply(EndAck().encode() + bytes(1022), limit=LIMIT)
    with pytest.raises(RemoteProtocolError, match="expected the end of the datagram"):
        decode_reply(EndAck().encode() + b"\x78" * 1022, limit=LIMIT)
