"""What a program may give a session by mistake: it is told what was expected, and the session goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ospbridge.errors import ConfigurationError, LocalProtocolError, UsageError
from ospbridge.osp.timing import Limits
from ospbridge.session.blocking import BlockingSession
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.session.drivers import Driver

pytestmark = pytest.mark.loopback
Session: Any = BlockingSession
"""Without its types, against which these tests offend."""


@pytest.fixture(scope="module")
def simulator() -> Iterator[UdpSimulator]:
    with UdpSimulator(SyntheticWorld(2, 3, 1, agents=2), port=0) as running:
        yield running


@pytest.fixture(scope="module")
def used(simulator: UdpSimulator) -> Iterator[Any]:
    """A session that has agent1, after a reset."""
    with Driver().playing(simulator, "agent1") as session:
        yield session


MISTAKES: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "agents in a list": (
        lambda session: session.register(["agent1", "agent2"]),
        r"the name of an agent must be a string, got \['agent1', 'agent2'\]",
        "'robot1', 'robot2'",
    ),
    "values in a list": (
        lambda session: session.watch(["/Simulation/Seed"]),
        r"the name of a value must be a string, got \['/Simulation/Seed'\]",
        "one by one",
    ),
    "no expression": (lambda session: session.values(None), "regular expression must be a string", ".*"),
    "a number as content": (
        lambda session: session.set("/Simulation/Seed", 3),
        "the content of a value must be a string, got 3",
        "values travel as text",
    ),
    "inputs without names": (
        lambda session: session.step([[0.0, 0.0]]),
        r"a mapping from the name of each controlled agent to its inputs, got \[\[0.0, 0.0\]\]",
        "BlockingSession.step_one",
    ),
    "another agent's inputs": (
        lambda session: session.step({"other": [0.0, 0.0]}),
        r"missing \['agent1'\], not controlled \['other'\]",
        "",
    ),
    "a seed that is too large": (
        lambda session: session.reset(2**31),
        "a seed must be an integer from -2147483648 to 2147483647, got 2147483648",
        "don't care",
    ),
    "a seed with a fraction": (lambda session: session.reset(1.5), "must be an integer .* got 1.5", ""),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_tells_what_was_expected_and_costs_nothing(mistake: str, used: Any) -> None:
    call, told, hint = MISTAKES[mistake]
    with pytest.raises(LocalProtocolError, match=told) as caught:
        call(used)
    assert hint in caught.value.hint
    assert used.controlled == ("agent1",)
    used.step_one([0.0, 0.0])
    # Nothing was sent: neither a part of what was asked for, nor what the simulator refuses.
    assert used.pop_notices() == []
    assert used.audit() == ""


def test_step_one_says_what_to_do_with_none_or_several_agents() -> None:
    with (
        UdpSimulator(SyntheticWorld(2, 3, 1, agents=2), port=0) as simulator,
        Driver().connect(simulator) as session,
    ):
        with pytest.raises(LocalProtocolError, match="controls 0 agents, not one") as caught:
            session.step_one([0.0, 0.0])
        assert "register first" in caught.value.hint
        with pytest.raises(LocalProtocolError, match="controls no agent cannot step"):
            session.step({"agent1": [0.0, 0.0]})
        session.register("agent1", "agent2")
        with pytest.raises(LocalProtocolError, match="controls 2 agents, not one") as caught:
            session.step_one([0.0, 0.0])
        assert "by its name" in caught.value.hint
        # One pattern need not stand in a list.
        assert session.matching("agent*") == session.matching(["agent*"]) == ("agent1", "agent2")


def test_a_seed_of_numpy_is_a_seed(used: Any) -> None:
    outputs = []
    for seed in (5, np.int64(5), np.random.default_rng(1).integers(5, 6)):
        used.reset(seed)
        outputs.append(used.step_one([0.5, 0.5]).outputs)
    np.testing.assert_array_equal(outputs[0], outputs[1])
    np.testing.assert_array_equal(outputs[0], outputs[2])


@pytest.mark.parametrize("address", [None, 45454, b"127.0.0.1:45454", ("127.0.0.1", 45454)])
def test_what_is_no_address_is_told_with_the_form_of_one(address: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not a simulator's address: it is no string") as caught:
        Session.connect(address)
    assert "HOST:PORT" in caught.value.hint


@pytest.mark.parametrize(
    "options, told, hint",
    [
        ({"trace": "trace.jsonl"}, "trace must be a TraceWriter, got ", "TraceWriter(FILE)"),
        ({"trace": Path("trace.jsonl")}, "trace must be a TraceWriter, got ", "TraceWriter(FILE)"),
        ({"limits": {"step": 5.0}}, "limits must be a Limits", "Limits(step=5.0)"),
    ],
)
def test_what_is_no_trace_and_what_are_no_limits_is_told(
    either: Driver, simulator: UdpSimulator, options: dict[str, Any], told: str, hint: str
) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        either.connect(simulator, **options)
    assert hint in caught.value.hint


def test_the_directory_of_leases_may_be_text(simulator: UdpSimulator, tmp_path: Path) -> None:
    leases = tmp_path / "leases"
    with Driver().connect(simulator, leases=str(leases)) as session:
        assert session.agents()
        assert list(leases.iterdir()) != []


@pytest.mark.parametrize("wrong", [0, -1])
def test_a_limit_that_is_no_memory_is_refused(wrong: int) -> None:
    with pytest.raises(ValueError, match="memory limit must be a positive number of bytes"):
        Limits(memory=wrong)
