"""The page that evolves a controller: its program runs as it stands there, and what it evolves gets better."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import page, programs, run


@pytest.mark.loopback
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore:Could not import matplotlib")
def test_what_is_evolved_over_launched_simulators_gets_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cma", reason="needs the library cma: pip install cma")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    run(programs(page("how-to/evolve"))["evolve.py"])
    means = [float(found) for found in re.findall(r"mean +(-[\d.]+)$", capsys.readouterr().out, re.MULTILINE)]
    assert len(means) == 30
    assert sum(means[-5:]) / 5 > sum(means[:5]) / 5 + 200
    assert (tmp_path / "pendulum.npy").exists()
