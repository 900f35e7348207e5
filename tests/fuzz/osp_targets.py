"""OSP: what decoders make of any datagram, and machines of any sequence of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ospbridge.errors import OspBridgeError, RemoteProtocolError, SimulatorNotFound
from ospbridge.interface import AgentInterface, Endpoint, InterfaceValue
from ospbridge.osp import agents, disconnect, queries
from ospbridge.osp.client import ClientMachine, Exchange
from ospbridge.osp.clock_reading import audit
from ospbridge.osp.codes import Code
from ospbridge.osp.connect import ConnectMachine
from ospbridge.osp.fast_path import FastPath, StepRequest
from ospbridge.osp.lists import list_values
from ospbridge.osp.messages import Message, Truncated, decode_reply, decode_request
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.reset import reset
from ospbridge.osp.server import CloseHandler, OpenHandler, Send, ServerMachine
from ospbridge.osp.step import step
from ospbridge.osp.timing import Limits
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.fuzz.mutating import Target, bending, read_script

INPUTS, OUTPUTS, INFOS = 2, 3, 1
CLOCK = 1
"""The id of the clock's variable, where it is known from the beginning."""
TIMES = (0.0, 0.0, 0.001, 0.02, 0.06, 0.3, 1.2, 40.0)
"""Seconds that pass before a piece of a script."""
LIMITS = Limits(connect=3, query=2, listing=4, step=3, reset=4)
MAIN = Endpoint("10.0.0.1", 45454)


def _checked(decode: Callable[[bytes], Message | Truncated], data: bytes) -> Message | Truncated | None:
    try:
        return decode(data)
    except RemoteProtocolError as error:
        assert error.data == data
        assert 0 <= error.offset <= len(data)
        return None


def replies(data: bytes) -> None:
    """A whole datagram comes back from its message; one that was cut makes a message that can be written."""
    message = _checked(decode_reply, data)
    if message is not None and data[0] != Code.AGENT_INFO_NEXT:  # a signalling NaN becomes a quiet one there
        assert data in (message.encode(), message.encode(end=True))  # type: ignore[union-attr]  # no limit, no cut
    for limit in (1024, len(data) + 1):
        cut = _checked(lambda data: decode_reply(data, limit=limit), data)  # noqa: B023  # called at once
        if isinstance(cut, Truncated):
            assert cut.message.encode()[0] == data[0]


def requests(data: bytes) -> None:
    message = _checked(decode_request, data)
    if message is not None:
        assert isinstance(message, Message)
        assert data in (message.encode(), message.encode(end=True))


# --- the client's machine ------------------------------------------------------------------------------------------


def profile_of(how: int) -> Profile:
    return NERD if how & 1 else DOCUMENT


def on_stage(profile: Profile, *, clock: bool) -> tuple[ClientMachine, StepRequest]:
    """A machine that controls an agent."""
    machine = ClientMachine(profile, limits=LIMITS)
    agent = AgentInterface(
        1,
        "agent",
        (InterfaceValue("/motor", -1, 1),) * INPUTS,
        (InterfaceValue("/sensor", -1, 1),) * OUTPUTS,
        (InterfaceValue("/info", 0, 1),) * INFOS,
    )
    machine.controlled[1] = agent
    if clock:
        machine.clock.value_id = CLOCK
        machine.clock.start(0.0)
        machine.clock.size = 0.01
    return machine, StepRequest(agent, profile)


def _step(machine: ClientMachine, request: StepRequest) -> Exchange[Any]:
    path = FastPath((request,), pipelining=machine.profile.pipelining)
    return (yield from step(machine, path))


def _two_steps(machine: ClientMachine, request: StepRequest) -> Exchange[Any]:
    yield from _step(machine, request)
    return (yield from _step(machine, request))


def _observed_step(machine: ClientMachine, request: StepRequest) -> Exchange[Any]:
    if machine.profile.values_are_pushed:
        yield from queries.observe(machine, {CLOCK: "/Simulation/SimulationTime"})
    return (yield from _step(machine, request))


EXCHANGES: tuple[Callable[[ClientMachine, StepRequest], Exchange[Any]], ...] = (
    _two_steps,
    lambda m, _: reset(m, 7),
    lambda m, _: agents.overview(m),
    lambda m, _: agents.agent_info(m, 1),
    _observed_step,
    lambda m, _: list_values(m, ".*"),
    lambda m, _: queries.get_value(m, CLOCK),
    lambda m, _: queries.set_value(m, CLOCK, "1"),
    lambda m, _: queries.register_event(m, "/Synthetic/Mark"),
    lambda m, request: agents.register(m, request.agent),
    lambda m, _: audit(m),
    lambda m, _: agents.deregister(m, 1),
    lambda m, _: disconnect.reset_communication(m),
    lambda m, _: disconnect.leave(m, tuple(m.controlled)),
)
"""What a script's first byte chooses from; when one has ended, the next begins."""
TIMERS_AT_MOST = 2000


def begin_next(machine: ClientMachine, request: StepRequest, number: int, now: float) -> None:
    if machine.finished and machine.lost is None:
        machine.begin(EXCHANGES[number % len(EXCHANGES)](machine, request), now)


def client(data: bytes) -> None:
    """Whatever comes, the client's exchanges end, with a result or a documented error, and what it sends is OSP."""
    how, pieces = read_script(data)
    machine, request = on_stage(profile_of(how), clock=bool(how & 2))
    if how & 4:
        machine.episode.barrier_unknown = True
    number, now = how >> 3, 0.0
    begin_next(machine, request, number, now)
    for piece in pieces:
        now += TIMES[piece.how & 7]
        if piece.how & 0x80:
            machine.handle_timer(now)
        elif piece.how & 0x40 and piece.how & 0x20:
            machine.handle_refused(now)
        else:
            _given(machine, piece.data, now)
        if machine.finished:
            _result(machine)
            number += 1
            begin_next(machine, request, number, now)
        _sent_is_osp(machine)
    for _ in range(TIMERS_AT_MOST):
        if machine.finished:
            break
        assert machine.deadline is not None, "an exchange waits for ever"
        machine.handle_timer(max(machine.deadline, machine.now))
        _sent_is_osp(machine)
    else:
        raise AssertionError("an exchange never ends")
    _result(machine)


def _given(machine: ClientMachine, data: bytes, now: float) -> None:
    try:
        machine.receive(data, now)
    except RemoteProtocolError as error:
        assert error.data == data


def _result(machine: ClientMachine) -> None:
    try:
        machine.result()
    except OspBridgeError as error:
        assert str(error)


def _sent_is_osp(machine: ClientMachine) -> None:
    assert len(machine.outgoing) < 100
    for sent in machine.outgoing:
        decode_request(bytes(sent))
    machine.outgoing.clear()


def connecting(data: bytes) -> None:
    """Whatever answers an INIT, a handler of the server's host is adopted or an error says why not."""
    how, pieces = read_script(data)
    machine = ConnectMachine(MAIN, (None, DOCUMENT, NERD)[how % 3], limits=LIMITS, now=0.0)
    now = 0.0
    try:
        for piece in pieces:
            now += TIMES[piece.how & 7]
            if piece.how & 0x80:
                machine.handle_timer(now)
            else:
                host = MAIN.host if piece.how & 0x40 else "10.0.0.9"
                machine.receive(piece.data, Endpoint(host, 50_000 + (piece.how >> 3 & 3)), now)
            if machine.finished:
                break
        for _ in range(TIMERS_AT_MOST):
            if machine.finished:
                break
            machine.handle_timer(machine.deadline)
        else:
            raise AssertionError("joining never ends")
    except SimulatorNotFound:
        assert not machine.finished
        return
    assert machine.answered is not None
    assert machine.answered[0].host == MAIN.host


# --- the server's machine ------------------------------------------------------------------------------------------


def serving(profile: Profile) -> ServerMachine:
    """Two agents, one of which sends more than a datagram of NERD holds."""
    world = SyntheticWorld(INPUTS, OUTPUTS, INFOS, agents=2, values=2)
    return ServerMachine(world, profile, max_handlers=4)


def server(data: bytes) -> None:
    """Whatever clients send, the server goes on, counts right, and what it says is OSP."""
    how, pieces = read_script(data)
    profile = profile_of(how)
    machine = serving(profile)
    limit = profile.datagram_limit
    alive: set[int] = set()
    now = 0.0
    for piece in pieces:
        now += TIMES[piece.how & 7]
        who = piece.how >> 3 & 7
        if who == 0:
            machine.receive_main(piece.data, ("10.0.0.2", piece.how >> 6), now)
        else:
            machine.receive(who, piece.data, now)
        deadline = machine.next_deadline()
        if not piece.how & 0x80 and deadline is not None and deadline <= now:
            with np.errstate(all="ignore"):  # of the world, which counts with what it is given
                machine.handle_timer(now)
        effects = machine.take_effects()
        assert len(effects) < 200
        for effect in effects:
            if isinstance(effect, OpenHandler):
                alive.add(effect.handler_id)
            elif isinstance(effect, CloseHandler):
                alive.remove(effect.handler_id)
            else:
                assert isinstance(effect, Send)
                assert effect.handler_id in alive
                assert limit is None or len(effect.data) < limit
                decode_reply(effect.data, limit=limit)
        assert machine.handlers == len(alive) <= 4
        assert machine.controlled == sum(control.handler is not None for control in machine.controls)
        assert machine.controlled or not machine.due


TARGETS = (
    Target("osp-reply", replies),
    Target("osp-request", requests),
    Target("osp-client", client, bending(), inputs=4000, long=100_000),
    Target("osp-connecting", connecting, bending(), inputs=5000, long=100_000),
    Target("osp-server", server, bending(), inputs=2000, long=50_000),
)
