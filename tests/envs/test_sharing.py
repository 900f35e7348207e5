"""Sessions of environments: shared by several in one thread, and rebuilt for simulators that come back otherwise."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from ospbridge.envs import sharing
from ospbridge.errors import (
    AgentsInUse,
    AgentTaken,
    BarrierStuck,
    LocalProtocolError,
    QueryTimeout,
    SessionLost,
    UsageError,
)
from ospbridge.osp.profile import DOCUMENT, NERD
from ospbridge.session.blocking import BlockingSession
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.kinds import parallel, single, step, vector

pytestmark = pytest.mark.loopback


@pytest.fixture
def address() -> Iterator[str]:
    with UdpSimulator(SyntheticWorld(2, 3, agents=2), port=0, profile=DOCUMENT) as simulator:
        yield str(simulator.address)


def the_session() -> BlockingSession:
    (shared,) = sharing._shared.values()
    return shared.session


# --- what can be honoured --------------------------------------------------------------------------------------------


def test_the_limits_of_the_environment_that_was_reset_last_count(address: str) -> None:
    patient = single(address, agent="agent1", step_timeout=20.0)
    hasty = single(address, agent="agent1", step_timeout=0.4, reset_timeout=0.5)
    hasty.reset(seed=1)
    assert the_session().machine.limits.step == 0.4
    assert the_session().machine.limits.reset == 0.5
    with BlockingSession.connect(address) as other:
        other.register("agent2")
        with pytest.raises(BarrierStuck, match=r"0\.4 s"):
            step(hasty)
        with pytest.raises(BarrierStuck):
            hasty.reset(seed=2)
    patient.reset(seed=3)
    assert the_session().machine.limits.step == 20.0
    assert the_session().machine.limits.reset == 60.0
    hasty.close()
    step(patient)
    patient.close()


def test_a_rebuild_has_the_terms_of_the_environment_that_is_reset(address: str) -> None:
    first = single(address, agent="agent1", query_timeout=4.0)
    second = single(address, agent="agent1", query_timeout=3.0, spin=False, wait=2.0, profile="document")
    first.reset(seed=1)
    (shared,) = sharing._shared.values()
    shared.give_up(QueryTimeout("it fell silent"))
    before = shared.session
    second.reset(seed=2)
    assert shared.session is not before
    assert shared.session.machine.limits.query == 3.0
    assert shared.session._spinning.most == 0
    assert (shared.options.wait, shared.options.profile) == (2.0, "document")
    with pytest.raises(LocalProtocolError, match=r"was reset later.*an agent each"):
        step(first)
    first.reset(seed=3)
    assert shared.session.machine.limits.query == 4.0
    second.close()
    first.close()


# --- what cannot -----------------------------------------------------------------------------------------------------


def test_another_profile_than_the_session_has_is_refused_with_the_way_out(address: str) -> None:
    first = single(address, agent="agent1")
    with pytest.raises(
        UsageError, match=r"profile='nerd' was given, but .* agent 'agent1' .* 'document'"
    ) as told:
        single(address, agent="agent1", profile=NERD.name)
    assert "profile='document'" in told.value.hint
    assert "close the earlier one" in told.value.hint
    for profile in ("document", "auto"):
        single(address, agent="agent1", profile=profile).close()
    first.reset(seed=1)
    step(first)
    first.close()


@pytest.mark.parametrize("made", [single, vector, parallel])
def test_spaces_are_never_those_of_another_kind_of_server(made: Callable[..., Any]) -> None:
    with UdpSimulator(SyntheticWorld(2, 3), port=0, profile=NERD) as simulator:
        host, port = simulator.address.host, simulator.address.port
        env = made(str(simulator.address))
        env.reset(seed=1)
    step(env)
    with UdpSimulator(SyntheticWorld(2, 3), host=host, port=port, profile=DOCUMENT):
        with pytest.raises(SessionLost, match="came back as a server of profile 'document'"):
            env.reset(seed=2)
        env.close()


def test_a_trace_of_its_own_is_refused_where_another_is_written_or_none(address: str, tmp_path: Path) -> None:
    file, other = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    first = single(address, agent="agent1")
    with pytest.raises(UsageError, match=r"second\.jsonl' was given, but .* writes no trace") as told:
        single(address, agent="agent1", trace=str(other))
    assert "made first" in told.value.hint
    first.close()
    first = single(address, agent="agent1", trace=str(file))
    with pytest.raises(UsageError, match=r"second\.jsonl' was given, but .* its trace to '.*first\.jsonl'"):
        single(address, agent="agent1", trace=str(other))
    for same in (os.path.relpath(file), None):
        single(address, agent="agent1", trace=same).close()
    assert not other.exists()
    first.close()


@pytest.mark.parametrize("made", [vector, parallel])
def test_environments_of_several_agents_never_share_and_say_so(
    made: Callable[..., Any], address: str
) -> None:
    env = made(address, agents="agent1")
    for again in (made, single):
        with pytest.raises(AgentsInUse, match=r"agent 'agent1' of .*, for whichever is free,") as told:
            again(address)
        assert "close that one first" in told.value.hint
    env.close()
    env = single(address, agent="agent1")
    with pytest.raises(AgentsInUse, match=r"agent 'agent1' of .*, for 'agent2',") as told:
        made(address, agents="agent2")
    assert "close that one first" in told.value.hint
    env.close()


def test_agents_that_an_environment_of_another_thread_has_are_told_as_such(address: str) -> None:
    with ThreadPoolExecutor(1) as beside:
        env = beside.submit(single, address, agent="agent1").result(30)
    for made, which in ((single, "agent"), (vector, "agents")):
        options: dict[str, Any] = {which: "agent1"}
        with pytest.raises(AgentTaken, match="another thread of this process made has agent1") as told:
            made(address, **options)
        assert "use it here too" in told.value.hint
    env.close()


# --- simulators that come back -------------------------------------------------------------------------------------


@pytest.mark.sampled(4)
@pytest.mark.parametrize("made", [single, vector, parallel])
@pytest.mark.parametrize("numbers", [(2, 4, 1), (2, 3, 2), (2, 3, 0)], ids=str)
def test_an_agent_that_comes_back_with_another_interface_is_refused_until_it_is_itself_again(
    made: Callable[..., Any], numbers: tuple[int, int, int]
) -> None:
    with UdpSimulator(SyntheticWorld(2, 3, 1), port=0) as simulator:
        address = simulator.address
        env = made(str(address), step_timeout=2.0, query_timeout=0.5)
        env.reset(seed=1)
        step(env)
    step(env)
    with UdpSimulator(SyntheticWorld(*numbers), host=address.host, port=address.port) as simulator:
        for _ in range(2):
            with pytest.raises(SessionLost, match="came back with another interface") as caught:
                env.reset(seed=2)
            assert "close this environment and make it anew" in caught.value.hint
            # Nobody's barrier waits for what it cannot use.
            assert not simulator.machine.controlled
        anew = made(str(address), step_timeout=2.0, query_timeout=0.5)
        anew.reset(seed=2)
        step(anew)
        anew.close()
    with UdpSimulator(SyntheticWorld(2, 3, 1), host=address.host, port=address.port):
        env.reset(seed=3)
        step(env)
        env.close()


@pytest.mark.timeout(60)
@pytest.mark.sampled(3)
@pytest.mark.parametrize("made", [single, vector, parallel])
@pytest.mark.parametrize("interrupted", [False, True], ids=["found", "not resolved at first"])
def test_a_simulator_that_comes_back_at_another_address_of_its_name_is_joined_there(
    made: Callable[..., Any], interrupted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a container does that is started anew."""
    resolving = socket.getaddrinfo
    answers: list[UdpSimulator | None] = []

    def found(host: str, port: int, **kind: Any) -> Any:
        if host != "simulator.test":
            return resolving(host, port, **kind)
        now = answers.pop(0) if len(answers) > 1 else answers[0]
        if now is None:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        # Another port stands for another host, of which there is only one here.
        return resolving(now.address.host, now.address.port, **kind)

    monkeypatch.setattr(socket, "getaddrinfo", found)
    with UdpSimulator(SyntheticWorld(2, 3, 1), port=0) as before:
        answers.append(before)
        env = made("simulator.test:45454", wait=120.0)
        env.reset(seed=1)
    with UdpSimulator(SyntheticWorld(2, 3, 1), port=0) as simulator:
        answers[:] = [None] * interrupted + [simulator]
        step(env)
        env.reset(seed=2)
        (shared,) = sharing._shared.values()
        assert shared.session.server == simulator.address
        with pytest.raises(AgentsInUse) if made is not single else nullcontext():
            # Whoever comes now finds it there as well.
            made("simulator.test:45454").close()
        env.close()
