"""Whatever clients send, the server machine neither raises nor loses count, and what it says decodes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ospbridge.osp.codes import Code
from ospbridge.osp.messages import decode_reply
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.server.machine import CloseHandler, OpenHandler, Send, ServerMachine
from tests.osp.served import EchoWorld

both = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda profile: profile.name)

small = st.integers(-2, 4)
requests = st.one_of(
    st.binary(max_size=64),
    st.builds(lambda code, rest: bytes((code,)) + rest, st.sampled_from(list(Code)), st.binary(max_size=40)),
    st.sampled_from([b"\x5a", b"\x5d", b"\x61", b"\x56", b"\x4c", b"\x4b", b"\x07", b"\x0a", b"\x28.*\0"]),
    st.builds(
        lambda code, number: struct.pack("<Bi", code, number),
        st.sampled_from([30, 50, 70, 95, 100, 100, 105]),
        small,
    ),
    st.builds(
        lambda agent, count, values: struct.pack(f"<Bii{len(values)}f", 80, agent, count, *values),
        small,
        small,
        st.lists(st.floats(width=32), max_size=4),
    ),
    st.builds(
        lambda code, ids: struct.pack(f"<Bi{len(ids)}i", code, len(ids), *ids),
        st.sampled_from([54, 56]),
        st.lists(small, max_size=5),
    ),
    st.sampled_from([b"\x14/Control/StepCompleted\0", b"\x34\1\0\0\0" + b"0.5\0"]),
)
actions = st.lists(
    st.one_of(
        st.tuples(st.just("datagram"), st.integers(1, 4), requests),
        st.tuples(st.just("init"), st.integers(1, 3), st.binary(max_size=9)),
        st.tuples(st.just("wait"), st.integers(0, 60), st.just(b"")),
    ),
    max_size=60,
)


def joined(machine: ServerMachine, profile: Profile) -> None:
    """Two clients that know the agents; the first controls one."""
    init = b"\x05\x01\x01" if profile is NERD else struct.pack("<Bii", 5, 1, 1)
    for port in (1, 2):
        machine.receive_main(init, ("127.0.0.1", port), 0.0)
    machine.handle_timer(0.1)
    for handler in (1, 2):
        machine.receive(handler, b"\x5a", 0.1)
        machine.receive(handler, b"\x5d", 0.1)
    machine.receive(1, struct.pack("<Bi", 100, 1), 0.1)


def echoes_a_negative_count(data: bytes) -> bool:
    """A NERD server repeats even an absurd number of values (F25); no decoder has to take that."""
    return data[0] in (55, 57) and len(data) >= 5 and data[4] >= 0x80


@both
@given(actions=actions, stalls=st.lists(st.booleans(), max_size=8))
def test_any_sequence_of_datagrams_is_survived(
    profile: Profile, actions: list[tuple[str, int, bytes]], stalls: list[bool]
) -> None:
    pending = iter(stalls)
    world = EchoWorld((2, 2, 1), (0, 300, 0))
    machine = ServerMachine(world, profile, stall=lambda: next(pending, False), max_handlers=5)
    joined(machine, profile)
    now = 0.2
    alive: set[int] = set()
    for kind, number, data in actions:
        if kind == "datagram":
            machine.receive(number, data, now)
        elif kind == "init":
            machine.receive_main(data, ("127.0.0.1", number), now)
        else:
            now += number / 1000
        deadline = machine.next_deadline()
        if deadline is not None and deadline <= now:
            machine.handle_timer(now)
        for effect in machine.take_effects():
            if isinstance(effect, OpenHandler):
                alive.add(effect.handler_id)
            elif isinstance(effect, CloseHandler):
                alive.discard(effect.handler_id)
            else:
                assert isinstance(effect, Send)
                assert effect.handler_id in alive
                assert profile.datagram_limit is None or len(effect.data) < profile.datagram_limit
                if not echoes_a_negative_count(effect.data):
                    decode_reply(effect.data, limit=profile.datagram_limit)
        assert machine.handlers == len(alive) <= 5
        assert machine.controlled == sum(control.handler is not None for control in machine.controls)
        assert machine.controlled or not machine.due
