"""How many files and sockets a daemon may have open, whatever the shell that started it allows at first."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys

import pytest

from ospbridge.cli.descriptors import allow_many

TOLD = """
import resource
from unittest import mock
from click.testing import CliRunner
from ospbridge.cli import main

told = lambda *_: print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
with mock.patch("trio.run", told):
    print(CliRunner().invoke(main, ["connect", "--simulator", "127.0.0.1:45454"], catch_exceptions=False).output)
"""
FEW = 64


def test_a_daemon_may_have_as_many_descriptors_as_the_system_lets_its_user_have() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    told = subprocess.run(
        [sys.executable, "-c", TOLD],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, most)),
    )
    assert int(told.stdout) > FEW


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
