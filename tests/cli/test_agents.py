from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from ospbridge.interface import InterfaceValue
from ospbridge.osp.world import World, WorldAgent
from ospbridge.session.blocking import BlockingSession
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.cli.conftest import Served

pytestmark = pytest.mark.loopback


def test_agents_are_a_table_with_a_head_and_json_of_exactly_the_promised_keys(arena: Served) -> None:
    assert [line.split() for line in arena.run("agents").stdout.splitlines()] == [
        ["ID", "NAME", "TYPE", "AVAILABLE"],
        ["1", "robot1", "Agent", "yes"],
        ["2", "robot2", "Agent", "yes"],
    ]
    assert arena.json("agents") == [
        {"id": number, "name": f"robot{number}", "type": "Agent", "available": True} for number in (1, 2)
    ]


def test_describe_json_is_exactly_as_promised_with_null_for_infinity(
    serve: Callable[[World], Served],
) -> None:
    world = SyntheticWorld(1, 2)
    sensor, motor = InterfaceValue("/sensor", -math.inf, math.inf), InterfaceValue("/motor", -1.5, 0.1)
    world.agents = [WorldAgent("open", [motor], [sensor], [InterfaceValue("/info", -1.0, 1.0)])]
    served = serve(world)
    assert served.json("describe", "open") == {
        "name": "open",
        "inputs": [{"name": "/motor", "min": -1.5, "max": pytest.approx(0.1)}],
        "outputs": [{"name": "/sensor", "min": None, "max": None}],
        "infos": [{"name": "/info", "min": -1.0, "max": 1.0}],
    }
    table = served.run("describe", "open").stdout.splitlines()
    assert table[0] == "open (Agent): 1 input, 1 output, 1 info"
    assert table[2].split() == ["input", "0", "/motor", "-1.5", "0.1"]
    assert table[3].split() == ["output", "0", "/sensor", "-inf", "inf"]


def test_what_others_control_can_be_described_by_a_pattern_as_well(arena: Served) -> None:
    with BlockingSession.connect(arena.simulator.address) as session:
        session.register("robot2")
        result = arena.run("describe", "*2")
    assert result.stdout.startswith("robot2 (Agent): ")


def test_a_misspelt_agent_is_answered_with_the_right_one(arena: Served) -> None:
    result = arena.run("describe", "robt2", exit_code=2)
    assert "has no agent 'robt2'; it offers robot1, robot2" in result.stderr
    assert "did you mean 'robot2'?" in result.stderr


def test_a_trace_holds_the_datagrams(arena: Served, tmp_path: Path) -> None:
    file = tmp_path / "agents.jsonl"
    arena.run("agents", "--trace", str(file))
    text = file.read_text()
    assert "INIT_COMMUNICATION" in text
    assert "GET_AGENT_OVERVIEW" in text
