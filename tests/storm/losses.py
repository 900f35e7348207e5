"""``python -m tests.storm.losses``: what losses cost at a simulator like `ospbridge sim --profile nerd --stall 0.02`.

One agent, and three of one client; 1,000 steps with each of three seeds; in memory under virtual time, and through
sockets at a real process that loses, doubles and delays datagrams either way and is stopped by SIGSTOP now and then.
Prints a table for docs/measurements.md, and exits with 1 where a step was wrong and untold.

python -m tests.storm.losses --steps 200 --memory
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ospbridge.errors import OspBridgeError
from ospbridge.session.blocking import BlockingSession
from tests.storm.explaining import judge
from tests.storm.lives import (
    DIFFERENT,
    INPUTS,
    NEUTRAL,
    OUTPUTS,
    Life,
    Storm,
    Weather,
    begin_episode,
    give,
    observe,
    untrue,
)
from tests.storm.machines import REBUILT_AFTER, STOPPED

__all__ = ["NETWORKS", "SEEDS", "Figures", "together"]

STEPS: Final = 1000
SEEDS: Final = range(3)
CREWS: Final = (1, 3)
"""Numbers of agents, all of one client."""
STALL: Final = 0.02
CALM: Final = Weather(0.0, 0.0, 0.0, 0.0, delay_max=0.08)
_QUIET: Final = Storm(0, "nerd", 1, 1, CALM, stall=STALL)
NETWORKS: Final = {
    "no loss": _QUIET,
    "no loss, stopped now and then": replace(_QUIET, runs=0.1),
    "loses 2 %": replace(_QUIET, weather=replace(CALM, drop=0.02)),
    "loses 2 %, stopped now and then": replace(_QUIET, weather=replace(CALM, drop=0.02), runs=5.0),
    "loses, doubles, delays 2 %": replace(
        _QUIET, weather=replace(CALM, drop=0.02, duplicate=0.02, delay=0.02)
    ),
}
"""Delays are of up to 80 ms; a simulator that is stopped now and then is so for 0.1 to 2 s."""


@dataclass(frozen=True)
class Figures:
    """What came of one run, or of several."""

    steps: int
    seconds: float
    ends: int
    """How often a session was rebuilt."""
    beyond: int
    """Episodes of which something was wrong and untold where the promise ends."""
    wrong: int
    """Episodes of which something was wrong and untold else."""

    @property
    def steps_a_second(self) -> float:
        return self.steps / self.seconds

    def __add__(self, other: Figures) -> Figures:
        return Figures(
            self.steps + other.steps,
            self.seconds + other.seconds,
            self.ends + other.ends,
            self.beyond + other.beyond,
            self.wrong + other.wrong,
        )


NOTHING: Final = Figures(0, 0.0, 0, 0, 0)


def storm_of(network: str, agents: int, seed: int, steps: int, profile: str = "nerd") -> Storm:
    """One episode goes on until something ends it."""
    return replace(NETWORKS[network], profile=profile, agents=agents, seed=seed, steps=steps, horizon=steps)


def in_memory(storm: Storm) -> Figures:
    """Under virtual time. Raises Hang."""
    verdict = judge(storm)
    return Figures(verdict.steps, verdict.seconds, verdict.ends, len(verdict.beyond), len(verdict.broken))


def together(network: str, agents: int, *, steps: int = STEPS, profile: str = "nerd") -> Figures:
    """Of all seeds, in memory."""
    return sum((in_memory(storm_of(network, agents, seed, steps, profile)) for seed in SEEDS), NOTHING)


# --- through sockets -----------------------------------------------------------------------------------------------


@contextmanager
def simulator(storm: Storm, ledger: Path) -> Iterator[tuple[str, int]]:
    """A process of its own: its address, and its number."""
    weather = storm.weather
    command = [
        *(sys.executable, "-m", "ospbridge", "sim", "--synthetic", f"{INPUTS},{OUTPUTS},1"),
        *("--agents", str(storm.agents), "--profile", storm.profile, "--port", "0", "--quiet"),
        *("--stall", str(storm.stall), "--drop", str(weather.drop), "--duplicate", str(weather.duplicate)),
        *("--delay", str(weather.delay), "--delay-max", str(weather.delay_max)),
        *("--seed", str(storm.seed), "--ledger", str(ledger)),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process.pid
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.communicate()


@contextmanager
def stopped_now_and_then(pid: int, storm: Storm) -> Iterator[None]:
    over = threading.Event()
    draw = random.Random(f"{storm.seed}/pauses")

    def stop() -> None:
        while not over.wait(draw.uniform(0.5, 1.5) * storm.runs):
            os.kill(pid, signal.SIGSTOP)
            over.wait(draw.uniform(*STOPPED))
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=stop, daemon=True)
    if storm.runs:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if storm.runs:
            thread.join()


class Player:
    """Sessions one after the other, with all agents, until all steps are made."""

    def __init__(self, address: str, storm: Storm) -> None:
        names = ["agent"] if storm.agents == 1 else [f"agent{at}" for at in range(1, storm.agents + 1)]
        self.lives = [Life(name, other=at * (DIFFERENT // storm.agents)) for at, name in enumerate(names)]
        self.ends = 0
        self._address = address
        self._storm = storm
        self._before: Any = None

    def play(self) -> None:
        while self.lives[0].steps < self._storm.steps:
            session = None
            with suppress(OspBridgeError):
                session = BlockingSession.connect(self._address, profile=self._storm.profile)
                if self._before is not None:
                    session.machine.succeed(self._before)
                session.register(*(life.agent for life in self.lives))
                self._episode(session)
                session.close()
                continue
            self.ends += 1
            if session is not None:
                self._before = session.machine
                session.close()
            time.sleep(REBUILT_AFTER)

    def _episode(self, session: BlockingSession) -> None:
        """All that is left. Raises what ends it."""
        session.reset(1 + self.ends)
        outcome = session.step({life.agent: NEUTRAL for life in self.lives})
        begin_episode(self.lives, outcome, after_end=self._before is not None)
        try:
            while self.lives[0].steps < self._storm.steps:
                observe(self.lives, session.step(give(self.lives)))
            reason = session.audit()
        except OspBridgeError as error:
            reason = error.message
            raise
        finally:
            for life in self.lives:
                life.episodes[-1].ended, life.episodes[-1].told = True, reason
        self.ends += bool(reason)


def through_sockets(storm: Storm) -> Figures:
    with tempfile.TemporaryDirectory() as directory:
        ledger = Path(directory) / "ledger.jsonl"
        with simulator(storm, ledger) as (address, pid):
            player = Player(address, storm)
            began = time.monotonic()
            with stopped_now_and_then(pid, storm):
                player.play()
            seconds = time.monotonic() - began
        entries = [json.loads(line) for line in ledger.read_text().splitlines()]
    untruths = list(untrue(player.lives, entries))
    # What the simulator's own faults did to which datagram is not known here.
    beyond = bool(storm.weather.duplicate and storm.weather.delay) * len(untruths)
    for untruth in untruths:
        print(f"{storm}: {untruth}", flush=True)
    return Figures(player.lives[0].steps, seconds, player.ends, beyond, len(untruths) - beyond)


# --- the table -----------------------------------------------------------------------------------------------------

COLUMNS: Final = (
    "network",
    "agents",
    "steps/s",
    "of each seed",
    "ends in 1,000 steps",
    "wrong and untold where the promise may end",
    "else",
)


def row(network: str, agents: int, of_seeds: list[Figures]) -> str:
    figures = sum(of_seeds, NOTHING)
    cells = (
        network,
        str(agents),
        f"{figures.steps_a_second:,.1f}",
        ", ".join(f"{each.steps_a_second:,.1f}" for each in of_seeds),
        f"{1000 * figures.ends / figures.steps:.1f}",
        str(figures.beyond),
        str(figures.wrong),
    )
    return f"| {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.storm.losses")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--memory", action="store_true", help="in memory only")
    parser.add_argument("--at-once", type=int, default=4, help="simulators that run at the same time")
    arguments = parser.parse_args()
    wrong = 0
    ways = [("in memory, virtual time", in_memory)]
    if not arguments.memory:
        ways.append(("through sockets", through_sockets))
    for way, measure in ways:
        at_once = arguments.at_once if measure is through_sockets else 1
        print(f"\n{way}:\n\n| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
        with ThreadPoolExecutor(at_once) as pool:
            runs = {
                (network, agents): [
                    pool.submit(measure, storm_of(network, agents, seed, arguments.steps)) for seed in SEEDS
                ]
                for network in NETWORKS
                for agents in CREWS
            }
            for (network, agents), futures in runs.items():
                figures = [future.result() for future in futures]
                wrong += sum(each.wrong for each in figures)
                print(row(network, agents, figures), flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
