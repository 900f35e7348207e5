from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from ospbridge.osp.profile import DOCUMENT, NERD
from ospbridge.simulator.arena import ArenaWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.cli.programs import invoke

pytestmark = pytest.mark.loopback


run = partial(invoke, "conformance")


def test_json_is_exactly_as_promised_and_deviations_are_no_error() -> None:
    with UdpSimulator(ArenaWorld(1), port=0, profile=NERD) as simulator:
        result = run(str(simulator.address), "--json")
    found = json.loads(result.stdout)
    assert set(found) == {"simulator", "profile", "agents", "deviations"}
    assert (found["simulator"], found["profile"], found["agents"]) == (
        str(simulator.address),
        "nerd",
        ["robot1"],
    )
    assert [deviation["id"] for deviation in found["deviations"]] == [f"D{n}" for n in range(1, 26)]
    for deviation in found["deviations"]:
        assert set(deviation) == {"id", "title", "document", "server", "verdict", "detail", "invasive"}
        assert deviation["verdict"] in {"seen", "not seen", "not tried"}
        assert deviation["detail"]
    assert found["deviations"][7]["verdict"] == "seen"


def test_the_table_says_profile_verdicts_and_their_sum_and_the_trace_what_was_said(tmp_path: Path) -> None:
    trace = tmp_path / "probing.jsonl"
    with UdpSimulator(ArenaWorld(1), port=0, profile=DOCUMENT) as simulator:
        result = run(str(simulator.address), "--trace", str(trace))
    lines = result.stdout.splitlines()
    assert lines[0] == f"{simulator.address}: profile document; agents: robot1"
    assert lines[1].split()[:3] == ["ID", "DEVIATION", "VERDICT"]
    assert len(lines) == 27
    assert "25 deviations: " in result.stderr
    text = trace.read_text()
    assert "INIT_COMMUNICATION" in text
    assert "D8 codes 75 and 76 are swapped" in text
