"""A server that loses wake-ups, as those of the NERD toolkit do: built from ``stalling.c``, and run.

Only a program with threads of its own shows that fault, so it is written in C, and needs a compiler.
"""

from __future__ import annotations

import contextlib
import select
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ospbridge.bench.processes import PATIENCE, ProgramFailed
from ospbridge.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["NO_COMPILER", "StallingServer", "building", "compiler", "running"]

SOURCE: Final = Path(__file__).with_suffix(".c")
COMPILE_WITHIN: Final = 60.0
START_WITHIN: Final = 10.0
"""Seconds."""
NO_COMPILER: Final = "there is no C compiler `cc`, with which the server that stalls is built"


@dataclass(frozen=True, slots=True)
class StallingServer:
    """One that runs: HOST:PORT, and its process."""

    address: str
    pid: int


def compiler() -> str | None:
    """Where the C compiler is; None where there is none."""
    return shutil.which("cc")


@contextlib.contextmanager
def building() -> Iterator[Path]:
    """The program, as long as the block lasts. Raises UsageError without a compiler, ProgramFailed where that fails."""
    cc = compiler()
    if cc is None:
        raise UsageError(
            NO_COMPILER, hint="install one, for instance with: sudo apt-get install gcc libc6-dev"
        )
    with tempfile.TemporaryDirectory(prefix="ospb-") as directory:
        program = Path(directory) / SOURCE.stem
        try:
            done = subprocess.run(  # noqa: S603  # the compiler, with a source of ours
                [cc, "-O2", "-pthread", "-o", str(program), str(SOURCE)],
                capture_output=True,
                check=False,
                timeout=COMPILE_WITHIN,
            )
        except subprocess.TimeoutExpired:
            raise ProgramFailed(f"{cc} did not build {SOURCE} within {COMPILE_WITHIN:g} s") from None
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()[:1]
            raise ProgramFailed(f"{cc} cannot build {SOURCE}: {' '.join(said)}")
        yield program


@contextlib.contextmanager
def running(program: Path, *, busy: int = 100) -> Iterator[StallingServer]:
    """The server on a free port; ended behind the block. ``busy``: microseconds for which a step keeps it busy."""
    process = subprocess.Popen(  # noqa: S603  # a program of ours
        [str(program), "0", str(busy)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        process_group=0,  # of our session, as users start it: in one of its own it would lose fewer wake-ups
    )
    assert process.stdout is not None
    try:
        ready = select.select([process.stdout], [], [], START_WITHIN)[0]
        address = process.stdout.readline().decode().strip() if ready else ""
        if not address:
            raise ProgramFailed(f"the server that stalls told no address within {START_WITHIN:g} s")
        yield StallingServer(address, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
