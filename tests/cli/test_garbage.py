"""Python's collector of reference cycles, where steps must not wait for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

TOLD = """
import gc
from unittest import mock
from click.testing import CliRunner
from ospbridge.cli import main

with mock.patch("trio.run", lambda *_: print(gc.get_threshold()[0], gc.get_freeze_count())):
    print(CliRunner().invoke(main, {words!r}, catch_exceptions=False).output)
"""


@pytest.mark.parametrize(
    "words", [["connect", "--simulator", "127.0.0.1:45454"], ["sink", "--listen", "127.0.0.1:0"]], ids=str
)
def test_programs_that_run_for_long_look_seldom_for_garbage_and_never_at_modules(words: list[str]) -> None:
    told = subprocess.run(
        [sys.executable, "-c", TOLD.format(words=words)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    after, frozen = map(int, told.stdout.split())
    assert after >= 10_000
    assert frozen > 10_000
