"""`ospbridge tune`: what it shows of a simulator, before and after."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from ospbridge.diagnosis import stalls
from ospbridge.session.blocking import BlockingSession
from tests.cli.programs import invoke, started
from tests.launch.listening import THREADS, listening

pytestmark = pytest.mark.loopback


tune = partial(invoke, "tune")


def as_json(*words: str) -> Any:
    return json.loads(tune(*words, "--json").stdout)


@pytest.fixture(scope="module")
def simulator() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A robot in an arena, in a process of its own."""
    with started("sim", "--arena", "--robots", "1", "--port", "0", "--profile", "nerd") as (process, line):
        yield line, process


def test_json_has_the_process_and_its_threads_before_and_after() -> None:
    with listening() as running:
        told = as_json(str(running.address))
        assert set(told) == {"simulator", "pid", "command", "before", "after", "measured"}
        assert (told["simulator"], told["pid"]) == (str(running.address), running.pid)
        assert told["measured"] is None
        for when, policy in (("before", "SCHED_OTHER"), ("after", "SCHED_BATCH")):
            assert len(told[when]) == THREADS
            for thread in told[when]:
                assert set(thread) == {"id", "policy", "cores"}
                assert thread["policy"] == policy


def test_a_table_has_the_threads_before_and_after_and_a_second_time_says_that_nothing_changed() -> None:
    with listening() as running:
        head, _, before, after = tune(str(running.address)).stdout.splitlines()
        assert head.startswith(f"{running.address}: pid {running.pid}, ")
        assert before.startswith(f"before  {THREADS} threads under SCHED_OTHER")
        assert after.startswith(f"after   {THREADS} threads under SCHED_BATCH")
        assert "nothing was to be changed" in tune(str(running.address)).stderr


def test_threads_are_pinned_to_a_core_and_undo_brings_everything_back() -> None:
    core = max(os.sched_getaffinity(0))
    with listening() as running:
        told = as_json(str(running.address), "--pin", str(core))
        assert {tuple(thread["cores"]) for thread in told["after"]} == {(core,)}
        told = as_json(str(running.address), "--undo")
        assert {thread["policy"] for thread in told["after"]} == {"SCHED_OTHER"}
        assert all(os.sched_getaffinity(0) <= set(thread["cores"]) for thread in told["after"])


def test_errors_have_the_codes_of_their_kind() -> None:
    assert "Hint: " in tune("192.0.2.7:45454", exit_code=2).stderr
    assert "Hint: " in tune("127.0.0.1:1", exit_code=69).stderr
    assert "--undo" in tune("127.0.0.1:45454", "--undo", "--pin", "0", exit_code=2).stderr


def test_measuring_steps_a_free_agent_before_and_after_and_gives_it_back(
    simulator: tuple[str, subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalls, "STEPS", 50)
    address, process = simulator
    told = as_json(address, "--measure")
    assert told["pid"] == process.pid
    for when in ("before", "after"):
        assert told["measured"][when]["steps"] == 50
        assert 0.0 <= told["measured"][when]["stalled"] <= 1.0
        assert told["measured"][when]["steps_per_second"] > 0.0
    assert "STEPS/s" in tune(address, "--measure").stdout
    with BlockingSession.connect(address) as session:
        assert [agent.available for agent in session.agents()] == [True]


def test_beside_another_client_nothing_is_measured_and_that_is_said(
    simulator: tuple[str, subprocess.Popen[str]],
) -> None:
    address, _ = simulator
    with BlockingSession.connect(address) as other:
        other.register("robot1")
        result = tune(address, "--measure")
        assert "not measured: another client steps this world: robot1 taken" in result.stderr
        assert "STEPS/s" not in result.stdout
        told = as_json(address, "--measure")["measured"]
    assert told["before"] == told["after"] == "another client steps this world: robot1 taken"


def test_what_answers_nobody_is_tuned_and_not_measured() -> None:
    with listening() as running:
        result = tune(str(running.address), "--measure", "--timeout", "0.3")
    assert "SCHED_BATCH" in result.stdout
    assert "not measured: " in result.stderr
