"""Commands that talk to a simulator: its agents, values and events, and the restart of its communication."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from ospbridge.errors import SessionLost
from ospbridge.interface import InterfaceValue
from ospbridge.observe.runtime import runtime_directory
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.world import World, WorldAgent
from ospbridge.session.blocking import BlockingSession
from ospbridge.simulator.arena import ArenaWorld
from ospbridge.simulator.synthetic import MARK_EVERY, SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.cli.conftest import Served
from tests.cli.programs import started

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


# --- values ---------------------------------------------------------------------------------------------------------


SIZE = "/Sim/Arena/Size"
SEED = "/Simulation/Seed"


def test_all_values_are_listed(arena: Served) -> None:
    entries = arena.json("values", "list")
    assert {"name": SIZE, "type": "Double"} in entries
    assert len(entries) > 20
    lines = arena.run("values", "list").stdout.splitlines()
    assert lines[0].split() == ["NAME", "TYPE"]
    assert len(lines) == len(entries) + 1


def test_an_expression_that_fits_nothing_is_an_error_with_a_way_out(arena: Served, profile: str) -> None:
    result = arena.run("values", "list", "Aren", exit_code=0 if profile == "document" else 2)
    if profile == "nerd":
        assert "try '.*Aren.*'" in result.stderr
    result = arena.run("values", "list", "NoSuchThing", exit_code=2)
    assert "no value of" in result.stderr


def test_a_misspelt_value_is_answered_with_the_right_one(arena: Served) -> None:
    for command in (
        ["get", "/Sim/Arena/Sizw"],
        ["set", "/Sim/Arena/Sizw", "3"],
        ["watch", "/Sim/Arena/Sizw"],
    ):
        result = arena.run("values", *command, exit_code=2)
        assert "has no value '/Sim/Arena/Sizw'" in result.stderr
        assert f"did you mean '{SIZE}'?" in result.stderr


def test_a_value_that_was_set_is_read_back(arena: Served) -> None:
    assert arena.json("values", "get", SIZE) == {"name": SIZE, "type": "Double", "value": "4"}
    assert "could not parse 'large'" in arena.run("values", "set", SIZE, "large", exit_code=2).stderr
    assert arena.json("values", "get", SIZE)["value"] == "4"
    assert arena.json("values", "set", SIZE, "5.50") == {"name": SIZE, "type": "Double", "value": "5.5"}
    assert arena.json("values", "get", SIZE)["value"] == "5.5"
    # A negative number is no option.
    assert arena.json("values", "set", SEED, "-7")["value"] == "-7"
    assert arena.json("values", "set", "--timeout", "5", SEED, "-8")["value"] == "-8"


@pytest.mark.parametrize("profile, number", [("document", signal.SIGTERM), ("nerd", signal.SIGINT)])
def test_watch_prints_changes_and_ends_when_told_to(arena: Served, number: signal.Signals) -> None:
    command = ["values", "watch", SIZE, "--interval", "0.01", "--simulator", arena.address]
    with started(*command) as (process, line):
        assert line.split()[1:] == [SIZE, "4"]
        arena.run("values", "set", SIZE, "6")
        assert process.stdout is not None
        assert process.stdout.readline().split()[1:] == [SIZE, "6"]
        process.send_signal(number)
        _, errors = process.communicate()
        assert (process.returncode, errors) == (0, "")
    assert arena.simulator.machine.handlers == 0


# --- events ---------------------------------------------------------------------------------------------------------


MARK = "/Synthetic/Mark"


@pytest.fixture
def marks(serve: Callable[[World], Served]) -> Served:
    return serve(SyntheticWorld(2, 2, agents=2))


def test_events_are_printed_with_the_number_of_their_step(marks: Served) -> None:
    lines = marks.json_lines("events", "watch", MARK, "--steps", "25", "--yes")
    assert lines == [{"step": MARK_EVERY, "event": MARK}, {"step": 2 * MARK_EVERY, "event": MARK}]
    marks.assert_all_free()


def test_steps_whose_events_are_cut_off_are_told(serve: Callable[[World], Served], profile: str) -> None:
    served = serve(SyntheticWorld(2, 300))
    result = served.run("events", "watch", MARK, "--steps", str(2 * MARK_EVERY), "--yes")
    if profile == "document":
        assert result.stdout.split() == [str(MARK_EVERY), MARK, str(2 * MARK_EVERY), MARK]
        assert "lost" not in result.stderr
        return
    assert not result.stdout
    assert f"the events of step {MARK_EVERY} are lost" in result.stderr
    assert f"the events of 2 of {2 * MARK_EVERY} steps are lost" in result.stderr


def test_watching_a_server_that_events_endanger_needs_a_yes(marks: Served, profile: str) -> None:
    if profile == "document":
        assert not marks.run("events", "watch", MARK, "--steps", "1").stdout
        return
    result = marks.run("events", "watch", MARK, "--steps", "1", exit_code=2)
    assert "must not be told goodbye" in result.stderr
    assert "--yes" in result.stderr
    assert marks.simulator.machine.handlers == 0


def test_such_a_server_is_left_without_a_goodbye(marks: Served, profile: str) -> None:
    marks.run("events", "watch", MARK, "--steps", "1", "--yes")
    marks.assert_all_free()
    assert marks.simulator.machine.handlers == (1 if profile == "nerd" else 0)
    assert not [kind for kind in marks.simulator.machine.problems if kind.startswith("END")]


@pytest.mark.parametrize("profile, number", [("document", signal.SIGINT), ("nerd", signal.SIGTERM)])
def test_a_deliberate_stop_frees_the_agent_and_is_no_failure(marks: Served, number: signal.Signals) -> None:
    command = ["events", "watch", MARK, "--yes", "--json", "--simulator", marks.address]
    with started(*command) as (process, line):
        assert json.loads(line) == {"step": MARK_EVERY, "event": MARK}
        process.send_signal(number)
        process.communicate()
        assert process.returncode == 0
    marks.assert_all_free()


# --- restart --------------------------------------------------------------------------------------------------------


def test_every_client_is_disconnected_and_the_agents_are_free(arena: Served) -> None:
    with BlockingSession.connect(arena.address) as other:
        other.register("robot1")
        result = arena.run("restart-communication", "--yes")
        assert "freed: robot1" in result.stdout
        arena.assert_all_free()
        with pytest.raises(SessionLost):
            other.step({"robot1": [0.0, 0.0]})


def test_nobody_to_ask_is_a_usage_error_and_disconnects_nobody(arena: Served) -> None:
    with BlockingSession.connect(arena.address) as other:
        other.register("robot1")
        result = arena.run("restart-communication", exit_code=2)
        assert "--yes" in result.stderr
        assert not arena.json("agents")[0]["available"]


def lone(profile: Profile) -> UdpSimulator:
    """Takes one client only."""
    return UdpSimulator(ArenaWorld(2), port=0, profile=profile, max_handlers=1)


def died(server: UdpSimulator, *agents: str) -> None:
    session = BlockingSession.connect(server.address)
    session.register(*agents)
    session.disown()


def leases() -> list[Path]:
    return list((runtime_directory() / "leases").glob("*.lease"))


@pytest.mark.parametrize(
    "profile, agents", [(DOCUMENT, ()), (NERD, ("robot1",))], ids=["without agents", "with an agent"]
)
def test_a_server_that_waits_for_a_dead_client_of_ours_alone_is_restarted_too(
    profile: Profile, agents: tuple[str, ...]
) -> None:
    with lone(profile) as server:
        died(server, *agents)
        result = Served(server).run("restart-communication", "--yes")
        assert ("freed: robot1" if agents else "all agents were free before") in result.stdout
        Served(server).assert_all_free()
        assert leases() == []
