"""The layout of every message, byte by byte, what is refused, and what holds for all messages and all bytes.

The bytes are those of OSP.md, section 1, as a real server speaks; forms that only the document has are marked so. That
any bytes give a message or RemoteProtocolError, and nothing else, is what `tests/fuzz` looks at.
"""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ospbridge.errors import LocalProtocolError, RemoteProtocolError
from ospbridge.osp import messages as osp
from ospbridge.osp.messages import REPLIES, REQUESTS, Message, Truncated, Wire, decode_reply, decode_request
from ospbridge.osp.profile import InitForm


def floats(*values: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.array(values, dtype=np.float32)


def text(string: str) -> str:
    return string.encode().hex() + "00"


REQUEST_LAYOUTS = {
    "init": ("05 01 01 78", osp.Init(1, 1, InitForm.BYTES)),
    "init-document": ("05 01000000 01000000", osp.Init(1, 1, InitForm.INTS)),
    "end": ("07 78", osp.End()),
    "reset-communication": ("0a 78", osp.ResetCommunication()),
    "overview": ("5a 78", osp.GetAgentOverview()),
    "overview-ack": ("5d 78", osp.AgentOverviewAck()),
    "info": ("5f 01000000 78", osp.GetAgentInfo(1)),
    "info-ack": ("61 78", osp.AgentInfoAck()),
    "register": ("64 01000000 78", osp.RegisterForAgent(1)),
    "deregister": ("69 02000000 78", osp.DeregisterFromAgent(2)),
    "register-event": (f"14 {text('/Demo/Hit')} 78", osp.RegisterForEvent("/Demo/Hit")),
    "deregister-event": ("1e 03000000 78", osp.DeregisterFromEvent(3)),
    "value-ids": (f"28 {text('.*StepSize.*')} 78", osp.GetValueIds(".*StepSize.*")),
    "value-info-ack": ("2a", osp.ValueInfoAck()),
    "get-value": ("32 8c000000 78", osp.GetValue(140)),
    "set-value": (f"34 8c000000 {text('0.02')} 78", osp.SetValue(140, "0.02")),
    "register-values": ("36 03000000 01000000 0f270000 02000000 78", osp.RegisterForValue((1, 9999, 2))),
    "deregister-values": ("38 02000000 01000000 02000000 78", osp.DeregisterFromValue((1, 2))),
    "reset": ("46 07000000 78", osp.ResetSimulation(7)),
    "reset-completed-ack": ("4c 78", osp.ResetSimulationCompletedAck()),
    "reset-completed-document": ("4b", osp.ResetSimulationCompleted()),
    "step": (
        "50 01000000 04000000 0000003f 000000bf 0000803f 00000000 78",
        osp.NextSimulationStep(1, floats(0.5, -0.5, 1.0, 0.0)),
    ),
    "step-ack": ("56 01000000 78", osp.StepCompletedAck(1)),
}

REPLY_LAYOUTS = {
    "init-ack": ("06 01 01 78", osp.InitAck(1, 1, InitForm.BYTES)),
    "init-ack-document": ("06 01000000 01000000", osp.InitAck(1, 1, InitForm.INTS)),
    "end-ack": ("08 78", osp.EndAck()),
    "reset-communication-ack": ("0b 78", osp.ResetCommunicationAck()),
    "overview": ("5b 03000000 78", osp.AgentOverview(3)),
    "overview-next": (
        f"5c 00000000 01000000 {text('Agent')} 01 {text('Humanoid')} 78",
        osp.AgentOverviewNext(0, 1, "Agent", 1, "Humanoid"),
    ),
    "info": (
        f"60 01000000 04000000 04000000 02000000 {text('Humanoid')} 78",
        osp.AgentInfo(1, 4, 4, 2, "Humanoid"),
    ),
    "info-unknown-agent": ("60 00000000 00000000 00000000 00000000 00 78", osp.AgentInfo(0, 0, 0, 0, "")),
    "info-next": (
        f"62 02000000 000080bf 0000803f {text('/Waist/DesiredAngle')} 78",
        osp.AgentInfoNext(2, -1.0, 1.0, "/Waist/DesiredAngle"),
    ),
    "registered": ("65 01000000 01 78", osp.RegisterForAgentAck(1, 1)),
    "not-registered": ("65 02000000 00 78", osp.RegisterForAgentAck(2, 0)),
    "deregistered": ("6a 02000000 01 78", osp.DeregisterFromAgentAck(2, 1)),
    "event": ("15 01000000 78", osp.RegisterForEventAck(1)),
    "event-gone": ("1f 4d000000 78", osp.DeregisterFromEventAck(77)),
    "value-ids": ("29 01000000 78", osp.ValueIds(1)),
    "value-info": (
        f"2b 00000000 8c000000 {text('Double')} {text('/Simulation/TimeStepSize')} 78",
        osp.ValueInfo(0, 140, "Double", "/Simulation/TimeStepSize"),
    ),
    "value": (f"33 8c000000 {text('0.01')} 78", osp.ValueContent(140, "0.01")),
    "value-unknown": ("33 ffffffff 00 78", osp.ValueContent(-1, "")),
    "value-set": ("35 8c000000 01 78", osp.SetValueAck(140, 1)),
    "values-registered": ("37 03000000 00000000 00000000 00000000 78", osp.RegisterForValueAck((0, 0, 0))),
    "values-registered-document": ("37 0c000000 00000000", osp.RegisterForValueAck((12, 0), counted=False)),
    "values-deregistered": ("39 02000000 00000000 00000000 78", osp.DeregisterFromValueAck((0, 0))),
    "reset-ack": ("47 78", osp.ResetSimulationAck()),
    "reset-completed": ("4b 78", osp.ResetSimulationCompleted()),
    "reset-completed-document": ("4c", osp.ResetSimulationCompletedAck()),
    "step-ack": ("51 01000000 78", osp.NextSimulationStepAck(1)),
    "step-completed": (
        "55 01000000 02000000 01000000 00000000 00000000 0000003f 0000803f 000000bf 78",
        osp.StepCompleted(1, floats(0.5, 1.0), floats(-0.5)),
    ),
    "step-completed-with-events": (
        "55 01000000 01000000 00000000 02000000 03000000 0000003f 05000000 04000000 78",
        osp.StepCompleted(1, floats(0.5), floats(), events=(5, 4), observed=3),
    ),
}


@pytest.mark.parametrize(
    "decode, wire, message",
    [
        *((decode_request, *layout) for layout in REQUEST_LAYOUTS.values()),
        *((decode_reply, *layout) for layout in REPLY_LAYOUTS.values()),
    ],
    ids=[*REQUEST_LAYOUTS, *REPLY_LAYOUTS],
)
def test_a_message_is_laid_out_as_observed(
    decode: Callable[[bytes], Message], wire: str, message: Message
) -> None:
    data = bytes.fromhex(wire)
    assert decode(data) == message
    assert message.encode(end=wire.endswith(" 78")) == data


@pytest.mark.parametrize("wire, message", REPLY_LAYOUTS.values(), ids=REPLY_LAYOUTS)
def test_a_reply_may_be_cut_in_any_field(wire: str, message: Message) -> None:
    data = bytes.fromhex(wire).removesuffix(b"x")
    for length in range(2, len(data)):
        try:
            decoded = decode_reply(data[:length], limit=length)
        except RemoteProtocolError:
            in_head = isinstance(message, osp.StepCompleted) and length < message.HEAD.size
            assert in_head or isinstance(
                message, osp.InitAck | osp.RegisterForValueAck | osp.DeregisterFromValueAck
            )
            continue
        assert isinstance(decoded, Truncated)
        assert type(decoded.message) is type(message)


def test_every_message_has_its_layout_tested() -> None:
    assert {type(message) for _, message in REQUEST_LAYOUTS.values()} == set(REQUESTS.values())
    assert {type(message) for _, message in REPLY_LAYOUTS.values()} == set(REPLIES.values())


def test_bytes_then_zeros_read_as_an_init_of_integers() -> None:
    # The real server reads 1.1 in it (s01_init); byte for byte it is the document's form with other numbers.
    message = decode_request(bytes.fromhex("050101000000000000"))
    assert message == osp.Init(0x0101, 0, InitForm.INTS)


# --- messages as values ---------------------------------------------------------------------------------------------


def test_step_vectors_are_views_of_the_datagram_that_cannot_be_written() -> None:
    data = osp.StepCompleted(1, floats(0.5, 1.0), floats(-0.5)).encode(end=True)
    message = decode_reply(data)
    assert isinstance(message, osp.StepCompleted)
    assert message.outputs.dtype == np.float32
    assert not message.outputs.flags.writeable
    assert not message.infos.flags.owndata


# --- what RegisterForValueAck cannot tell by its bytes --------------------------------------------------------------


def test_knowing_how_many_were_asked_for_tells_an_id_from_a_count() -> None:
    ambiguous = decode_reply(osp.RegisterForValueAck((1, 7), counted=False).encode())
    assert isinstance(ambiguous, osp.RegisterForValueAck)
    assert ambiguous.ids == (7,)
    assert ambiguous.answered(2) == (1, 7)
    assert ambiguous.answered(1) == (7,)
    assert osp.RegisterForValueAck((1, 7)).answered(2) == (1, 7)
    assert osp.RegisterForValueAck((12, 0), counted=False).answered(2) == (12, 0)


# --- what is refused ------------------------------------------------------------------------------------------------

MALFORMED_REQUESTS = {
    "unknown code": ("63", 0, "code 99 is no request"),
    "a reply's code": ("06 01 01 78", 0, "code 6 is no request"),
    "init between the forms": ("05 01 01 00 00", 3, "expected the end"),
    "no agent id": ("64", 1, "expected agent_id of 4 bytes, 0 left"),
    "surplus byte": ("64 01000000 00", 5, "expected the end of the datagram, 1 byte left"),
    "string without its zero": ("14 2f41", 1, "expected name, a string with its terminating zero"),
    "negative inputs": ("50 01000000 ffffffff", 5, "expected number of inputs, a count of 0 or more, got -1"),
    "inputs beyond memory": ("50 01000000 ffffff7f", 9, "expected 2147483647 inputs"),
    "ids beyond memory": ("36 00c2eb0b 78", 5, "expected 200000000 ids in 800000000 bytes, 1 left"),
}

MALFORMED_REPLIES = {
    "a request's code": ("05 01 01 78", 0, "code 5 is no reply"),
    "completion cut without a limit": ("55 01000000", 5, "expected number of outputs of 4 bytes"),
    "negative outputs": ("55 01000000 ffffffff 00000000 00000000 00000000", 5, "number of outputs"),
    "missing infos": ("55 01000000 00000000 01000000 00000000 00000000", 21, "expected 1 infos in 4 bytes"),
    "surplus floats": (
        "55 01000000 00000000 00000000 00000000 00000000 00000000",
        21,
        "expected the end of the datagram, 4 bytes left",
    ),
    "info entry without its range": ("62 00000000 0000803f 0000", 9, "expected max of 4 bytes, 2 left"),
}


@pytest.mark.parametrize(
    "decode, wire, offset, message",
    [
        *((decode_request, *malformed) for malformed in MALFORMED_REQUESTS.values()),
        *((decode_reply, *malformed) for malformed in MALFORMED_REPLIES.values()),
    ],
    ids=[*MALFORMED_REQUESTS, *MALFORMED_REPLIES],
)
def test_a_malformed_datagram_is_refused_with_offset_and_bytes(
    decode: Callable[[bytes], Message], wire: str, offset: int, message: str
) -> None:
    data = bytes.fromhex(wire)
    with pytest.raises(RemoteProtocolError, match=message) as caught:
        decode(data)
    assert (caught.value.offset, caught.value.data) == (offset, data)
    assert data[:48].hex(" ") in str(caught.value)


UNFIT: list[tuple[type[Message], tuple[object, ...], str]] = [
    (osp.GetAgentInfo, (2**31,), "GetAgentInfo.agent_id must be a 32-bit integer"),
    (osp.GetAgentInfo, ("1",), "GetAgentInfo.agent_id must be a 32-bit integer, got '1'"),
    (osp.RegisterForAgentAck, (1, 256), "RegisterForAgentAck.status must be a byte"),
    (osp.RegisterForEvent, ("a\0b",), "cannot send 'a.x00b': a zero byte ends"),
    (osp.SetValue, (1, "10 \ud800"), "cannot send '10 .ud800': .* half of a character"),
    (osp.AgentInfoNext, (0, "low", 1.0, ""), "AgentInfoNext.min must be a number"),
    (osp.AgentInfoNext, (0, 0.0, 1e39, ""), "AgentInfoNext.max must be a number that a 32-bit float holds"),
    (osp.RegisterForValue, ((1, 2**31),), "RegisterForValue.ids must be a tuple of 32-bit integers"),
    (osp.Init, (256, 1, InitForm.BYTES), "Init.major must be a byte"),
    (osp.NextSimulationStep, (1, [0.5]), "NextSimulationStep.inputs must be a one-dimensional array"),
]


@pytest.mark.parametrize("kind, fields, message", UNFIT)
def test_a_field_that_does_not_fit_is_refused_by_name(
    kind: type[Message], fields: tuple[object, ...], message: str
) -> None:
    with pytest.raises(LocalProtocolError, match=message):
        kind(*fields)


# --- heads and sizes of what is compared byte for byte --------------------------------------------------------------


def test_vectors_stand_behind_a_packed_head_and_their_number_says_the_length() -> None:
    data = osp.StepCompleted(7, floats(1.0, 2.0), floats(3.0)).encode()
    assert data == osp.StepCompleted.pack(7, 2, 1, 0, 0) + floats(1.0, 2.0, 3.0).tobytes()
    assert len(data) == osp.StepCompleted.length(3)
    request = osp.NextSimulationStep(7, floats(0.5, -1.0)).encode()
    assert request == osp.NextSimulationStep.pack(7, 2) + floats(0.5, -1.0).tobytes()
    assert len(osp.NextSimulationStep.pack(7, 2)) == osp.NextSimulationStep.HEAD.size


# --- all messages ---------------------------------------------------------------------------------------------------


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
VERSIONS = ((INTEGERS, InitForm.INTS), (BYTES, InitForm.BYTES))


def messages_of(kind: type[Message]) -> st.SearchStrategy[Message]:
    if issubclass(kind, osp.Init | osp.InitAck):
        return st.one_of([st.builds(kind, part, part, st.just(form)) for part, form in VERSIONS])
    if kind is osp.RegisterForValueAck:
        return st.builds(kind, IDS, counted=st.booleans())
    return st.builds(kind, *(BY_WIRE_TYPE[wire_type] for _, wire_type in kind.LAYOUT))


def messages_in(table: dict[int, type[Message]]) -> st.SearchStrategy[Message]:
    return st.sampled_from(sorted(table.values(), key=lambda kind: kind.CODE)).flatmap(messages_of)


@given(messages_in(REQUESTS), st.booleans())
def test_any_request_comes_back_from_its_bytes(message: Message, end: bool) -> None:
    assert decode_request(message.encode(end=end)) == message


@given(messages_in(REPLIES), st.booleans(), st.sampled_from([None, 1024]))
def test_any_reply_comes_back_from_its_bytes(message: Message, end: bool, limit: int | None) -> None:
    assert decode_reply(message.encode(end=end), limit=limit) == message


@pytest.mark.parametrize("outputs, infos, events", [(300, 20, 0), (200, 100, 7), (100, 100, 200), (3, 2, 2)])
def test_a_cut_completion_is_a_prefix_of_the_whole_one(outputs: int, infos: int, events: int) -> None:
    numbers = np.arange(outputs + infos, dtype=np.float32)
    whole = osp.StepCompleted(3, numbers[:outputs], numbers[outputs:], tuple(range(events)))
    data = whole.encode()
    for length in (21, 22, 24, 40, 1022, 1023, 1024):
        if length > len(data):
            assert decode_reply(data + b"x", limit=length) == whole
            continue
        decoded = decode_reply(data[: length - 1] + b"x", limit=length)
        assert isinstance(decoded, Truncated)
        cut = decoded.message
        assert isinstance(cut, osp.StepCompleted)
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


@pytest.mark.parametrize("surplus", [2, 3, 4])
def test_surplus_bytes_at_the_limit_are_an_error_and_no_cut(surplus: int) -> None:
    data = osp.StepCompleted(7, np.zeros(250, np.float32), floats()).encode() + bytes(surplus)
    with pytest.raises(RemoteProtocolError, match="expected the end of the datagram") as caught:
        decode_reply(data, limit=LIMIT)
    assert caught.value.data == data


IDS_OF_300 = tuple(range(1000, 1300))


@pytest.mark.parametrize("kind", [osp.RegisterForValueAck, osp.DeregisterFromValueAck])
def test_a_cut_list_of_ids_says_how_many_were_announced(kind: type[osp.RegisterForValueAck]) -> None:
    # Whole values only, and behind them the end byte.
    decoded = decode_reply(kind(IDS_OF_300).encode()[:1021] + b"x", limit=LIMIT)
    assert decoded == Truncated(kind(IDS_OF_300[:254], announced=(300,)), 254, 300)


@pytest.mark.parametrize(
    "message",
    [
        osp.ValueContent(1, "v" * 2000),
        osp.ValueInfo(0, 1, "String", "n" * 2000),
        osp.AgentInfoNext(0, -1.0, 1.0, "n" * 2000),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_cut_string_keeps_its_zero_and_says_that_it_was_cut(message: Message) -> None:
    data = message.encode()[:1022] + b"\0"
    decoded = decode_reply(data, limit=LIMIT)
    assert isinstance(decoded, Truncated)
    assert (decoded.received, decoded.announced) == (1023, None)
    assert decoded.message.encode() == data
