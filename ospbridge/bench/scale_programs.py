"""A daemon, and clients that step at the same time: what sizes and memory are measured with."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ospbridge.bench.processes import Program, culprit
from ospbridge.bench.scale_client import EARLY, READY, Stepped
from ospbridge.bench.stage import START, time_for
from ospbridge.errors import OspBridgeError
from ospbridge.transport.unix import room_for_sockets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["daemon_of", "stepped_by"]


@contextlib.contextmanager
def daemon_of(*options: str) -> Iterator[tuple[Program, Path]]:
    """A daemon, and the directory with its hubs. Raises ProgramFailed in place of what its clients see of its end."""
    with (
        tempfile.TemporaryDirectory(prefix="ospb-", dir=room_for_sockets()) as directory,
        Program(
            "ospbridge",
            "connect",
            *options,
            name="the daemon",
            environment={"RUNTIME_DIRECTORY": directory},
            heard=False,
        ) as daemon,
    ):
        try:
            yield daemon, Path(directory)
        except OspBridgeError as error:
            failure = culprit([daemon])
            if failure is None:
                raise
            raise failure from error


def stepped_by(
    *clients: Sequence[str], steps: int, early: Callable[[], None] = lambda: None
) -> list[Stepped]:
    """What clients tell that step at the same time, each with its arguments.

    ``early`` is called once all of them have taken a tenth of their steps.
    """
    within = time_for(steps, clients=len(clients))
    with contextlib.ExitStack() as stack:
        programs = [
            stack.enter_context(
                Program("ospbridge.bench.scale_client", *client, "--steps", str(steps), name="a client")
            )
            for client in clients
        ]
        _await(programs, READY, START * (1 + len(clients)))
        for program in programs:
            assert program.process.stdin is not None
            program.process.stdin.close()
        _await(programs, EARLY, within)
        early()
        return [msgspec.json.decode(program.line(within), type=Stepped) for program in programs]


def _await(programs: Sequence[Program], wanted: str, seconds: float) -> None:
    for program in programs:
        line = program.line(seconds)
        if line != wanted:
            raise program.failed(f"said {line!r}, expected {wanted!r}")
