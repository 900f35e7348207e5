"""The server machine and the framing below it: requests in order, and bad input that costs one connection only."""

from __future__ import annotations

from typing import Any

import pytest

from ospbridge.errors import LocalProtocolError, RemoteProtocolError
from ospbridge.rllink.batches import Needs
from ospbridge.rllink.dialects import JSON, MSGPACK, Dialect, dialect_of
from ospbridge.rllink.framing import LARGEST_BODY, LARGEST_TAKEN, Deframer, header
from ospbridge.rllink.messages import (
    Episodes,
    EpisodesAndGetState,
    GetConfig,
    GetState,
    Message,
    OnnxWeights,
    Ping,
    Pong,
    SetConfig,
    SetState,
)
from ospbridge.rllink.server import EpisodesArrived, Greeted, Ignored, ServerMachine, StateWanted
from tests.rllink.episodes import episode
from tests.rllink.pair import CONFIG, weights
from tests.rllink.recordings import body_of, golden


def said(server: ServerMachine) -> list[Message]:
    assert server.dialect is not None
    return [server.dialect.decode(body_of(data)) for data in server.data_to_send()]


def events(server: ServerMachine) -> list[Any]:
    return list(iter(server.next_event, None))


def test_the_dialect_is_that_of_the_first_message(dialect: Dialect) -> None:
    server = ServerMachine(CONFIG)
    server.receive(golden()[f"{dialect.name} PING"])
    assert server.dialect is dialect
    assert server.data_to_send() == [golden()[f"{dialect.name} PONG"]]
    assert events(server) == [Greeted(dialect)]


def test_nothing_is_read_while_weights_are_due() -> None:
    server = ServerMachine(CONFIG)
    ping, config = MSGPACK.encode(Ping()), MSGPACK.encode(GetConfig())
    server.receive(MSGPACK.encode(EpisodesAndGetState((episode(3),))) + ping)
    assert not server.reading
    server.receive(config[:5])
    server.receive(config[5:])
    assert server.data_to_send() == []
    server.send_state(weights(1))
    assert server.reading
    assert [type(message) for message in said(server)] == [SetState, Pong, SetConfig]


def test_a_client_that_sends_on_and_on_while_weights_are_due_is_refused() -> None:
    server = ServerMachine(CONFIG)
    server.receive(MSGPACK.encode(GetState()))
    for _ in range(16):
        server.receive(bytes(1024 * 1024))
    with pytest.raises(RemoteProtocolError, match="to wait for its weights"):
        server.receive(b"1")
    assert not server.reading


def test_weights_may_be_sent_unasked_once_the_dialect_is_known() -> None:
    server = ServerMachine(CONFIG)
    with pytest.raises(LocalProtocolError, match="before the client's dialect"):
        server.send_state(weights(1))
    server.receive(JSON.encode(Ping()))
    server.send_state(weights(1))
    assert [type(message) for message in said(server)] == [Pong, SetState]


@pytest.mark.parametrize("message", [Pong(), SetConfig(1), SetState(weights(1))])
def test_what_only_servers_say_is_ignored_as_real_ones_do(dialect: Dialect, message: Message) -> None:
    server = ServerMachine(CONFIG)
    server.receive(dialect.encode(message))
    (event,) = events(server)
    assert isinstance(event, Ignored)
    server.receive(dialect.encode(Ping()))
    assert said(server) == [Pong()]


@pytest.mark.parametrize(
    "data, named",
    [
        (b"nonsense and more", "eight ASCII digits"),
        (b"00000004what", "in JSON or msgpack"),
        (b'00000016{"type": "HELL"}', "one of the type 'HELL'"),
        (b'00000010{"a": "b"}', "key type is missing"),
        (b'00000034{"type": "EPISODES", "episodes": 1}'[:42], "RLlink message"),
    ],
)
def test_bad_input_ends_the_connection_with_a_clear_error(data: bytes, named: str) -> None:
    server = ServerMachine(CONFIG)
    with pytest.raises(RemoteProtocolError, match=named) as caught:
        server.receive(data)
    assert server.lost is caught.value
    assert caught.value.hint
    server.receive(MSGPACK.encode(Ping()))
    assert server.data_to_send() == []


def test_a_bad_episode_is_refused_whole(dialect: Dialect) -> None:
    server = ServerMachine(CONFIG, needs=Needs(id=False, observation_size=9))
    with pytest.raises(RemoteProtocolError, match="must have 9 numbers a row of observations"):
        server.receive(dialect.encode(Episodes((episode(3, observation=9), episode(5)))))
    assert events(server) == []


def test_experience_behind_a_wish_for_weights_counts_whatever_comes_behind_it(dialect: Dialect) -> None:
    server = ServerMachine(CONFIG)
    said_before = (
        dialect.encode(GetState()) + dialect.encode(Episodes((episode(3),))) + dialect.encode(Ping())
    )
    server.receive(said_before + b"nonsense")
    assert events(server) == [StateWanted(learned=False)]
    with pytest.raises(RemoteProtocolError, match="eight ASCII digits") as caught:
        server.send_state(weights(1))
    assert server.lost is caught.value
    arrived, greeted = events(server)
    assert isinstance(arrived, EpisodesArrived)
    assert greeted == Greeted(dialect)
    assert [type(message) for message in said(server)] == [SetState, Pong]


@pytest.mark.parametrize(
    "length, told",
    [(3, "3 of 8 bytes of a header"), (8, "0 of [0-9]+ bytes of a message"), (50, "42 of [0-9]+")],
)
def test_a_stream_that_ends_in_the_middle_of_a_message_is_told(
    dialect: Dialect, length: int, told: str
) -> None:
    server = ServerMachine(CONFIG)
    server.receive(dialect.encode(Ping()) + dialect.encode(Episodes((episode(3),)))[:length])
    with pytest.raises(RemoteProtocolError, match=f"the rest of a message.* {told}") as caught:
        server.eof()
    assert server.lost is caught.value
    assert caught.value.hint
    server.eof()


# --- headers of eight digits, and bodies out of chunks of any size -------------------------------------------------


def framed(body: bytes) -> bytes:
    return header(len(body)) + body


def test_a_server_that_knows_the_dialect_may_speak_first() -> None:
    machine = ServerMachine(CONFIG, dialect=JSON)
    machine.send_state(OnnxWeights(b"model", 1))
    (sent,) = machine.data_to_send()
    assert JSON.decode(sent[8:]) == SetState(OnnxWeights(b"model", 1))


@pytest.mark.parametrize("first", range(256))
def test_the_first_byte_of_a_map_tells_the_dialect(first: int) -> None:
    body = bytes([first])
    if body in (b"{", b" ", b"\t", b"\r", b"\n"):
        assert dialect_of(body) is JSON
    elif first in (*range(0x80, 0x90), 0xDE, 0xDF):
        assert dialect_of(body) is MSGPACK
    else:
        with pytest.raises(RemoteProtocolError, match="expected a map"):
            dialect_of(body)


def test_an_empty_body_has_a_length_too() -> None:
    assert header(0) == b"00000000"


@pytest.mark.parametrize("length", [LARGEST_BODY + 1, -1])
def test_a_length_that_eight_digits_cannot_say_is_refused_before_sending(length: int) -> None:
    with pytest.raises(LocalProtocolError, match="does not fit RLlink's header") as caught:
        header(length)
    assert "split" in caught.value.hint


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


def test_what_is_unfinished_is_told() -> None:
    deframer = Deframer()
    assert list(deframer.bodies(b"0000")) == []
    assert not deframer.empty
    assert deframer.unfinished() == "4 of 8 bytes of a header"
    assert list(deframer.bodies(b"0010abc")) == []
    assert deframer.unfinished() == "3 of 10 bytes of a message"
