from __future__ import annotations

import json
import signal
from collections.abc import Callable

import pytest

from ospbridge.osp.world import World
from ospbridge.simulator.synthetic import MARK_EVERY, SyntheticWorld
from tests.cli.conftest import Served
from tests.cli.programs import started

pytestmark = pytest.mark.loopback

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
