"""Listing the value repository while the answers to several questions are under way at once."""

from __future__ import annotations

import random
import subprocess
from typing import TYPE_CHECKING

import pytest

from ospbridge.errors import RemoteProtocolError
from ospbridge.osp.client.clock import SIMULATION_TIME, TIME_STEP_SIZE
from ospbridge.osp.client.listing import find_value, literal
from ospbridge.osp.client.machine import ClientMachine
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import Message, ValueIds, ValueInfo
from ospbridge.osp.patterns import compiled
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.pair import Datagram, Pair
from tests.osp.test_bursts import run

if TYPE_CHECKING:
    from collections.abc import Iterable

BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
ROOM = 80
"""Datagrams of one burst that find room in the receive buffer."""


@BOTH
@pytest.mark.parametrize("seed", range(6))
def test_a_busy_simulators_late_answers_are_never_taken_for_those_to_a_later_question(
    profile: Profile, seed: int
) -> None:
    draw = random.Random(f"{profile.name}/{seed}")
    late = 0.0
    came = 0

    def fault(datagram: Datagram) -> Iterable[float]:
        nonlocal late, came
        if datagram.to_server:
            if datagram.data[0] == Code.GET_VALUE_IDS:
                late, came = draw.choice([0.0, 0.0, 0.2, 0.4]), 0
            return (0.0,)
        came += 1
        return (late,) if came <= ROOM else ()

    pair = Pair(SyntheticWorld(1, 1, values=300), profile, fault=fault)
    client = pair.client(profile, draw=seed).connect()
    names = [entry.name for entry in client.do(client.conversation.values())]
    assert len(names) == len(set(names))
    assert set(names) == every(profile)


def every(profile: Profile) -> set[str]:
    """What a client is told that is asked nothing else."""
    pair = Pair(SyntheticWorld(1, 1, values=300), profile)
    client = pair.client(profile).connect()
    names = {entry.name for entry in client.do(client.conversation.values())}
    assert len(names) > 300
    return names


@pytest.mark.parametrize("dialect", ["-G", "-E", None], ids=["basic", "extended", "python"])
@pytest.mark.parametrize("name", ["/Base (1)/x+y", "/a.b|c?d*e", "/{2}[3]$^", "/back\\slash"])
def test_a_name_is_found_in_every_dialect_of_regular_expressions(name: str, dialect: str | None) -> None:
    for text, found in ((name, True), (name.replace("/", "/x"), False)):
        if dialect is None:
            assert bool(compiled(literal(name)).search(text)) is found
        else:
            grep = ["grep", dialect, "-q", "-e", literal(name)]
            assert (subprocess.run(grep, input=text, text=True, check=False).returncode == 0) is found


def test_a_server_that_does_not_tell_case_apart_is_not_asked_again() -> None:
    machine = ClientMachine(DOCUMENT)
    names = ("/sim/gravity", "/Sim/Gravity")

    def answers(_: bytes) -> list[Message]:
        return [ValueIds(2), *(ValueInfo(at, at + 1, "Double", name) for at, name in enumerate(names))]

    found = run(machine, find_value(machine, "/Sim/Gravity"), answers)
    assert found.id == 2
    assert machine.retries == 0


@BOTH
def test_a_server_that_numbers_each_list_anew_is_refused_before_one_value_is_taken_for_another(
    profile: Profile,
) -> None:
    pair = Pair(SyntheticWorld(1, 1), profile)
    client = pair.client(profile).connect()
    client.do(client.conversation.get(SIMULATION_TIME))
    (handler,) = pair.server._handlers.values()
    handler.values.clear()
    handler.value_ids.clear()
    with pytest.raises(
        RemoteProtocolError, match=f"the id of value '{SIMULATION_TIME}' to '/Simulation/TimeStepSize"
    ) as caught:
        client.do(client.conversation.get(TIME_STEP_SIZE))
    assert "throughout the session" in caught.value.hint
