"""The tests themselves, where somebody else runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
PYTEST: Final = (sys.executable, "-m", "pytest")
SOCKETS: Final = "tests/daemon/hub/test_server.py"


@pytest.mark.loopback
def test_temporary_files_may_have_a_long_path_and_a_checkout_be_read_only(tmp_path: Path) -> None:
    """Longer than that of a Unix socket may be; and what pytest keeps for its next run finds no place."""
    directory = tmp_path / ("long" * 20)
    directory.mkdir()
    done = subprocess.run(
        [*PYTEST, "-q", "-n", "0", "-o", "cache_dir=/proc/nowhere", SOCKETS, "-k", "owner_and_group"],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(directory), "PYTEST_ADDOPTS": ""},
        text=True,
        capture_output=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert "could not create cache path" in done.stdout
