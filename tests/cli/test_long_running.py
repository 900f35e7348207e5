"""What programs that run for long settle before they begin: descriptors, and Python's collector of reference cycles."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from typing import TYPE_CHECKING

from ospbridge.cli.descriptors import allow_many

if TYPE_CHECKING:
    import pytest

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


def test_where_a_service_manager_forbids_to_ask_it_goes_on_with_what_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forbidden(_: int) -> tuple[int, int]:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(resource, "getrlimit", forbidden)
    allow_many()
    monkeypatch.undo()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
