"""Ends owners of sessions in mid-step, and sees whether their agents get free: see ``test_killed_owners``.

python -m tests.session.killed_owners --kills 100 --other 10    # all kinds of owners, each way to end them
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ospbridge.errors import StepUncertain
from ospbridge.osp.profile import NERD
from ospbridge.session.blocking import BlockingSession
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator

KINDS = ("env", "vector", "worker", "daemon")
NO_END_OF_DAEMONS = (signal.SIGHUP, signal.SIGUSR1)
"""They reload their configuration, or know no such signal."""
ROOT = Path(__file__).parents[2]
STEP_LIMIT = 20.0
"""Seconds that an owner of ``owners`` waits for a step."""
WITHIN = 20.0
"""Seconds after which an agent counts as locked for good, however busy the machine is."""


@contextmanager
def simulator(agents: int = 3) -> Iterator[UdpSimulator]:
    """It behaves as real servers do towards clients that die."""
    with UdpSimulator(SyntheticWorld(2, 3, agents=agents, think=0.001), port=0, profile=NERD) as running:
        yield running


def start(kind: str, address: str, *more: str, leases: Path) -> subprocess.Popen[str]:
    """A process of ``owners``."""
    return _started("tests.session.owners", kind, address, *more, leases=leases)


def _started(module: str, *arguments: str, leases: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env={**os.environ, "XDG_RUNTIME_DIR": str(leases)},
    )


def play(*processes: subprocess.Popen[str]) -> None:
    """Clients of one agent each begin their episode together."""
    for process in processes:
        assert said(process) == "made"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        assert said(process) == "up"


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@contextmanager
def owner(kind: str, address: str, leases: Path) -> Iterator[int]:
    """The id of a process of that kind that steps agents of a simulator; all that belongs to it ends behind it."""
    started: list[subprocess.Popen[str]] = []
    others: list[int] = []
    try:
        if kind == "daemon":
            hub = leases / "hub.sock"
            options = ["--simulator", address, "--hub", f"unix:{hub}", "--profile", "nerd"]
            started.append(_started("ospbridge", "connect", *options, leases=leases))
            started.append(start("hub", f"unix:{hub}", leases=leases))
            assert said(started[-1]) == "up"
            yield started[0].pid
        elif kind == "worker":
            started.append(start("workers", address, leases=leases))
            others += map(int, said(started[-1]).split())
            yield others[0]
        else:
            started.append(start(kind, address, *(["agent1"] if kind == "env" else []), leases=leases))
            if kind == "env":
                play(started[-1])
            else:
                assert said(started[-1]) == "up"
            yield started[-1].pid
    finally:
        for process in started:
            process.kill()
            process.communicate()
        for pid in others:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def wait_in_a_loop(seconds: float) -> None:
    """Sleeping would align with the server's timers."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def freed_after(server: UdpSimulator, agents: set[int]) -> float | None:
    """Seconds until nobody controls these agents; None where that never comes."""
    begun = time.monotonic()
    while time.monotonic() - begun < WITHIN:
        held = {at for at, control in enumerate(server.machine.controls) if control.handler is not None}
        if not held & agents:
            return time.monotonic() - begun
        time.sleep(0.005)
    return None


def guardians_of(pid: int) -> list[int]:
    """Process ids of the guardians that a process has started."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            with suppress(OSError):
                if "guardian_process" in Path(f"/proc/{child}/cmdline").read_text():
                    found.append(int(child))
    return found


def end_one(kind: str, how: signal.Signals, *, seed: float, guardian_first: bool = False) -> float | None:
    """Ends one owner at a moment drawn by ``seed``; seconds until its agents are free, then a next one plays.

    With ``guardian_first`` the next one has to free them: seconds are 0.
    """
    with tempfile.TemporaryDirectory() as directory, simulator() as server:
        leases = Path(directory)
        leases.chmod(0o700)
        address = str(server.address)
        with owner(kind, address, leases) as pid:
            if guardian_first:
                for guardian in guardians_of(pid):
                    os.kill(guardian, signal.SIGKILL)
            wait_in_a_loop(random.Random(seed).uniform(0.0, 0.05))
            os.kill(pid, how)
            mine = {0} if kind in {"env", "worker"} else {0, 1, 2}
            took = 0.0 if guardian_first else freed_after(server, mine)
        if took is None:
            return None
        _play(address, leases / "ospbridge" / "leases")
    return took


def end_one_of_two(*, seed: float) -> tuple[float, str]:
    """Kills one of two clients in lock-step: seconds until the world steps on, and what the other one was told."""
    with tempfile.TemporaryDirectory() as directory, simulator(agents=2) as server:
        leases = Path(directory)
        leases.chmod(0o700)
        both = [start("env", str(server.address), f"agent{number}", leases=leases) for number in (1, 2)]
        try:
            play(*both)
            wait_in_a_loop(random.Random(seed).uniform(0.0, 0.05))
            both[0].kill()
            begun = time.monotonic()
            both[0].wait()
            before = server.machine.steps
            # More than what one of them may have had under way.
            while server.machine.steps < before + 10 and time.monotonic() - begun < 2 * STEP_LIMIT:
                time.sleep(0.005)
            took = time.monotonic() - begun
        finally:
            for process in both:
                process.kill()
        told = both[1].communicate(timeout=WITHIN)[0]
        both[0].communicate(timeout=WITHIN)
    return took, told.strip()


def _play(address: str, leases: Path) -> None:
    """The next start: all agents, and some steps.

    As in the resets of environments a first one may be in doubt: a request of the dead that is still counted is not
    known of where their guardian has freed the agents.
    """
    with suppress(StepUncertain):
        _play_once(address, leases)
        return
    _play_once(address, leases)


def _play_once(address: str, leases: Path) -> None:
    with BlockingSession.connect(address, leases=leases) as session:
        names = session.matching(())
        agents = session.register(*names)
        session.reset()
        for _ in range(3):
            session.step({agent.name: [0.0] * len(agent.inputs) for agent in agents})


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100, help="kills -9 of each kind")
    parser.add_argument("--other", type=int, default=10, help="of each other way to end each kind")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    ways = {signal.SIGKILL: options.kills} | dict.fromkeys(
        (signal.SIGTERM, signal.SIGHUP, signal.SIGABRT, signal.SIGUSR1), options.other
    )
    locked = 0
    for kind in KINDS:
        for how, times in ways.items():
            if kind == "daemon" and how in NO_END_OF_DAEMONS:
                continue
            took = [end_one(kind, how, seed=options.seed + number / 1e6) for number in range(times)]
            free = sorted(seconds for seconds in took if seconds is not None)
            locked += len(took) - len(free)
            shown = (
                f"free after {free[len(free) // 2]:.2f} s, at most {free[-1]:.2f}" if free else "never free"
            )
            print(f"{kind:8} {how.name:8} {len(free):3} of {len(took):3} {shown}", flush=True)
        for number in range(options.other):
            end_one(kind, signal.SIGKILL, seed=options.seed + number / 1e6, guardian_first=True)
        print(
            f"{kind:8} SIGKILL, its guardian before: the next start played {options.other} times", flush=True
        )
    two = [end_one_of_two(seed=options.seed + number / 1e6) for number in range(options.other)]
    print(
        f"of two in lock-step one was killed {len(two)} times: {sum(bool(told) for _, told in two)} were told, and"
    )
    print(
        f"all went on after {max(took for took, _ in two):.2f} s at most: {sorted({told for _, told in two if told})}"
    )
    return int(locked > 0 or max(took for took, _ in two) >= STEP_LIMIT)


if __name__ == "__main__":
    sys.exit(main())
