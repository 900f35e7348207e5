"""The pages on what is wrong: the table of deviations is the one that is probed, and the commands run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from ospbridge.cli import main
from ospbridge.cli.conformance import DEVIATIONS as COUNT
from ospbridge.diagnosis.checks import State
from ospbridge.diagnosis.deviations import DEVIATIONS
from ospbridge.osp.profile import DOCUMENT
from ospbridge.simulator.arena import ArenaWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.diagnosis.test_conformance import NOT_IMITATED, UNSAID

DOCS = Path(__file__).parents[2] / "docs"
HOW_TO = (DOCS / "how-to" / "diagnose.md").read_text()
REFERENCE = (DOCS / "reference" / "deviations.md").read_text()


def test_the_page_has_every_deviation_as_it_is_probed() -> None:
    rows = re.findall(r"^\| (D\d+) \| (.*) \| (.*) \| (.*) \| (.*) \|$", REFERENCE, re.MULTILINE)
    wanted = []
    for deviation in DEVIATIONS:
        needs = [*["invasive"] * deviation.invasive, *["alone"] * deviation.alone]
        if deviation.agents:
            needs.append(f"{deviation.agents} agent{'s' * (deviation.agents != 1)}")
        wanted.append((deviation.id, deviation.title, deviation.document, deviation.server, ", ".join(needs)))
    assert rows == wanted
    assert len(DEVIATIONS) == COUNT
    assert f"the {COUNT} [known deviations]" in HOW_TO


def test_the_page_says_what_the_built_in_simulator_shows() -> None:
    text = " ".join(REFERENCE.split())
    (left_out,) = re.findall(r"shows all deviations that can be tried except (.*?), because", text)
    (shown,) = re.findall(r"With its profile `document` it shows (.*?), about", text)
    assert set(re.findall(r"D\d+", left_out)) == NOT_IMITATED
    assert set(re.findall(r"D\d+", shown)) == UNSAID


def test_the_page_names_every_state_and_what_invasive_adds() -> None:
    for state in State:
        assert f"| `{state.value}` |" in HOW_TO
    (added,) = re.findall(r"`--invasive` adds (.*?\))\. ", " ".join(HOW_TO.split()))
    assert set(re.findall(r"D\d+", added)) == {d.id for d in DEVIATIONS if d.invasive}


@pytest.mark.loopback
def test_the_commands_for_a_trace_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = [b for b in re.findall(r"```sh\n(.*?)```", HOW_TO, re.DOTALL) if "trace show" in b]
    said = ""
    with UdpSimulator(ArenaWorld(2), port=0, profile=DOCUMENT) as simulator:
        for line in block.replace("127.0.0.1:45454", str(simulator.address)).splitlines():
            result = CliRunner().invoke(main, shlex.split(line)[1:])
            assert result.exit_code == 0, result.output
            said = result.stdout
    assert "D8 codes 75 and 76 are swapped" in said
    assert "RESET_SIMULATION" in said
