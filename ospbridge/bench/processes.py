"""Programs that a measurement or the demo needs beside itself: started, listened to, and surely ended.

Each is a Python module in a process and session of its own, so that Ctrl-C at a terminal reaches only who started
them, and who started them ends them. All waits are bounded.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Final, Self

from ospbridge.errors import OspBridgeError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Program", "ProgramFailed"]

PATIENCE: Final = 5.0
"""Seconds to end after SIGTERM before SIGKILL follows."""
SHOWN_OF_ERRORS: Final = 2000
"""Characters of a failed program's standard error that its error shows."""


class ProgramFailed(OspBridgeError):
    """A program that was started did not do what it was started for."""

    exit_code = 75
    default_hint = "run it by hand to see more"


class Program:
    """``python -m module args``. Its standard input stays open until ``end``; its standard error goes to a file."""

    def __init__(self, module: str, *args: str, name: str = "", environment: Mapping[str, str] = {}) -> None:
        self.name = name or module
        self.command = f"python -m {' '.join((module, *args))}"
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed by end()
        try:
            self.process = subprocess.Popen(  # noqa: S603  # this interpreter with modules of ours
                [sys.executable, "-m", module, *args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        except BaseException:
            self._errors.close()
            raise
        assert self.process.stdout is not None
        self._output = self.process.stdout.fileno()
        self._read = b""

    def fileno(self) -> int:
        """Of its standard output, to wait for several programs at once."""
        return self._output

    def line(self, seconds: float) -> str:
        """The next line of its standard output. Raises ProgramFailed where none comes."""
        deadline = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self._output, select.POLLIN)
        while b"\n" not in self._read:
            left = deadline - time.monotonic()
            if left <= 0:
                raise self.failed(f"wrote nothing within {seconds:g} s")
            if poll.poll(left * 1000):
                data = os.read(self._output, 65_536)
                if not data:
                    raise self.failed("ended")
                self._read += data
        line, _, self._read = self._read.partition(b"\n")
        return line.decode("utf-8", "replace")

    @property
    def has_line(self) -> bool:
        """Whether a whole line was read already, so that ``line`` returns at once."""
        return b"\n" in self._read

    def failed(self, what: str) -> ProgramFailed:
        """The error, with the end of what the program said."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            # Its output ends before it does; a moment later the exit code is there too.
            what += f" (exit code {self.process.wait(1.0 if what == 'ended' else 0.0)})"
        said = self.errors()[-SHOWN_OF_ERRORS:].strip()
        return ProgramFailed(
            f"{self.name} {what}{': ' + said if said else ''}", hint=f"try it: {self.command}"
        )

    def errors(self) -> str:
        """All that it wrote to its standard error."""
        if self._errors.closed:
            return ""
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace")

    def end(self) -> None:
        """End it, in order if it can within a few seconds. Safe to call again."""
        process = self.process
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
