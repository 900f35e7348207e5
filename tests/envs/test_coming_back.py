"""Simulators that come back otherwise than they went, and environments whose session is past mending."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from ospbridge.envs import sharing
from ospbridge.errors import (
    AgentsInUse,
    SessionLost,
    StepUncertain,
)
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.rebuild import Budget
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.kinds import parallel, single, step, vector

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.interface import AgentInterface


pytestmark = pytest.mark.loopback


@pytest.mark.parametrize("made, wait", [(single, 0.0), (single, 20.0), (vector, 20.0), (parallel, 20.0)])
def test_a_simulator_that_ends_while_it_is_joined_is_waited_for_as_one_that_is_not_there(
    made: Callable[..., Any], wait: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    register = BlockingSession.register
    with ExitStack() as stack:
        first = stack.enter_context(UdpSimulator(SyntheticWorld(2, 3, 1), port=0))
        host, port = first.address.host, first.address.port

        def come_back() -> None:
            stack.enter_context(UdpSimulator(SyntheticWorld(2, 3, 1), host=host, port=port))

        def ending(session: BlockingSession, *names: str) -> tuple[AgentInterface, ...]:
            monkeypatch.undo()
            first.stop()
            returning.start()
            return register(session, *names)

        returning = threading.Timer(0.2, come_back)
        monkeypatch.setattr(BlockingSession, "register", ending)
        with nullcontext() if wait else pytest.raises(SessionLost, match="connection refused"):
            env = made(f"{host}:{port}", wait=wait)
            env.reset(seed=1)
            env.close()
        returning.join(10)


def test_what_costs_no_rebuild_once_does_not_do_so_for_ever() -> None:
    with UdpSimulator(SyntheticWorld(2, 3, 1), port=0) as simulator:
        address = simulator.address
        env = single(str(address), step_timeout=2.0, query_timeout=0.5)
        env.reset(seed=1)
        (shared,) = sharing._shared.values()
        shared.budget = Budget(time.monotonic(), capacity=2)
        shared.give_up(StepUncertain("counted twice", by_network=True))
    with UdpSimulator(SyntheticWorld(2, 4, 1), host=address.host, port=address.port):
        for _ in range(3):
            with pytest.raises(SessionLost, match="another interface"):
                env.reset(seed=2)
        with pytest.raises(SessionLost, match="2 rebuilds are spent"):
            env.reset(seed=2)
        env.close()


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
