"""The server machine: either dialect, requests in order, and bad input that costs one connection only."""

from __future__ import annotations

from typing import Any

import pytest

from ospbridge.errors import LocalProtocolError, RemoteProtocolError
from ospbridge.rllink.checking import Needs
from ospbridge.rllink.dialects import DIALECTS, JSON, MSGPACK, Dialect
from ospbridge.rllink.messages import (
    Episodes,
    EpisodesAndGetState,
    GetConfig,
    GetState,
    Message,
    Ping,
    Pong,
    SetConfig,
    SetState,
)
from ospbridge.rllink.server import EpisodesArrived, Greeted, Ignored, ServerMachine, StateWanted
from ospbridge.rllink.weights import OnnxWeights
from tests.rllink.episodes import episode
from tests.rllink.pair import CONFIG, weights
from tests.rllink.recordings import body_of, golden

BOTH = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)


def said(server: ServerMachine) -> list[Message]:
    assert server.dialect is not None
    return [server.dialect.decode(body_of(data)) for data in server.data_to_send()]


def events(server: ServerMachine) -> list[Any]:
    return list(iter(server.next_event, None))


@BOTH
def test_the_dialect_is_that_of_the_first_message(dialect: Dialect) -> None:
    server = ServerMachine(CONFIG)
    server.receive(golden()[f"{dialect.name} PING"])
    assert server.dialect is dialect
    assert server.data_to_send() == [golden()[f"{dialect.name} PONG"]]
    assert events(server) == [Greeted(dialect)]


@BOTH
def test_weights_are_sent_when_the_caller_has_them(dialect: Dialect) -> None:
    server = ServerMachine(CONFIG)
    server.receive(dialect.encode(GetState()))
    assert events(server) == [StateWanted(learned=False)]
    assert server.data_to_send() == []
    policy = OnnxWeights(b"model", 3)
    server.send_state(policy)
    assert said(server) == [SetState(policy)]


@BOTH
def test_experience_arrives_before_the_wish_for_weights(dialect: Dialect) -> None:
    server = ServerMachine(CONFIG)
    server.receive(dialect.encode(Episodes((episode(3),))))
    server.receive(dialect.encode(EpisodesAndGetState((episode(4), episode(2)))))
    first, second, wanted = events(server)
    assert isinstance(first, EpisodesArrived)
    assert isinstance(second, EpisodesArrived)
    assert (first.steps, second.steps) == (3, 6)
    assert wanted == StateWanted(learned=True)


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


@BOTH
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


@BOTH
def test_a_bad_episode_is_refused_whole(dialect: Dialect) -> None:
    server = ServerMachine(CONFIG, needs=Needs(id=False, observation_size=9))
    with pytest.raises(RemoteProtocolError, match="must have 9 numbers a row of observations"):
        server.receive(dialect.encode(Episodes((episode(3, observation=9), episode(5)))))
    assert events(server) == []


@BOTH
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


@BOTH
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
