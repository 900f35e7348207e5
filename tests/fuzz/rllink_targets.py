"""RLlink: what dialects make of any body, framing of any stream, and machines of any sequence of messages."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import orjson

from ospbridge.errors import OspBridgeError, RemoteProtocolError
from ospbridge.rllink.client import ClientMachine, Exchange
from ospbridge.rllink.dialects import DIALECTS, JSON, MSGPACK, Dialect, dialect_of
from ospbridge.rllink.exchanges import deliver, get_config, get_state, greet, learn
from ospbridge.rllink.framing import LARGEST_BODY, Deframer, header
from ospbridge.rllink.messages import Episodes, EpisodesAndGetState, ModuleWeights, SetConfig
from ospbridge.rllink.pickled import read_pickle
from ospbridge.rllink.pickled_config import config_in
from ospbridge.rllink.server import ServerMachine
from tests.fuzz.mutating import Mutate, Target, bend, bend_tree, bending, read_script
from tests.rllink.episodes import episode

TIMES = (0.0, 0.0, 0.01, 0.5, 4.0, 11.0, 40.0, 700.0)
"""Seconds that pass before a piece of a script."""
LARGEST = 100_000
FRAGMENT = episode(3)
WANTED = [Episodes((FRAGMENT,)), EpisodesAndGetState((FRAGMENT,))]


# --- bodies --------------------------------------------------------------------------------------------------------


def _decodes(dialect: Dialect) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        """Any body is a message or refused; a message that can be written is read as one of its kind."""
        try:
            assert dialect_of(data) in DIALECTS.values()
        except RemoteProtocolError as error:
            assert error.data == data
        try:
            message = dialect.decode(data)
        except RemoteProtocolError as error:
            assert error.data == data
            assert len(str(error)) < 1000
            return
        if isinstance(message, SetConfig) and message.pickled is not None:
            _settings(message.pickled)
        try:
            again = dialect.encode(message)
        except OspBridgeError:
            return
        (body,) = Deframer().bodies(again)
        assert type(dialect.decode(body)) is type(message)

    return run


def _settings(data: bytes) -> None:
    try:
        read_pickle(data)
        config_in(data)
    except RemoteProtocolError as error:
        assert str(error)


def _as_trees(load: Callable[[bytes], Any], dump: Callable[[Any], bytes]) -> Mutate:
    """Mutates what a body says in two of three cases, its bytes else."""

    def mutate(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
        if chance.random() < 0.35:
            return bend(chance, data, others)
        try:
            tree, other = load(data), load(chance.choice(others))
        except (ValueError, RecursionError):
            return bend(chance, data, others)
        spare = [other, *(other.values() if isinstance(other, dict) else ())]
        try:
            return dump(bend_tree(chance, tree, spare))
        except (TypeError, ValueError, OverflowError, RecursionError):
            return bend(chance, data, others)

    return mutate


bend_json = _as_trees(
    orjson.loads, lambda tree: orjson.dumps(tree, default=repr, option=orjson.OPT_NON_STR_KEYS)
)
bend_msgpack = _as_trees(msgspec.msgpack.decode, msgspec.msgpack.encode)


# --- streams -------------------------------------------------------------------------------------------------------


def framing(data: bytes) -> None:
    """However a stream is cut, the same bodies come out of it, or the same refusal."""
    how, pieces = read_script(data)
    largest = (1, 100, LARGEST, LARGEST_BODY)[how & 3]
    whole = Deframer(largest=largest)
    cut = Deframer(largest=largest)
    stream = b"".join(piece.data for piece in pieces)
    bodies: list[list[bytes]] = [[], []]
    refused = [False, False]
    for number, (deframer, chunks) in enumerate(((whole, [stream]), (cut, [piece.data for piece in pieces]))):
        try:
            for chunk in chunks:
                bodies[number] += map(bytes, deframer.bodies(chunk))
        except RemoteProtocolError as error:
            assert len(error.data) == 8
            refused[number] = True
    assert bodies[0] == bodies[1]
    assert refused[0] == refused[1]
    assert all(len(body) <= largest for body in bodies[0])
    if not refused[0]:
        assert whole.empty == cut.empty
        assert whole.unfinished() == cut.unfinished()


def bend_chunk(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """A message whose body is bent, with a header that fits it more often than not."""
    if chance.random() < 0.3:
        return bend(chance, data, others)
    bodies = [other[8:] for other in others]
    body = data[8:]
    bend_body = bend_json if body[:1] == b"{" else bend_msgpack
    body = bend_body(chance, body, bodies)
    return header(len(body)) + body


def _dialect(how: int) -> Dialect:
    return JSON if how & 1 else MSGPACK


EXCHANGES: tuple[Callable[[ClientMachine], Exchange[Any]], ...] = (
    greet,
    get_config,
    get_state,
    lambda machine: learn(machine, WANTED),
    lambda machine: deliver(machine, WANTED[:1]),
    lambda machine: learn(machine, WANTED[1:]),
)
"""What a script's first byte chooses from; when one has ended, the next begins."""
TIMERS_AT_MOST = 100_000
"""Weights are asked for every 20 ms, for ten minutes."""


def begin_next(machine: ClientMachine, number: int, now: float) -> None:
    if machine.finished and machine.lost is None:
        machine.begin(EXCHANGES[number % len(EXCHANGES)](machine), now)


def client(data: bytes) -> None:
    """Whatever a server says, exchanges end, with a result or a documented error; what is sent is RLlink."""
    how, pieces = read_script(data)
    dialect = _dialect(how)
    machine = ClientMachine(dialect, largest=LARGEST)
    machine.connected = bool(how & 2)
    number, now = how >> 3, 0.0
    begin_next(machine, number, now)
    for piece in pieces:
        now += TIMES[piece.how & 7]
        if piece.how & 0xC0 == 0xC0:
            machine.eof(now)
        elif piece.how & 0x80:
            machine.handle_timer(now)
        else:
            try:
                machine.receive(piece.data, now)
            except RemoteProtocolError as error:
                assert machine.lost is error
        _client_stands(machine, dialect)
        if machine.finished:
            _result(machine)
            number += 1
            begin_next(machine, number, now)
    for _ in range(TIMERS_AT_MOST):
        if machine.finished:
            break
        deadline = machine.next_deadline()
        assert deadline is not None, "an exchange waits for ever"
        machine.handle_timer(max(deadline, machine.now))
        _client_stands(machine, dialect)
    else:
        raise AssertionError("an exchange never ends")
    _result(machine)


def _client_stands(machine: ClientMachine, dialect: Dialect) -> None:
    assert machine.lost is None or machine.finished
    assert len(machine.events) <= 64
    for sent in machine.data_to_send():
        (body,) = Deframer().bodies(sent)
        if len(body) < 100:  # the long ones are the same three steps every time
            dialect.decode(body)
    machine.events.clear()


def _result(machine: ClientMachine) -> None:
    try:
        machine.result()
    except OspBridgeError as error:
        assert str(error)


CONFIG = SetConfig(env_steps_per_sample=10, force_on_policy=True)
WEIGHTS = ModuleWeights({"layer.weight": FRAGMENT.observations}, 1)


def server(data: bytes) -> None:
    """Whatever a client says, the server answers it or ends the connection; what is sent is RLlink."""
    how, pieces = read_script(data)
    machine = ServerMachine(CONFIG, dialect=_dialect(how) if how & 2 else None, largest=LARGEST)
    for piece in pieces:
        try:
            machine.receive(piece.data)
            if piece.how & 0x80 and machine.state_wanted:
                machine.send_state(WEIGHTS)
        except RemoteProtocolError as error:
            assert machine.lost is error
        assert machine.reading == (machine.lost is None and not machine.state_wanted)
        while machine.next_event() is not None:
            pass
        for sent in machine.data_to_send():
            (body,) = Deframer().bodies(sent)
            assert machine.dialect is not None
            machine.dialect.decode(body)


TARGETS = (
    Target("rllink-json", _decodes(JSON), bend_json),
    Target("rllink-msgpack", _decodes(MSGPACK), bend_msgpack),
    Target("rllink-pickle", _settings),
    Target("rllink-framing", framing, bending(bend_chunk), inputs=10_000),
    Target("rllink-client", client, bending(bend_chunk), inputs=3000, long=50_000),
    Target("rllink-server", server, bending(bend_chunk), inputs=2500, long=50_000),
)
