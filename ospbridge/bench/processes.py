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
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from ospbridge.errors import OspBridgeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["Program", "ProgramFailed", "culprit", "importing_as_we_do", "lines_of"]

PATIENCE: Final = 5.0
"""Seconds to end after SIGTERM before SIGKILL follows."""
LOOK_EVERY: Final = 0.2
"""Seconds between looks at whether programs that need not write still run."""
SHOWN_OF_ERRORS: Final = 3
"""Last lines of a failed program's standard error that its error shows."""
DYING: Final = 0.2
"""Seconds between the last word of a program that fails and its end."""


def importing_as_we_do() -> dict[str, str]:
    """What keeps other programs of this interpreter from importing what lies in the directory that we run in.

    They would, and everybody may put something into /tmp. Where we import from there ourselves, they may.
    """
    here = {""}
    with contextlib.suppress(OSError):
        here.add(str(Path.cwd()))
    return {} if here.intersection(sys.path) else {"PYTHONSAFEPATH": "1"}


class ProgramFailed(OspBridgeError):
    """A program that was started did not do what it was started for."""

    exit_code = 75
    default_hint = "run it by itself to see more"


class Program:
    """``python -m module args``. Its standard input stays open until ``end``; its standard error goes to a file.

    With ``heard=False`` its standard output goes there too: a pipe that nobody reads would stop it one day.
    """

    def __init__(
        self,
        module: str,
        *args: str,
        name: str = "",
        environment: Mapping[str, str] | None = None,
        heard: bool = True,
    ) -> None:
        self.name = name or module
        self.command = f"python -m {' '.join((module, *args))}"
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed by end()
        try:
            self.process = subprocess.Popen(  # noqa: S603  # this interpreter with modules of ours
                [sys.executable, "-m", module, *args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if heard else self._errors,
                stderr=self._errors,
                env={**os.environ, **importing_as_we_do(), **(environment or {})},
                start_new_session=True,
            )
        except BaseException:
            self._errors.close()
            raise
        self._output = self.process.stdout.fileno() if self.process.stdout is not None else -1
        self._read = b""

    def fileno(self) -> int:
        """Of its standard output, to wait for several programs at once."""
        return self._output

    def line(self, seconds: float) -> str:
        """The next line of its standard output. Raises ProgramFailed where none comes."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._read:
            left = deadline - time.monotonic()
            if left <= 0:
                raise self.failed(f"wrote nothing within {seconds:g} s")
            if select.select([self], [], [], left)[0] and not self.read():
                raise self.failed("ended")
        line, _, self._read = self._read.partition(b"\n")
        return line.decode("utf-8", "replace")

    def ask(self, line: str) -> None:
        """A line for its standard input. Raises ProgramFailed where nobody reads it."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{line}\n".encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self.failed("ended") from None

    def read(self) -> bool:
        """Take in what it wrote, when there is something; False when it will write no more."""
        data = os.read(self._output, 65_536)
        self._read += data
        return bool(data)

    def whole_lines(self) -> list[str]:
        """Lines that were read and not handed out yet."""
        *lines, self._read = self._read.split(b"\n")
        return [line.decode("utf-8", "replace") for line in lines]

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self.process.poll() is None

    def succeeded(self) -> bool:
        """Whether it ended in order, after it closed its output."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(PATIENCE) == 0
        return False

    def failed(self, what: str) -> ProgramFailed:
        """The error, with the end of what the program said."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            # A program's output ends before it does: a moment later the exit code is there too.
            what += f" (exit code {self.process.wait(0.5)})"
        said = self.errors().splitlines()[-SHOWN_OF_ERRORS:]
        code = self.process.returncode
        if (
            code is not None
            and code > 0
            and [line.split(" ", 1)[0] for line in said[-2:]] == ["Error:", "Hint:"]
        ):
            # A command of ours: what it says to its user is said to this one, and it ends alike.
            error, hint = (line.split(" ", 1)[1] for line in said[-2:])
            failure = ProgramFailed(f"{self.name} {what}: {error}", hint=hint)
            failure.exit_code = code
            return failure
        return ProgramFailed(
            f"{self.name} {what}{': ' + ' / '.join(said) if said else ''}",
            hint=f"run it by itself to see more: {self.command}",
        )

    def errors(self) -> str:
        """All that it wrote to its standard error."""
        if self._errors.closed:
            return ""
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace")

    def end(self) -> None:
        """End it, in order if it can within a few seconds. Safe to call again.

        What it forked is left to it, but for a program that has to be killed: then its whole session is.
        """
        process = self.process
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
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


def culprit(programs: Iterable[Program]) -> ProgramFailed | None:
    """The error of a program that has ended, to be raised in place of that of whoever spoke with it."""
    time.sleep(DYING)
    return next((program.failed("ended") for program in programs if not program.running), None)


def lines_of(
    programs: Mapping[str, Program], *, beside: Sequence[Program] = (), seconds: float
) -> Iterator[tuple[str, str]]:
    """Lines of all programs as they come, each with its program's name, until all have ended in order.

    Raises ProgramFailed where one of them fails, where one of those ``beside`` them ends, or where nothing comes for
    so many seconds.
    """
    speaking = dict(programs)
    give_up = time.monotonic() + seconds
    while speaking:
        ready = select.select(list(speaking.values()), [], [], LOOK_EVERY)[0]
        for name, program in tuple(speaking.items()):
            if program not in ready:
                continue
            give_up = time.monotonic() + seconds
            if program.read():
                for line in program.whole_lines():
                    yield name, line
            elif program.succeeded():
                del speaking[name]
            else:
                raise program.failed("failed")
        for other in beside:
            if not other.running:
                raise other.failed("ended")
        if time.monotonic() > give_up:
            name, program = next(iter(speaking.items()))
            raise program.failed(f"wrote nothing for {seconds:g} s")
