"""Simulators, daemons and RLlib's servers in processes of their own, for the programs beside this module.

RLlib has an interpreter of its own, which runs ``serve_rllib.py``; what imports this module has ospbridge. Each process
has its own session, so that whatever it starts can be found again.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psutil

__all__ = ["Failed", "Place", "Program", "drives", "free_port", "running"]

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
OSPBRIDGE: Final = (sys.executable, "-m", "ospbridge")
CART: Final = ("--env", "CartPole-v1")
FORCED_CART: Final = ("--env", "continuous_cart:continuous/CartPole-v1")
"""Pushed by a force in [-1, 1]; ``continuous_cart.toml`` is its scenario."""
PORTS: Final = range(20_000, 32_000)
"""Above those that Ray gives its workers, and below those that Linux draws from where a program says 0."""
READY_WITHIN: Final = 120.0
"""Seconds for Ray to start, on a busy machine."""
END_WITHIN: Final = 45.0
"""Seconds for a process to end: a daemon may wait half a minute for weights."""
LOOK: Final = 0.05
TAIL: Final = 3000


class Failed(Exception):
    """What was expected did not come; the message has the ends of all logs."""


def free_port() -> int:
    """Of TCP, with two more free ones above it: env runners count from it.

    For servers that take a number only, not a socket: what else Ray starts takes none of them meanwhile.
    """
    for _ in range(100):
        port = random.choice(PORTS)
        with ExitStack() as stack, suppress(OSError):
            for more in (0, 1, 2):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port + more))
            return port
    raise RuntimeError("three free ports in a row were not found")


class Program:
    """A process whose output goes to files."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, environment: dict[str, str], at: Path
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
                env=os.environ | environment,
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
        ends = (
            f"{path.name}: ...{path.read_text(errors='replace')[-TAIL:]}" for path in (self.out, self.err)
        )
        return "\n".join([f"--- {self.name}, exit code {self.process.poll()}", *ends])

    def send(self, number: int) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)

    def end(self) -> int:
        """Its exit code. Raises Failed if it does not end on SIGTERM."""
        self.send(signal.SIGTERM)
        return self.ended()

    def ended(self, within: float = END_WITHIN) -> int:
        """Its exit code, once it has ended; a second signal would make a daemon hurry."""
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name} did not end within {within:g} s\n{self.tail()}") from None

    def left(self) -> list[psutil.Process]:
        """The processes that it started and that still run, without itself."""
        found = []
        for process in psutil.process_iter():
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                if os.getsid(process.pid) == self.process.pid != process.pid:
                    found += [process] * (process.status() != psutil.STATUS_ZOMBIE)
        return found

    def await_nothing_left(self) -> None:
        """Raises Failed where something that it started outlives it."""
        give_up = time.monotonic() + 20.0
        while left := self.left():
            if time.monotonic() >= give_up:
                raise Failed(f"{self.name} left processes behind: {left}\n{self.tail()}")
            time.sleep(LOOK)

    def sweep(self) -> None:
        """End it and all that it started, whatever it takes."""
        self.process.kill()
        self.process.wait(10)
        for process in self.left():
            with suppress(psutil.NoSuchProcess):
                process.kill()


def json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects in a file of JSON lines that may still be written, or not yet be there; other lines are skipped."""
    found = []
    for line in path.read_text(errors="replace").splitlines(keepends=True) if path.exists() else ():
        if line.startswith("{") and line.endswith("\n"):
            with suppress(ValueError):
                found.append(json.loads(line))
    return found


class Place:
    """A folder with programs in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs: list[Program] = []

    def start(
        self, name: str, *command: object, environment: dict[str, str] | None = None, at: Path = ROOT
    ) -> Program:
        count = sum(program.name.rpartition("-")[0] == name for program in self.programs)
        variables = {"XDG_RUNTIME_DIR": str(self.folder), **(environment or {})}
        program = Program(f"{name}-{count + 1}", [*map(str, command)], self.folder, variables, at)
        self.programs.append(program)
        return program

    def run(self, name: str, *command: object, within: float, at: Path = ROOT) -> str:
        """What a program prints until it ends. Raises Failed unless its exit code is 0."""
        program = self.start(name, *command, at=at)
        self.expect(program.ended(within) == 0, f"{name} failed")
        return program.out.read_text()

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

    def simulator(self, *words: object) -> str:
        """Its address. ``words``: its world."""
        program = self.start(
            "simulator",
            *(*OSPBRIDGE, "sim", *(words or CART), "--port", 0, "--quiet"),
            environment={"PYTHONPATH": str(HERE)},
        )
        return str(
            self.until("the simulator's address", lambda: program.out.read_text().strip(), 60, program)
        )

    def daemon(self, simulator: str, *options: object, scenario: object = "cartpole") -> Program:
        """``ospbridge connect`` before a simulator, with a hub."""
        hub = f"unix:{self.folder / f'{len(self.programs)}.sock'}"
        command = ("connect", "--simulator", simulator, "--scenario", scenario, "--hub", hub, "--log-json")
        return self.start("daemon", *OSPBRIDGE, *command, *options)

    def hub(self, simulator: str, *options: object) -> str:
        """The address of the hub of a daemon that is ready."""
        hub = f"unix:{self.folder / f'{len(self.programs)}.sock'}"
        daemon = self.daemon(simulator, *options)
        waiting = self.start("status", *OSPBRIDGE, "status", "--hub", hub, "--wait", 60)
        self.expect(waiting.ended(120.0) == 0 and daemon.process.poll() is None, "the daemon is not ready")
        return hub

    def driver(self, simulator: str, port: int, *options: object, scenario: object = "cartpole") -> Program:
        """A daemon that drives, and sends RLlib at ``port`` what it plays."""
        upstream = ("--rllink", f"127.0.0.1:{port}", "--rllink-mode", "drive")
        return self.daemon(simulator, *upstream, *options, scenario=scenario)

    def server(self, python: str, port: int, *options: object) -> Program:
        """RLlib, which listens at ``port``, or above it with env runners. Torch has one thread."""
        program = self.start(
            "rllib",
            *(python, "-m", "tests.peers.serve_rllib", "--port", port, *options),
            environment={"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
        )
        self.until("RLlib is ready", program.lines, READY_WITHIN, program)
        return program

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
    """A place for programs, all of which end with it, also where a time limit from outside ends this one by SIGTERM."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="ospb-") as folder:
        place = Place(Path(folder))
        try:
            yield place
            place.leave()
        finally:
            for program in reversed(place.programs):
                program.sweep()
            signal.signal(signal.SIGTERM, before)


def drives(daemon: Program) -> list[dict[str, Any]]:
    """The lines of the episodes that weights decided."""
    return [line for line in daemon.log("episode") if "weights_seq_no" in line]
