"""``python -m ospbridge.bench.driver``: one environment, stepped at random in a process of its own.

It reports in JSON lines on standard output: first the spaces, then how far it is, at the end what came of it. The demo
and measurements of many processes are made of these.
"""

from __future__ import annotations

import sys
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import click
import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from gymnasium import Env, Space

__all__ = ["Began", "Ended", "Reached", "Report", "decode_report"]

REPORT_EVERY: Final = 0.1
"""Seconds between reports."""


class Began(msgspec.Struct, frozen=True, tag="began"):
    """The environment is made; the first reset is under way."""

    observation: str
    action: str


class Reached(msgspec.Struct, frozen=True, tag="reached"):
    """So many steps are done."""

    steps: int


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """All steps are done. Times of single steps in microseconds; an unfinished episode's return is left out."""

    steps: int
    steps_per_second: float
    p50_us: float
    p90_us: float
    p99_us: float
    returns: list[float]


Report = Began | Reached | Ended
_DECODER: Final = msgspec.json.Decoder(Report)


def decode_report(line: str) -> Report:
    """A line of a driver's output."""
    report: Report = _DECODER.decode(line)
    return report


def in_words(space: Space[Any]) -> str:
    """A space in a few words, however many dimensions it has."""
    from gymnasium.spaces import Box

    if not isinstance(space, Box):
        return str(space)
    return f"Box{space.shape} in [{space.low.min():g}, {space.high.max():g}]".replace(",)", ")")


def drive(
    env: Env[Any, Any], steps: int, seed: int, told: Callable[[Report], None], *, action_seed: int
) -> Ended:
    """Take random steps, resetting as needed; the clock stands still during resets.

    Drivers in lock-step share the world and so its seed, but should not all act alike.
    """
    import numpy as np

    told(Began(in_words(env.observation_space), in_words(env.action_space)))
    env.action_space.seed(action_seed)
    durations: list[float] = []
    returns: list[float] = []
    env.reset(seed=seed)
    score, over = 0.0, False
    report_at = monotonic() + REPORT_EVERY
    for number in range(steps):
        if over:
            env.reset()
            score = 0.0
        action = env.action_space.sample()
        before = perf_counter()
        _, reward, terminated, truncated, _ = env.step(action)
        durations.append(perf_counter() - before)
        score += float(reward)
        over = terminated or truncated
        if over:
            returns.append(score)
        if monotonic() >= report_at:
            told(Reached(number + 1))
            report_at = monotonic() + REPORT_EVERY
    p50, p90, p99 = (float(each) * 1e6 for each in np.percentile(durations, (50, 90, 99)))
    return Ended(steps, steps / sum(durations), p50, p90, p99, returns)


@click.command()
@click.option("--bridge", required=True, metavar="unix:PATH", help="Hub of the daemon to attach to.")
@click.option("--agent", required=True, metavar="NAME", help="Agent to drive.")
@click.option("--steps", type=click.IntRange(1), default=600, help="How many steps to take.")
@click.option("--episode", type=click.IntRange(1), default=100, help="Most steps of an episode.")
@click.option("--seed", type=click.IntRange(0), default=0, help="Seed of the world and the actions.")
@click.option("--wait", type=float, default=20.0, metavar="SECONDS", help="Wait for the daemon so long.")
def main(*, bridge: str, agent: str, steps: int, episode: int, seed: int, wait: float) -> None:
    """Step an environment at random, and report in JSON lines."""
    import gymnasium

    from ospbridge.errors import OspBridgeError

    def told(report: Report) -> None:
        click.echo(msgspec.json.encode(report))

    try:
        env: Env[Any, Any] = gymnasium.make(
            "ospbridge:ospbridge/Agent-v0", bridge=bridge, agent=agent, wait=wait, max_episode_steps=episode
        )
        try:
            ended = drive(env, steps, seed, told, action_seed=seed + crc32(agent.encode()) % 65_536)
        finally:
            env.close()
    except OspBridgeError as error:
        click.echo(str(error), err=True)
        sys.exit(error.exit_code)
    told(ended)


if __name__ == "__main__":
    main()
