"""Every datagram that real peers exchanged decodes, and encodes to the same bytes; and our client says what theirs did.

`traces/undecodable.json` names the exceptions: datagrams that were sent to provoke the server, each with the reason and
a part of the error it must raise.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from ospbridge.errors import RemoteProtocolError
from ospbridge.osp.messages import Message, RegisterForValueAck, Truncated, decode_reply, decode_request
from tests.osp import recorded_clients

TRACES = Path(__file__).parent / "traces"
RECORDINGS = sorted(TRACES.glob("*.jsonl"))
LIMIT = 1024
"""Length at which the recorded server cuts its datagrams."""


@dataclass(frozen=True)
class Exempt:
    """Why a datagram of a recording cannot be decoded, and what the decoder must say."""

    reason: str
    error: str


def line_numbers(text: str) -> list[int]:
    """The lines of "3, 7-9": 3, 7, 8, 9."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def exemptions(file: str) -> dict[int, Exempt]:
    found: dict[int, Exempt] = {}
    for entry in json.loads((TRACES / "undecodable.json").read_text()):
        if entry["file"] == file:
            for line in line_numbers(entry["lines"]):
                assert line not in found, f"{file}:{line} is listed twice"
                found[line] = Exempt(entry["reason"], entry["error"])
    return found


def datagrams(path: Path) -> dict[int, tuple[str, bytes]]:
    records = {number: json.loads(line) for number, line in enumerate(path.read_text().splitlines(), 1)}
    return {
        number: (record["dir"], bytes.fromhex(record["hex"]))
        for number, record in records.items()
        if record["dir"] != "note"
    }


def decode(direction: str, data: bytes) -> Message | Truncated:
    return decode_request(data) if direction == "c>s" else decode_reply(data, limit=LIMIT)


def complaint(direction: str, data: bytes, exempt: Exempt | None) -> str:
    """What is wrong with how a datagram decodes; empty if nothing is."""
    try:
        decoded = decode(direction, data)
    except RemoteProtocolError as error:
        if exempt is None:
            return f"does not decode: {error}"
        if error.data != data or exempt.error not in error.message:
            return f"should raise {exempt.error!r}, raised: {error}"
        return ""
    if exempt is not None:
        return f"is listed as undecodable ({exempt.reason}), but decodes as {decoded}"
    message = decoded.message if isinstance(decoded, Truncated) else decoded
    encoded = message.encode(end=len(data) > len(message.encode()))
    return "" if encoded == data else f"encodes to {encoded.hex()} instead of {data.hex()}: {decoded}"


def test_there_are_recordings() -> None:
    assert len(RECORDINGS) == 17


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_every_datagram_decodes_and_encodes_to_the_same_bytes(path: Path) -> None:
    exempt = exemptions(path.name)
    complaints = [
        f"{path.name}:{number} {direction} {text}"
        for number, (direction, data) in datagrams(path).items()
        if (text := complaint(direction, data, exempt.get(number)))
    ]
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize("line, announced", [(20, 300), (29, 200_000_000)])
def test_a_recorded_list_of_ids_that_the_server_cut_says_so(line: int, announced: int) -> None:
    direction, data = datagrams(TRACES / "s03b_value_reg_overflow.jsonl")[line]
    decoded = decode(direction, data)
    assert isinstance(decoded, Truncated)
    assert isinstance(decoded.message, RegisterForValueAck)
    assert (len(data), decoded.received, decoded.announced) == (1022, 254, announced)


# --- our client in the place of the recorded ones --------------------------------------------------------------------


@pytest.mark.parametrize("name", recorded_clients.RECORDINGS)
def test_our_client_sends_what_the_recorded_one_sent_but_for_what_is_listed(name: str) -> None:
    assert recorded_clients.differences(name) == recorded_clients.expected()[name], (
        "python -m tests.osp.recorded_clients"
    )


@pytest.mark.parametrize("name", ["s02_agents", "o01_ode_arena", "a01_aseries_fall"])
def test_where_nothing_was_provoked_steps_and_resets_are_byte_for_byte_the_recorded_ones(name: str) -> None:
    listed = recorded_clients.expected()[name]
    assert "NEXT_SIMULATION_STEP" not in listed
    assert "RESET_SIMULATION" not in listed
