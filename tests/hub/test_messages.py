"""The hub's messages and their framing: they come back as they went, and any bytes parse or raise."""

from __future__ import annotations

import math
from typing import get_args

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ospbridge import errors
from ospbridge.errors import (
    FileInvalid,
    HubError,
    LocalProtocolError,
    OspBridgeError,
    ProtocolError,
    RemoteProtocolError,
)
from ospbridge.hub import framing
from ospbridge.hub.descriptions import AgentDescription
from ospbridge.hub.framing import Incoming, decode_reply, decode_request, encode
from ospbridge.hub.replies import _KINDS, Attached, HubReply, Kind, Moment, Moments, Refusal
from ospbridge.hub.requests import Hello, HubRequest, Status, Step
from ospbridge.hub.status import RecordingStatus, StatusReply
from ospbridge.interface import AgentInterface, BoxSpace, DiscreteSpace, InterfaceValue
from tests.hub.examples import REPLIES, REQUESTS, framed


def feed(incoming: Incoming, data: bytes) -> None:
    while data:
        space = incoming.space()
        count = min(len(space), len(data))
        space[:count] = data[:count]
        incoming.received(count)
        data = data[count:]


def test_a_hello_of_earlier_releases_says_no_process_and_theirs_takes_what_it_does_not_know() -> None:
    said = ["hello", 4, "train.py", 7]
    assert decode_request(msgspec.msgpack.encode(said)) == Hello(4, "train.py", 7)
    assert decode_request(msgspec.msgpack.encode([*said, "1f", "later"])) == Hello(4, "train.py", 7, "1f")


HOSTILE = {
    "huge list": b"\x92\xa6detach\xdd\xff\xff\xff\xff",
    "huge bytes": b"\x92\xa4step\x91\x92\xa1a\xc6\xff\xff\xff\xff",
    "deep nesting": b"\x93\xa6detach\x90" + b"\x91" * 100_000,
    "no UTF-8": b"\x92\xa7observe\xa2\xff\xfe",
    "empty": b"",
    "too many moves": b"\x92\xa4step\xdd\x00\x01\x00\x01" + b"\x92\xa0\xc4\x00" * 0x10001,
    "too many moves with notes": b"\x92\xa5noted\xdd\x00\x01\x00\x01"
    + b"\x93\xa0\xc4\x00\x92\xc4\x00\xca\x00\x00\x00\x00" * 0x10001,
    "too many names": b"\x92\xa6attach\xdd\x00\x01\x00\x01" + b"\xa0" * 0x10001,
    "too many names to reset": b"\x92\xa5reset\xdd\x00\x01\x00\x01" + b"\xa0" * 0x10001,
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_requests_raise_with_a_hint(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode_request(data)
    assert caught.value.hint


@pytest.mark.parametrize("limit", [math.nan, math.inf, 0.0, -1.0, 1e300])
def test_limits_that_nobody_can_wait_for_are_no_reply(limit: float) -> None:
    for limits in ((limit, 1.0), (1.0, limit)):
        with pytest.raises(RemoteProtocolError):
            decode_reply(msgspec.msgpack.encode(Attached([], *limits)))


@pytest.mark.parametrize("at", range(3))
def test_a_moment_of_what_are_no_numbers_is_no_reply(at: int) -> None:
    moment = Moment(1, Kind.STEP, 1, 1, b"", b"", b"", 0.0, False, False, "", 1)
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(Moments([moment])))
    sent[1][0][4 + at] = bytes(3)
    with pytest.raises(RemoteProtocolError, match="expected float32"):
        decode_reply(msgspec.msgpack.encode(sent))


def test_the_status_of_a_daemon_that_knows_of_no_recording_is_still_read() -> None:
    told = StatusReply(True, "sim:1", "joined", "nerd", [], 1, 2, 3, 4.0, "0", 5, RecordingStatus("out"))
    earlier = msgspec.msgpack.decode(framed(told)[4:])[:12]
    status = decode_reply(msgspec.msgpack.encode(earlier))
    assert isinstance(status, StatusReply)
    assert (status.pid, status.recording) == (5, None)


# --- framing -------------------------------------------------------------------------------------------------------


def test_a_message_longer_than_the_first_buffer_grows_it() -> None:
    step = Step([("a", bytes(3 * framing.FIRST_BUFFER))])
    incoming = Incoming()
    stream = framed(Status()) + framed(step) + framed(Status())
    incoming.put(stream[:7])
    feed(incoming, stream[7:])
    seen = []
    while (message := incoming.next_message()) is not None:
        seen.append(decode_request(message))
    assert seen == [Status(), step, Status()]


@given(st.integers(1_000_001, 2**32 - 1))
def test_an_announced_length_above_the_limit_raises_before_anything_is_allocated(length: int) -> None:
    incoming = Incoming(largest=1_000_000)
    feed(incoming, length.to_bytes(4, "little"))
    with pytest.raises(RemoteProtocolError, match="the limit is 1000000"):
        incoming.next_message()
    assert len(incoming.space()) <= framing.FIRST_BUFFER


def test_a_message_above_the_limit_is_not_sent() -> None:
    with pytest.raises(LocalProtocolError, match="longer than the hub's limit of 100"):
        encode(Step([("a", bytes(200))]), bytearray(), largest=100)


# --- errors and interfaces -----------------------------------------------------------------------------------------


def test_every_error_that_a_message_can_make_crosses_the_hub_as_itself() -> None:
    concrete = {getattr(errors, name) for name in errors.__all__} - {
        OspBridgeError,
        ProtocolError,
        FileInvalid,
        RemoteProtocolError,
    }
    assert set(_KINDS.values()) == concrete
    for kind in concrete:
        again = Refusal.of(kind("what happened", hint="what to do")).error()
        assert type(again) is kind
        assert (again.message, again.hint) == ("what happened", "what to do")


@pytest.mark.parametrize("kind", ["RemoteProtocolError", "SomethingNew", "OspBridgeError", ""])
def test_an_error_of_unknown_kind_is_a_hub_error(kind: str) -> None:
    error = Refusal(kind, "what happened").error()
    assert type(error) is HubError
    assert error.message == "what happened"


def test_an_interface_crosses_the_hub_with_infinite_ranges_and_without_its_local_id() -> None:
    inputs, outputs = (InterfaceValue("force", -math.inf, math.inf),), (InterfaceValue("é", -1.0, 1.0),)
    box = BoxSpace(np.array([-math.inf], np.float32), np.array([math.inf], np.float32))
    agent = AgentInterface(7, "cart", inputs, outputs, (), "Robot")
    told = AgentDescription.of(agent, box, DiscreteSpace(2))
    assert told.interface() == AgentInterface(0, "cart", inputs, outputs, (), "Robot")
    assert told.action_space() == DiscreteSpace(2)
    assert told.observation_space().high.tolist() == [math.inf]


def test_an_agent_that_comes_back_with_a_range_that_is_none_is_the_same() -> None:
    def described(low: float = math.nan, high: float = 1.0) -> AgentDescription:
        space = BoxSpace(np.full(1, -np.inf, np.float32), np.full(1, np.inf, np.float32))
        interface = AgentInterface(1, "a", (InterfaceValue("/in", low, high),), (), (), "Agent")
        sent = msgspec.msgpack.encode(AgentDescription.of(interface, space, space))
        return msgspec.msgpack.decode(sent, type=AgentDescription)

    assert described().like(described())
    assert described(low=-0.0).like(described(low=0.0))
    for change in ({"name": "b"}, {"choices": 2}):
        assert not msgspec.structs.replace(described(), **change).like(described())
    assert not described(high=2.0).like(described())
    assert not described(low=0.0).like(described())


@pytest.mark.parametrize(
    "observation, action",
    [((bytes(5), bytes(5)), (b"", b"")), ((bytes(4), bytes(8)), (b"", b"")), ((b"", b""), (bytes(4), b""))],
)
def test_bounds_that_are_no_vectors_of_one_length_are_refused(
    observation: tuple[bytes, bytes], action: tuple[bytes, bytes]
) -> None:
    data = msgspec.msgpack.encode(
        ["observing", ["cart", "Agent", [], [], [], observation, action, 0, [], []], 0]
    )
    with pytest.raises(RemoteProtocolError, match="bounds of"):
        decode_reply(data)


# --- all messages --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", [*REQUESTS, *REPLIES], ids=lambda message: type(message).__name__)
def test_a_message_comes_back_as_it_went(message: HubRequest | HubReply) -> None:
    decode = decode_request if message in REQUESTS else decode_reply
    assert decode(framed(message)[4:]) == message


def test_there_is_an_example_of_each_kind_and_no_two_of_a_direction_share_a_tag() -> None:
    for examples, union in ((REQUESTS, HubRequest), (REPLIES, HubReply)):
        kinds = {type(message) for message in examples}
        assert kinds == set(get_args(union))
        assert len({kind.__struct_config__.tag for kind in kinds}) == len(kinds)


@given(
    st.lists(st.sampled_from(REQUESTS), max_size=8),
    st.lists(st.integers(1, 90), min_size=1, max_size=8),
    st.booleans(),
)
def test_a_stream_cut_anywhere_gives_the_same_messages(
    messages: list[HubRequest], cuts: list[int], taken: bool
) -> None:
    stream = b"".join(map(framed, messages))
    incoming = Incoming()
    seen = []
    at = turn = 0
    while at < len(stream):
        part = stream[at : at + cuts[turn % len(cuts)]]
        turn += 1
        at += len(part)
        if taken:
            incoming.space()[: len(part)] = part
            message = incoming.take(len(part))
        else:
            feed(incoming, part)
            message = incoming.next_message()
        while message is not None:
            seen.append(decode_request(message))
            message = incoming.next_message()
    assert seen == messages
    assert incoming.empty
