"""Errors as a traceback shows them."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ospbridge
from ospbridge.envs.conventions import tell, tell_of_doubt
from ospbridge.errors import (
    AgentNotFound,
    AgentTaken,
    BarrierStuck,
    ConfigurationError,
    OspBridgeError,
    RemoteProtocolError,
    ScenarioInvalid,
    StepUncertain,
)
from ospbridge.interface import Feedback
from ospbridge.observe.trace import read_trace
from ospbridge.osp.notices import Notice
from ospbridge.simulator.gym_world import GymWorld
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator

STEERS = "a\x1b]0;b\x07\u202e\x9b31m"
SHOWN = r"a\x1b]0;b\x07\u202e\x9b31m"


def test_a_name_in_an_error_cannot_steer_the_terminal_that_shows_its_traceback() -> None:
    error = AgentNotFound(f"no agent {STEERS}", hint=f"there is {STEERS}, ümlaut")
    assert str(error) == f"no agent {SHOWN} (there is {SHOWN}, ümlaut)"
    assert error.message == f"no agent {SHOWN}"


@pytest.mark.parametrize("name", ["A" * 40_000, "\u202e" * 40_000, "ü" * 40_000, "\U000e0001" * 40_000])
def test_no_name_makes_an_error_longer_than_4_kb_and_its_end_is_told(name: str) -> None:
    error = AgentTaken(f"agent {name!r} is taken", hint=f"{name} has a hint", agents=[name])
    error.add(f", like {', '.join([name] * 100)}, so far")
    for told in (str(error), repr(error), f"{error.message} {error.hint}"):
        assert len(told.encode()) < 4000
    assert "characters ..." in error.message
    assert error.message.endswith(", so far")
    assert error.hint.endswith("has a hint")
    assert error.agents == (name,), "programs get whole names"


def test_each_line_of_several_mistakes_is_short_too() -> None:
    error = ScenarioInvalid("2 mistakes", mistakes=["x"], rows=["A" * 100_000, "B" * 100_000])
    assert all(len(line) < 4000 for line in str(error).splitlines())
    assert len(error.message) < 4000


def test_a_message_is_one_line_and_each_mistake_of_several_has_its_own() -> None:
    assert AgentNotFound("no\nagent", hint="in\nlines").lines == ("no agent",)
    error = ScenarioInvalid(
        "2 mistakes", hint="mend them", mistakes=["one", "another"], rows=[STEERS, "another"]
    )
    assert str(error).splitlines() == ["2 mistakes:", f"  {SHOWN}", "  another", "(mend them)"]


def test_a_name_in_a_warning_cannot_either() -> None:
    with pytest.warns(UserWarning, match="no agent") as remark:
        tell([Notice(f"no agent {STEERS}")])
    with pytest.warns(UserWarning, match="no agent") as doubt:
        tell_of_doubt([Feedback(np.zeros(1, np.float32), reason=f"no agent {STEERS}")])
    assert all(SHOWN in str(shown.message) for shown in [*remark, *doubt])


@pytest.mark.parametrize(
    "failing",
    [
        lambda: list(read_trace(Path("/nowhere/trace.jsonl"))),
        lambda: UdpSimulator(SyntheticWorld(1, 1), host="no host").__enter__(),
        lambda: GymWorld("CartPole-v0815"),
        lambda: GymWorld("no_such_module:Env-v0"),
    ],
    ids=["a file", "a host", "an id", "a module"],
)
def test_no_exception_stands_above_an_error_that_tells_it(failing: Callable[[], object]) -> None:
    with pytest.raises(ConfigurationError) as told:
        failing()
    assert told.value.__suppress_context__


CHAINED = {
    "bench/relaying.py",  # programs that measure, ...
    "bench/stage.py",
    "cli/__init__.py",  # click's own end of a program
    "session/blocking.py",
    "session/fleet_link.py",
    "session/hub_client.py",
    "simulator/gym_world.py",  # ... and code of users, whose own traceback they need
    "task/guarding.py",
    "task/making.py",
}


def test_errors_are_chained_only_where_the_code_of_users_failed() -> None:
    root = Path(ospbridge.__path__[0])
    chained = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Raise) and isinstance(node.cause, ast.Name)
    }
    assert chained <= CHAINED


@pytest.mark.parametrize(
    "error",
    [
        RemoteProtocolError("expected a count", data=b"\x5b\xff", offset=1, hint="look"),
        BarrierStuck("no step", who="agent2 must vote", agents=["agent2"]),
        StepUncertain("in doubt", by_network=True),
        ScenarioInvalid("2 mistakes", mistakes=["one", "another"], rows=["1: one", "2: another"]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_another_process_comes_as_it_was(error: OspBridgeError) -> None:
    """As environments that gymnasium runs in processes of their own raise it."""
    come = pickle.loads(pickle.dumps(error))
    assert type(come) is type(error)
    assert str(come) == str(error)
    assert come.args == error.args
    assert vars(come) == vars(error)
