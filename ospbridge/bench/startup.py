"""``ospbridge bench startup``: what beginning costs, as a ratio to what Python alone costs.

Each subject is a program in a process of its own, followed until it has come to where it is of use: to its end, to
its first observation, or to a hub that accepts. Processor time is that of the process alone, and of all its threads;
other programs on the machine can only add to wall time. Modules are compiled and files are in the page cache: the
first turn of each subject counts for nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from ospbridge.bench.processes import Program, ProgramFailed, importing_as_we_do
from ospbridge.bench.report import Panel, Quantity, Report, Row
from ospbridge.bench.turns import untold
from ospbridge.bench.usage import processor_seconds
from ospbridge.transport.unix import room_for_sockets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ospbridge.bench.turns import Told

__all__ = ["FLOOR", "STARTS", "Start", "measure_startup"]

FLOOR: Final = "python -c pass"
WITHIN: Final = 60.0
"""Seconds for a program to come to where it is of use."""
LEAVE: Final = 10.0
"""Seconds for one to end in order."""
LOOK_EVERY: Final = 0.001
"""Seconds between looks at whether a hub accepts."""
OBSERVED: Final = """\
import sys
import gymnasium
import ospbridge
env = gymnasium.make("ospbridge/Agent-v0", {options})
env.reset(seed=1)
print("observed", flush=True)
sys.stdin.read()
env.close()
"""


@dataclass(frozen=True, slots=True)
class Start:
    """A program, and how to see that it has come to where it is of use.

    ``command``: arguments of Python, where ``{simulator}``, ``{hub}`` and ``{new}`` (a hub to be made) are filled in.
    """

    command: tuple[str, ...]
    until: Literal["end", "line", "hub"] = "end"
    """Its end, a line of its output, or a hub that accepts."""


QUANTITIES: Final = (
    Quantity("processor_least_ms", "CPU ms, LEAST"),
    Quantity("processor_ms", "MEDIAN"),
    Quantity("wall_least_ms", "WALL ms, LEAST"),
    Quantity("wall_ms", "MEDIAN"),
)
KEYS: Final = tuple(quantity.key for quantity in QUANTITIES)
PANELS: Final = (
    Panel("processor time (ms): least, median", KEYS[:2]),
    Panel("wall time (ms): least, median", KEYS[2:]),
)
RATIOS: Final = ("processor", "wall")
"""What a subject took, compared with the floor."""
STARTS: Final[dict[str, Start]] = {
    FLOOR: Start(("-c", "pass")),
    "import ospbridge": Start(("-c", "import ospbridge")),
    "import gymnasium": Start(("-c", "import gymnasium")),
    "import ospbridge, gymnasium": Start(("-c", "import ospbridge, gymnasium")),
    "ospbridge --help": Start(("-m", "ospbridge", "--help")),
    "ospbridge agents": Start(("-m", "ospbridge", "agents", "--simulator", "{simulator}")),
    "direct environment, first observation": Start(
        ("-c", OBSERVED.format(options="simulator='{simulator}'")), "line"
    ),
    "hub environment, first observation": Start(("-c", OBSERVED.format(options="bridge='{hub}'")), "line"),
    "ospbridge connect, hub accepts": Start(
        ("-m", "ospbridge", "connect", "--simulator", "{simulator}", "--hub", "{new}"), "hub"
    ),
}
"""By name; the floor first."""


def measure_startup(*, runs: int = 10, only: Sequence[str] = (), told: Told = untold) -> Report:
    """Each subject as often as ``runs`` says, in turn; the floor, and those named in ``only`` or all.

    ``told`` is called with a subject's name before each of its turns. Raises ProgramFailed where one fails.
    """
    starts = {name: start for name, start in STARTS.items() if not only or name in (FLOOR, *only)}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in starts}
    with (
        tempfile.TemporaryDirectory(prefix="ospb-", dir=room_for_sockets()) as directory,
        _places(Path(directory), starts) as places,
    ):
        for number in range(runs + 1):
            for name, start in starts.items():
                told(name)
                took = _took(name, start, places)
                if number:
                    found[name].append(took)
    floor = [min(seconds) for seconds in zip(*found[FLOOR], strict=True)]
    return Report(
        "startup",
        "Until a program is of use",
        {"runs": runs},
        QUANTITIES,
        tuple(_row(name, took, floor) for name, took in found.items()),
        panels=PANELS,
        notes=("ratios are those of the least of all runs: whatever else the machine does can only add",),
    )


def _row(name: str, took: Sequence[tuple[float, float]], floor: Sequence[float]) -> Row:
    kinds = list(zip(*took, strict=True))
    least = [min(seconds) for seconds in kinds]
    middle = [statistics.median(seconds) for seconds in kinds]
    return Row(
        name,
        dict(
            zip(
                KEYS,
                (1e3 * seconds for pair in zip(least, middle, strict=True) for seconds in pair),
                strict=True,
            )
        ),
        dict(zip(RATIOS, (mine / floors for mine, floors in zip(least, floor, strict=True)), strict=True)),
    )


@contextlib.contextmanager
def _places(directory: Path, starts: Mapping[str, Start]) -> Iterator[dict[str, str]]:
    """What commands name; a simulator and a hub run only where one does."""
    places = {"new": f"unix:{directory / 'new'}"}
    written = " ".join(part for start in starts.values() for part in start.command)
    with contextlib.ExitStack() as stack:
        if "{simulator}" in written:
            places["simulator"] = _simulator(stack)
        if "{hub}" in written:
            places["hub"] = f"unix:{directory / 'hub'}"
            daemon = Program(
                "ospbridge",
                *("connect", "--simulator", _simulator(stack), "--hub", places["hub"]),
                name="the daemon",
                heard=False,
            )
            stack.enter_context(daemon)
            _await_hub(Path(directory / "hub"), daemon.process.poll, "the daemon")
        yield places


def _simulator(stack: contextlib.ExitStack) -> str:
    return stack.enter_context(Program("ospbridge.bench.responder", name="the responder")).line(WITHIN)


def _took(name: str, start: Start, places: Mapping[str, str]) -> tuple[float, float]:
    """Seconds of processor time and of wall time."""
    command = [sys.executable, *(_filled(part, places) for part in start.command)]
    with tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        process = subprocess.Popen(  # noqa: S603  # this interpreter, with programs of ours
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if start.until == "line" else subprocess.DEVNULL,
            stderr=errors,
            env=os.environ | importing_as_we_do(),
            start_new_session=True,
        )
        # It shall not be waited for without end; nothing else wakes meanwhile.
        limit = threading.Timer(WITHIN, process.kill)
        limit.start()
        try:
            if start.until == "end":
                _, status, used = os.wait4(process.pid, 0)
                wall = time.perf_counter() - began
                process.returncode = os.waitstatus_to_exitcode(status)
                processor, came = used.ru_utime + used.ru_stime, process.returncode == 0
            else:
                if start.until == "line":
                    assert process.stdout is not None
                    came = bool(process.stdout.readline())
                else:
                    came = _await_hub(Path(places["new"].removeprefix("unix:")), process.poll, name)
                wall = time.perf_counter() - began
                processor = processor_seconds(process.pid) if came else 0.0
        finally:
            limit.cancel()
            _end(process, told=start.until == "hub")
        if not came:
            errors.seek(0)
            said = errors.read().decode("utf-8", "replace").strip().splitlines()[-3:]
            raise ProgramFailed(f"{name!r} failed with exit code {process.returncode}: {' / '.join(said)}")
    return processor, wall


def _filled(part: str, places: Mapping[str, str]) -> str:
    for place, value in places.items():
        part = part.replace(f"{{{place}}}", value)
    return part


def _await_hub(path: Path, ended: Callable[[], int | None], name: str) -> bool:
    """Until somebody accepts there; False where the process ends before."""
    give_up = time.monotonic() + WITHIN
    while time.monotonic() < give_up:
        with socket.socket(socket.AF_UNIX) as sock:
            try:
                sock.connect(str(path))
            except (FileNotFoundError, ConnectionRefusedError):
                if ended() is not None:
                    return False
                time.sleep(LOOK_EVERY)
            else:
                return True
    raise ProgramFailed(f"{name!r} had no hub within {WITHIN:g} s")


def _end(process: subprocess.Popen[bytes], *, told: bool) -> None:
    """In order, so that the next one finds the agent free: ``told`` by SIGTERM, or with its standard input."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    if process.returncode is None:
        if told:
            process.terminate()
        try:
            process.wait(LEAVE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
