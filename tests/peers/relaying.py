"""A simulator, a daemon that drives, and a real RLlib that learns: processes of their own, for the programs beside it.

RLlib has an interpreter of its own, which runs ``serve_rllib.py``; what imports this module has ospbridge. Each process
has its own session, so that whatever it starts can be found again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Failed", "Place", "Program", "drives", "running"]

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
OSPBRIDGE: Final = (sys.executable, "-m", "ospbridge")
CONTINUOUS: Final = "continuous_cart:continuous/CartPole-v1"
READY_WITHIN: Final = 120.0
"""Seconds for Ray to start, on a busy machine."""
END_WITHIN: Final = 45.0
"""Seconds for a process to end: a daemon may wait half a minute for weights."""
LOOK: Final = 0.05
TAIL: Final = 3000


class Failed(Exception):
    """What was expected did not come; the message has the ends of all logs."""


class Program:
    """A process whose output goes to files."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        environment: dict[str, str] | None = None,
        *,
        at: Path = ROOT,
    ) -> None:
        self.name = name
        self.out = folder / f"{name}.out"
        self.err = folder / f"{name}.err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **(environment or {})},
                cwd=at,
                start_new_session=True,
            )

    def lines(self) -> list[dict[str, Any]]:
        """The whole JSON lines of its output so far."""
        return json_lines(self.out)

    def log(self, event: str | None = None) -> list[dict[str, Any]]:
        """The JSON lines of its log so far; those of one event."""
        return [line for line in json_lines(self.err) if event in (None, line.get("event"))]

    def tail(self) -> str:
        ends = [
            f"{path.name}: ...{path.read_text(errors='replace')[-TAIL:]}" for path in (self.out, self.err)
        ]
        return f"--- {self.name}, exit code {self.process.poll()}\n" + "\n".join(ends)

    def send(self, number: int) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)

    def end(self, number: int = signal.SIGTERM, within: float = END_WITHIN) -> int:
        """Its exit code. Raises Failed if it does not end."""
        self.send(number)
        return self.ended(number, within)

    def ended(self, number: int = signal.SIGTERM, within: float = END_WITHIN) -> int:
        """Its exit code, once it has ended of a signal; a second one would make a daemon hurry."""
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise Failed(
                f"{self.name} did not end within {within:g} s of signal {number}\n{self.tail()}"
            ) from None

    def left(self) -> list[int]:
        """The processes that it started and that still run, without itself."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
            except (FileNotFoundError, ProcessLookupError):
                continue
            pid = int(stat.parent.name)
            if int(session) == self.process.pid and pid != self.process.pid and state != "Z":
                found.append(pid)
        return found

    def await_nothing_left(self, within: float = 20.0) -> None:
        """Raises Failed where something that it started outlives it, which is ended then."""
        give_up = time.monotonic() + within
        while left := self.left():
            if time.monotonic() >= give_up:
                self.sweep()
                raise Failed(f"{self.name} left {len(left)} processes behind: {left}\n{self.tail()}")
            time.sleep(LOOK)

    def sweep(self) -> None:
        """End it and all that it started, whatever it takes."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        for pid in self.left():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects in a file of JSON lines that may still be written, or not yet be there; other lines are skipped."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text(errors="replace").splitlines(keepends=True):
        if not (line.startswith("{") and line.endswith("\n")):
            continue
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


class Place:
    """A folder with programs in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs: list[Program] = []

    def start(self, name: str, command: Sequence[str], environment: dict[str, str] | None = None) -> Program:
        count = sum(program.name.startswith(name) for program in self.programs)
        program = Program(f"{name}-{count + 1}" if count else name, command, self.folder, environment)
        self.programs.append(program)
        return program

    def named(self, name: str) -> Program:
        return next(program for program in self.programs if program.name == name)

    def until(self, what: str, holds: Callable[[], Any], within: float, *alive: Program) -> Any:
        """What ``holds`` returns, once it is true. Raises Failed when time is up or one of ``alive`` has ended."""
        give_up = time.monotonic() + within
        while not (found := holds()):
            ended = [program.name for program in alive if program.process.poll() is not None]
            if ended:
                self.fail(f"{', '.join(ended)} ended, awaiting: {what}")
            if time.monotonic() >= give_up:
                self.fail(f"did not come within {within:g} s: {what}")
            time.sleep(LOOK)
        return found

    def fail(self, why: str) -> None:
        """Raises Failed, with the ends of all logs."""
        raise Failed("\n".join([why, *(program.tail() for program in self.programs)]))

    def expect(self, holds: object, why: str) -> None:
        if not holds:
            self.fail(why)

    # --- who takes part ----------------------------------------------------------------------------------------------

    def simulator(self, *, continuous: bool = False) -> tuple[Program, str]:
        """A cart with a pole, and its address; ``continuous``: pushed by a force in [-1, 1]."""
        program = self.start(
            "simulator",
            [
                *OSPBRIDGE,
                "sim",
                "--env",
                CONTINUOUS if continuous else "CartPole-v1",
                "--port",
                "0",
                "--quiet",
            ],
            {"PYTHONPATH": str(HERE)},
        )
        address = self.until("the simulator's address", lambda: program.out.read_text().strip(), 60, program)
        return program, str(address)

    def server(self, python: str, port: int, *options: object, ready: bool = True) -> Program:
        """RLlib, which listens at ``port``, or above it with env runners. Torch has one thread."""
        program = self.start(
            "rllib",
            [python, "-m", "tests.peers.serve_rllib", "--port", str(port), *map(str, options)],
            {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
        )
        if ready:
            self.await_ready(program)
        return program

    def await_ready(self, server: Program) -> None:
        self.until("RLlib is ready", server.lines, READY_WITHIN, server)

    def own_client(self, python: str, port: int) -> Program:
        """Ray's own client, which brings its own CartPole, and leaves files where it runs."""
        count = sum(program.name.startswith("client") for program in self.programs)
        program = Program(
            f"client-{count + 1}",
            [python, "-m", "tests.peers.own_client", str(port)],
            self.folder,
            {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
            at=self.folder,
        )
        self.programs.append(program)
        return program

    def daemon(
        self, simulator: str, port: int, *options: object, continuous: bool = False, spin: bool = False
    ) -> Program:
        """``ospbridge connect`` between them, which sleeps whenever nothing has come unless it may ``spin``."""
        number = sum(program.name.startswith("daemon") for program in self.programs)
        scenario = str(HERE / "continuous_cart.toml") if continuous else "cartpole"
        return self.start(
            "daemon",
            [
                *(*OSPBRIDGE, "connect", "--simulator", simulator, "--scenario", scenario, "--log-json"),
                *("--hub", f"unix:{self.folder / f'{number}.sock'}", *(() if spin else ("--no-spin",))),
                *("--rllink", f"127.0.0.1:{port}", "--rllink-mode", "drive", *map(str, options)),
            ],
        )

    def leave(self) -> None:
        """End all, the last first, and be sure that nothing of ospbridge's is left. Ray may leave its agents behind."""
        for program in reversed(self.programs):
            program.send(signal.SIGTERM)
        for program in reversed(self.programs):
            program.ended()
            if program.name.startswith(("rllib", "client")):
                program.sweep()
            else:
                program.await_nothing_left()


@contextmanager
def running() -> Iterator[Place]:
    """A place for programs; all of them are ended when it is left."""
    with tempfile.TemporaryDirectory(prefix="ospb-") as folder:
        place = Place(Path(folder))
        try:
            yield place
        finally:
            for program in reversed(place.programs):
                program.sweep()


def drives(daemon: Program) -> list[dict[str, Any]]:
    """The lines of the episodes that weights decided."""
    return [line for line in daemon.log("episode") if "weights_seq_no" in line]
