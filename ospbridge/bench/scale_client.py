"""``python -m ospbridge.bench.scale_client``: environments that one process steps, for so long, and the memory it has.

A process of its own, so that its memory is that of its environments. It says ``READY`` and waits for its standard input
to end, so that others may be ready too; then it steps, says ``EARLY`` on the way, and in the end what came of it, a
``Stepped`` as JSON.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, Final

import click
import gymnasium
import msgspec
import numpy as np

from ospbridge.bench.figures import Run
from ospbridge.bench.usage import resident

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["EARLY", "READY", "Stepped"]

ENVIRONMENT: Final = "ospbridge:ospbridge/Agent-v0"
READY: Final = "ready"
EARLY: Final = "early"
SHARE: Final = 0.1
"""Of the steps: when it says so, and looks at its memory. All that is needed has come by then."""
WAIT: Final = 30.0
"""Seconds for which a daemon may be absent."""


class Stepped(msgspec.Struct, frozen=True):
    """What a client's steps took, and its memory in bytes after a tenth of them and after all."""

    run: Run
    memory_early: int
    memory: int


def _group(stack: ExitStack, place: dict[str, Any], count: int) -> tuple[Callable[[], object], Sequence[Any]]:
    """A step of all agents of a simulator, and what is to be reset."""
    envs = gymnasium.make_vec(ENVIRONMENT, num_envs=count, agents="*", **place)
    stack.enter_context(closing(envs))
    actions = np.zeros(envs.action_space.shape or (), np.float32)
    return lambda: envs.step(actions), [envs]


def _singles(stack: ExitStack, places: list[dict[str, Any]]) -> tuple[Callable[[], object], Sequence[Any]]:
    """A step of one environment, each time of the next one, and all of them."""
    made = []
    for place in places:
        env = gymnasium.make(ENVIRONMENT, **place).unwrapped
        stack.enter_context(closing(env))
        made.append(env)
    turns = [(env.step, np.zeros(env.action_space.shape or (), np.float32)) for env in made]
    if len(turns) == 1:
        ((step, action),) = turns
        return lambda: step(action), made
    latest = -1

    def next_one() -> object:
        nonlocal latest
        latest = (latest + 1) % len(turns)
        step, action = turns[latest]
        return step(action)

    return next_one, made


def stepped(
    step: Callable[[], object], envs: Sequence[Any], *, steps: int, warm_up: int, episode: int
) -> Stepped:
    """Take steps, of which the first ``warm_up`` do not count; resets are outside the time.

    ``episode``: steps between resets; 0: none. No memory is taken while it runs.
    """

    def reset() -> None:
        for env in envs:
            env.reset(seed=1)

    reset()
    for _ in range(warm_up):
        step()
    # All pages are written to, and so there, before any memory is told.
    seconds = np.full(steps, -1.0, np.float32)
    early, memory_early = max(1, int(steps * SHARE)), 0
    processor = 0.0
    at = 0
    while at < steps:
        if at and episode:
            reset()
        stretch = min(episode or early, early - at if at < early else steps - at)
        began = process_time()
        for place in range(at, at + stretch):
            before = perf_counter()
            step()
            seconds[place] = perf_counter() - before
        processor += process_time() - began
        at += stretch
        if at == early:
            memory_early = resident()
            click.echo(EARLY)
    memory = resident()
    return Stepped(Run.of(seconds.astype(np.float64), processor), memory_early, memory)


@click.command()
@click.option("--simulator", default="", metavar="HOST:PORT", help="Simulator to step directly.")
@click.option("--bridge", "bridges", multiple=True, metavar="unix:PATH", help="Hub; may be repeated.")
@click.option("--agent", default="", metavar="NAME", help="Agent to drive. Default: the only one.")
@click.option("--count", type=click.IntRange(0), default=0, help="Step so many agents as a vector.")
@click.option("--steps", type=click.IntRange(1), default=1000, help="Steps that count.")
@click.option("--warm-up", type=click.IntRange(0), default=100, help="Steps before.")
@click.option("--episode", type=click.IntRange(0), default=0, help="Steps between resets; 0: none.")
def main(
    *,
    simulator: str,
    bridges: tuple[str, ...],
    agent: str,
    count: int,
    steps: int,
    warm_up: int,
    episode: int,
) -> None:
    """Step environments, and tell what it took."""
    places: list[dict[str, Any]] = [{"bridge": bridge, "wait": WAIT} for bridge in bridges]
    if simulator:
        places.append({"simulator": simulator})
    if agent:
        places = [{**place, "agent": agent} for place in places]
    with ExitStack() as stack:
        step, envs = _group(stack, places[0], count) if count else _singles(stack, places)
        click.echo(READY)
        sys.stdin.read()
        told = stepped(step, envs, steps=steps, warm_up=warm_up, episode=episode)
    click.echo(msgspec.json.encode(told))


if __name__ == "__main__":
    main()
