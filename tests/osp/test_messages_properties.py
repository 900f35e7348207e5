"""What holds for all messages and for all bytes.

Any message comes back from its bytes, what a server cut as far as it came; nothing is allocated because a count asks
for it. That any bytes give a message or RemoteProtocolError, and nothing else, is what `tests/fuzz` looks at.
"""

from __future__ import annotations

import struct
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ospbridge.errors import RemoteProtocolError
from ospbridge.osp.messages import (
    REPLIES,
    REQUESTS,
    AgentInfoNext,
    DeregisterFromValueAck,
    Init,
    InitAck,
    Message,
    RegisterForValueAck,
    StepCompleted,
    Truncated,
    ValueContent,
    ValueInfo,
    Wire,
    decode_reply,
    decode_request,
)
from ospbridge.osp.profile import InitForm

if TYPE_CHECKING:
    from collections.abc import Callable


INTEGERS = st.integers(-(2**31), 2**31 - 1)
BYTES = st.integers(0, 255)
TEXTS = st.text(st.characters(min_codepoint=1, max_codepoint=255), max_size=40)
FLOATS = st.floats(width=32)
VECTORS = st.lists(FLOATS, max_size=40).map(lambda values: np.array(values, dtype=np.float32))
IDS = st.lists(INTEGERS, max_size=40).map(tuple)
BY_WIRE_TYPE: dict[Wire, st.SearchStrategy[Any]] = {
    Wire.INTEGER: INTEGERS,
    Wire.COUNT: st.integers(0, 2**31 - 1),
    Wire.BYTE: BYTES,
    Wire.TEXT: TEXTS,
    Wire.REAL: FLOATS,
    Wire.FLOATS: VECTORS,
    Wire.INTEGERS: IDS,
}
SPECIAL: dict[type[Message], st.SearchStrategy[Message]] = {
    RegisterForValueAck: st.builds(RegisterForValueAck, IDS, counted=st.booleans()),
    Init: st.one_of(
        st.builds(Init, INTEGERS, INTEGERS), st.builds(Init, BYTES, BYTES, st.just(InitForm.BYTES))
    ),
    InitAck: st.one_of(
        st.builds(InitAck, INTEGERS, INTEGERS), st.builds(InitAck, BYTES, BYTES, st.just(InitForm.BYTES))
    ),
}


def messages_of(kind: type[Message]) -> st.SearchStrategy[Message]:
    if kind in SPECIAL:
        return SPECIAL[kind]
    return st.builds(kind, *(BY_WIRE_TYPE[wire_type] for _, wire_type in kind.LAYOUT))


def messages_in(table: dict[int, type[Message]]) -> st.SearchStrategy[Message]:
    return st.sampled_from(sorted(table.values(), key=lambda kind: kind.CODE)).flatmap(messages_of)


# --- all messages ---------------------------------------------------------------------------------------------------


@given(messages_in(REQUESTS), st.booleans())
def test_any_request_comes_back_from_its_bytes(message: Message, end: bool) -> None:
    assert decode_request(message.encode(end=end)) == message


@given(messages_in(REPLIES), st.booleans(), st.sampled_from([None, 1024]))
def test_any_reply_comes_back_from_its_bytes(message: Message, end: bool, limit: int | None) -> None:
    assert decode_reply(message.encode(end=end), limit=limit) == message


@pytest.mark.parametrize("outputs, infos, events", [(300, 20, 0), (200, 100, 7), (100, 100, 200), (3, 2, 2)])
def test_a_cut_completion_is_a_prefix_of_the_whole_one(outputs: int, infos: int, events: int) -> None:
    numbers = np.arange(outputs + infos, dtype=np.float32)
    whole = StepCompleted(3, numbers[:outputs], numbers[outputs:], tuple(range(events)))
    data = whole.encode()
    for length in (21, 22, 24, 40, 1022, 1023, 1024):
        if length > len(data):
            assert decode_reply(data + b"x", limit=length) == whole
            continue
        decoded = decode_reply(data[: length - 1] + b"x", limit=length)
        assert isinstance(decoded, Truncated)
        cut = decoded.message
        assert isinstance(cut, StepCompleted)
        assert (decoded.received, decoded.announced) == ((length - 21) // 4, outputs + infos + events)
        assert cut.announced == (outputs, infos, events)
        assert cut.outputs.tolist() == whole.outputs[: len(cut.outputs)].tolist()


# --- all bytes ------------------------------------------------------------------------------------------------------


HUGE = 2**31 - 1


@pytest.mark.parametrize(
    "decode, data",
    [
        (decode_request, struct.pack("<Bii", 80, 1, HUGE)),
        (decode_request, struct.pack("<Bi", 54, HUGE)),
        (decode_request, struct.pack("<Bi", 56, HUGE)),
        (decode_reply, struct.pack("<Biiiii", 85, 1, HUGE, HUGE, HUGE, HUGE)),
        (decode_reply, struct.pack("<Biiiii", 85, 1, 0, HUGE, 0, 0)),
        (decode_reply, struct.pack("<Biiiii", 85, 1, 0, 0, HUGE, 0)),
        (decode_reply, struct.pack("<Bi", 57, HUGE)),
    ],
)
def test_a_count_larger_than_the_datagram_allocates_nothing(
    decode: Callable[[bytes], Any], data: bytes
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError, match=f"expected {HUGE}"):
            decode(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


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


@pytest.mark.parametrize("surplus", [2, 3, 4])
def test_surplus_bytes_at_the_limit_are_an_error_and_no_cut(surplus: int) -> None:
    data = completion(ROOM).encode() + bytes(surplus)
    with pytest.raises(RemoteProtocolError, match="expected the end of the datagram") as caught:
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
