"""Commands in this process, and in ones of their own where signals, exit codes and descriptors are the point."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from click.testing import CliRunner, Result

from ospbridge.cli import main
from ospbridge.errors import OspBridgeError

WITHIN = 60.0
"""Seconds in which whatever is waited for has come, on the busiest machine."""


def invoke(*words: object, exit_code: int = 0, env: Mapping[str, str] | None = None) -> Result:
    """A command in this process, which ends so."""
    result = CliRunner().invoke(main, [*map(str, words)], env=env)
    assert result.exit_code == exit_code, (result.output, result.exception)
    return result


def program(*words: object, code: str = "") -> list[str]:
    """A command, or a program that is given its words, in a process of its own."""
    return [sys.executable, *(["-c", code] if code else ["-m", "ospbridge"]), *map(str, words)]


def ran(*words: object, code: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
    """What became of it."""
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": WITHIN} | options
    return subprocess.run(program(*words, code=code), text=True, check=False, **given)


@contextmanager
def started(*words: object, code: str = "", wait: bool = True) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A command, or a program that is given its words, and its first line if we ``wait``. It is killed in the end."""
    process = subprocess.Popen(
        program(*words, code=code), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip() if wait else ""
    finally:
        process.kill()
        process.communicate()


def on_a_terminal(*words: object, code: str = "", **environment: str) -> str:
    """What it shows on a terminal until it has ended, with colors unless ``NO_COLOR`` says otherwise."""
    ours, theirs = pty.openpty()
    plain = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    variables = plain | {"TERM": "xterm", "COLUMNS": "120"} | environment
    with subprocess.Popen(
        program(*words, code=code), env=variables, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        seen = b""
        with suppress(OSError):  # the other end is closed
            while data := os.read(ours, 65_536):
                seen += data
        os.close(ours)
        assert process.wait(WITHIN) == 0
    return seen.decode()


def until(condition: Callable[[], object]) -> None:
    give_up = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def in_background(call: Callable[[], object]) -> threading.Thread:
    """Something that waits for what never comes, until what it waits for ends."""

    def run() -> None:
        with suppress(OspBridgeError):
            call()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def asked_on(process: subprocess.Popen[Any]) -> None:
    """Two signals at once, and then one after the other until it has ended."""

    def ask() -> None:
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
            time.sleep(0.001)

    for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
        process.send_signal(number)
    in_background(ask)
