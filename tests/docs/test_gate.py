"""The scripts of the gate name tests that there are: else a job fails only where the whole gate runs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("script", [".ci/run", ".ci/long"])
def test_every_test_that_it_names_is_there(script: str) -> None:
    text = (ROOT / script).read_text("utf-8")
    named = set(re.findall(r"(?<![\w./-])tests/[\w/.{},-]+", text))
    assert len(named) > 4
    spelled_out = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {' '.join(sorted(named))}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
    ).stdout.split()
    assert [path for path in spelled_out if not (ROOT / path).exists()] == []
