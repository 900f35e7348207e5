"""What programs that run for long settle before they begin: descriptors, and Python's collector of reference cycles."""

from __future__ import annotations

import subprocess
import sys

TOLD = """
import gc, resource
from unittest import mock
from click.testing import CliRunner
from ospbridge.cli import main

def tell(*_):
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], gc.get_threshold()[0], gc.get_freeze_count())

_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
for words in (["connect", "--simulator", "127.0.0.1:45454"], ["sink", "--listen", "127.0.0.1:0"]):
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
    gc.set_threshold(700)
    gc.unfreeze()
    with mock.patch("trio.run", tell):
        print(CliRunner().invoke(main, words, catch_exceptions=False).output)
"""


def test_a_daemon_has_all_descriptors_and_both_look_seldom_for_garbage_and_never_at_modules() -> None:
    told = subprocess.run(
        [sys.executable, "-c", TOLD], capture_output=True, text=True, check=True, timeout=60
    )
    rows = [tuple(map(int, line.split())) for line in told.stdout.splitlines() if line]
    (daemon, *_), (_, *_) = rows
    assert daemon > 64
    for _, after, frozen in rows:
        assert after >= 10_000
        assert frozen > 10_000
