"""The tests themselves, where somebody else runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
SOCKETS: Final = "tests/daemon/hub/test_edges.py"


def run_tests(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        text=True,
        capture_output=True,
        timeout=50,
        check=False,
    )


@pytest.mark.loopback
def test_the_path_of_the_temporary_files_may_be_too_long_for_unix_sockets(tmp_path: Path) -> None:
    directory = tmp_path / ("long" * 20)
    directory.mkdir()
    done = run_tests("-p", "no:cacheprovider", SOCKETS, "-k", "before_any_hello", TMPDIR=str(directory))
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_a_checkout_that_cannot_be_written_costs_no_more_than_a_warning() -> None:
    done = run_tests("-o", "cache_dir=/proc/nowhere", "tests/test_finite.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "could not create cache path" in done.stdout
