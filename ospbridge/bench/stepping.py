"""``python -m ospbridge.bench.stepping``: environments at one hub, each in a process of its own, stepped in lock-step.

The processes are forked from this one, which has loaded all that an environment needs, and attach at once. Each line
of standard input, "STEPS WARM_UP", has all of them reset and take so many steps; what came of it is a line of JSON on
standard output, as ``Run``. The first line of output says that all are attached. It ends when its standard input
does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click
import msgspec
import numpy as np

from ospbridge.bench.figures import Run, timed
from ospbridge.bench.stage import START
from ospbridge.bench.subjects import ENVIRONMENT

if TYPE_CHECKING:
    from gymnasium import Env

__all__ = ["ATTACHED", "decode_run"]

ATTACHED: Final = "attached"
FAILED: Final = b"failed"


def decode_run(line: str) -> Run:
    """A line of output: all processes together. Times and rate are the medians over the processes."""
    run: Run = msgspec.json.decode(line, type=Run)
    return run


class _Child:
    """A process with one environment: its two ends of pipes."""

    def __init__(self, bridge: str, agent: str) -> None:
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(ours_in)
            os.close(ours_out)
            _child(bridge, agent, theirs_in, theirs_out)
        os.close(theirs_out)
        os.close(theirs_in)
        self._told = os.fdopen(ours_in, "rb")
        self._asked = os.fdopen(ours_out, "wb", buffering=0)

    def ask(self, line: bytes) -> None:
        self._asked.write(line)

    def answer(self) -> bytes:
        line = self._told.readline().rstrip(b"\n")
        if not line or line == FAILED:
            raise SystemExit(1)
        return line

    def dismiss(self) -> None:
        """Have it leave. Those that were forked later hold the same pipe: each ends when they have."""
        self._asked.close()

    def stop(self) -> None:
        """End it in the midst of its steps."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)


def _child(bridge: str, agent: str, asked: int, told: int) -> NoReturn:
    """What a forked process does: it never returns into its parent's code."""
    status = 1
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with os.fdopen(asked, "rb") as requests, os.fdopen(told, "wb", buffering=0) as answers:
            try:
                _serve(bridge, agent, requests, answers)
                status = 0
            except Exception as error:  # noqa: BLE001  # whatever it is, the parent shows it
                click.echo(f"{agent}: {error}", err=True)
                answers.write(FAILED + b"\n")
    finally:
        os._exit(status)


def _serve(bridge: str, agent: str, requests: Any, answers: Any) -> None:
    import gymnasium

    made: Env[Any, Any] = gymnasium.make(ENVIRONMENT, bridge=bridge, agent=agent, wait=START)
    try:
        env = made.unwrapped
        assert env.action_space.shape is not None
        action = np.full(env.action_space.shape, 0.5, np.float32)
        answers.write(b"%s\n" % ATTACHED.encode())
        for line in requests:
            steps, warm_up = map(int, line.split())
            env.reset(seed=1)
            run = timed(lambda: env.step(action), steps, warm_up, alone=False)
            answers.write(msgspec.json.encode(run) + b"\n")
    finally:
        made.close()


def _together(runs: list[Run]) -> Run:
    """In lock-step all take the same steps, so that any one's rate is that of all; the processor time is the average.

    Not the least rate: whoever is last to hear of the last step hears of it while others work out their figures.
    """
    return Run(
        median(run.p50 for run in runs),
        median(run.p90 for run in runs),
        median(run.p99 for run in runs),
        median(run.steps_per_second for run in runs),
        fmean(run.processor for run in runs),
    )


@click.command()
@click.option("--bridge", required=True, metavar="unix:PATH", help="Hub of the daemon to attach to.")
@click.option("--agent", "agents", required=True, multiple=True, metavar="NAME", help="One for each process.")
def main(*, bridge: str, agents: tuple[str, ...]) -> None:
    """Step environments in lock-step, as the lines of standard input ask."""
    import gymnasium  # noqa: F401  # loaded once, for all processes

    import ospbridge.envs.agent_env  # noqa: F401

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    children: list[_Child] = []
    try:
        children.extend(_Child(bridge, agent) for agent in agents)
        for child in children:
            child.answer()
        click.echo(ATTACHED)
        for line in sys.stdin.buffer:
            for child in children:
                child.ask(line)
            runs = [msgspec.json.decode(child.answer(), type=Run) for child in children]
            click.echo(msgspec.json.encode(_together(runs)))
    except BaseException:
        # The others wait for the one that failed, or have many steps before them.
        for child in children:
            child.stop()
        raise
    finally:
        for child in children:
            child.dismiss()
        for child in children:
            os.waitpid(child.pid, 0)


if __name__ == "__main__":
    main()
