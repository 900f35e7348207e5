"""Closing from another thread while one steps: at random moments, over and over.

``python -m tests.session.closing [--closes 1000]`` does it for each kind of session and environment.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final, NamedTuple

import structlog

from ospbridge.errors import SessionClosed
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.session.hub_client import HubClient
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs import kinds
from tests.envs.daemons import hosted
from tests.session.drivers import Driver

THINKS: Final = (0.0, 0.0, 0.002, 0.06)
"""Seconds that the simulator of a close takes for a step."""
LONGEST_DELAY: Final = 0.02
"""Seconds from the first step to a close."""
NAMES: Final = ("one", "two")
"""Agents of each simulator."""


class Stepping(threading.Thread):
    """Calls ``step`` until that raises. Closed by whoever made it."""

    def __init__(self, step: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._step = step
        self.begun = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while True:
                self._step()
                self.begun.set()
        except BaseException as error:  # noqa: BLE001  # whoever made it looks at that
            self.error = error
            self.begun.set()


class Made(NamedTuple):
    """What is to be closed."""

    step: Callable[[], object]
    close: Callable[[], None]


def closed_at_random(make: Callable[[], Made], taken: Callable[[], object], seed: int) -> None:
    """One close: ``taken`` says whether an agent is not free yet.

    Raises AssertionError where whoever steps, then or later, gets anything but SessionClosed, or an agent stays taken.
    """
    step, close = make()
    stepping = Stepping(step)
    stepping.start()
    assert stepping.begun.wait(30)
    sleep(random.Random(seed).uniform(0.0, LONGEST_DELAY))
    close()
    stepping.join(30)
    assert not stepping.is_alive(), f"still stepping, seed {seed}"
    assert type(stepping.error) is SessionClosed, f"{stepping.error!r}, seed {seed}"
    give_up = monotonic() + 10
    while taken():
        assert monotonic() < give_up, f"agents stay taken, seed {seed}"
        sleep(0.002)
    again = Stepping(step)
    again.run()
    assert type(again.error) is SessionClosed, f"{again.error!r} behind it, seed {seed}"
    close()


# --- what is closed --------------------------------------------------------------------------------------------------


def _session(simulators: Sequence[UdpSimulator]) -> Made:
    session = Driver().playing(simulators[0], *NAMES)
    rest = {name: [0.0] for name in NAMES}
    return Made(lambda: session.step(rest), session.close)


def _env(env: Any) -> Made:
    """Reset, and again whenever an episode has ended."""
    env.reset(seed=1)

    def step() -> None:
        if not getattr(env, "agents", NAMES):
            env.reset()
        *_, terminated, truncated, _ = kinds.step(env)
        if terminated is True or truncated is True:
            env.reset()

    return Made(step, env.close)


def _addresses(simulators: Sequence[UdpSimulator]) -> list[str]:
    return [str(simulator.address) for simulator in simulators]


class Kind(NamedTuple):
    """What is closed, of so many simulators of so many agents. ``make`` gets the simulators, or their hubs."""

    make: Callable[[Any], Made]
    simulators: int = 1
    agents: int = 2
    hub: bool = False


KINDS: Final = {
    "session": Kind(_session),
    "make": Kind(lambda found: _env(kinds.single(_addresses(found)[0])), agents=1),
    "make_vec over one simulator": Kind(lambda found: _env(kinds.vector(_addresses(found)[0], num_envs=2))),
    "make_vec over two simulators": Kind(lambda found: _env(kinds.vector(_addresses(found), num_envs=4)), 2),
    "parallel_env": Kind(lambda found: _env(kinds.parallel(_addresses(found)[0]))),
    "make at a hub": Kind(lambda hubs: _env(kinds.single(bridge=hubs[0], agent=NAMES[0])), hub=True),
    "make_vec at one hub": Kind(lambda hubs: _env(kinds.vector(bridge=hubs[0], num_envs=2)), hub=True),
    "make_vec at two hubs": Kind(lambda hubs: _env(kinds.vector(bridge=hubs, num_envs=4)), 2, hub=True),
    "parallel_env at a hub": Kind(lambda hubs: _env(kinds.parallel(bridge=hubs[0])), hub=True),
}


# --- over and over ---------------------------------------------------------------------------------------------------


@contextmanager
def _direct(simulators: list[UdpSimulator]) -> Iterator[tuple[Any, Callable[[], bool]]]:
    yield simulators, lambda: any(simulator.machine.controlled for simulator in simulators)


@contextmanager
def _hubs(simulators: list[UdpSimulator]) -> Iterator[tuple[Any, Callable[[], bool]]]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ospb-")))
        hubs = []
        for number, simulator in enumerate(simulators):
            stack.enter_context(hosted(simulator.address, directory / f"hub{number}"))
            hubs.append(f"unix:{directory / f'hub{number}'}")
        watching = [stack.enter_context(closing(HubClient.connect(hub))) for hub in hubs]
        yield (
            hubs,
            lambda: any(agent.state != "free" for client in watching for agent in client.status().agents),
        )


def closes(name: str, profile: Profile, seeds: range) -> None:
    """So many closes of one kind, over simulators of each pace."""
    kind = KINDS[name]
    reach: Callable[[Any], AbstractContextManager[Any]] = _hubs if kind.hub else _direct
    for number, think in enumerate(THINKS):
        with ExitStack() as stack:
            simulators = []
            for _ in range(kind.simulators):
                world = SyntheticWorld(1, 1, names=list(NAMES[: kind.agents]), think=think)
                simulators.append(stack.enter_context(UdpSimulator(world, port=0, profile=profile)))
            found, taken = stack.enter_context(reach(simulators))
            for seed in seeds[number :: len(THINKS)]:
                closed_at_random(lambda: kind.make(found), taken, seed)  # noqa: B023  # called at once


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--closes", type=int, default=1000, help="of each kind")
    count = parser.parse_args().closes
    # What the daemons of this process log.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    for name in KINDS:
        for profile in (DOCUMENT, NERD):
            began = monotonic()
            closes(name, profile, range(count // 2))
            sys.stdout.write(f"{name}, {profile.name}: {count // 2} closes in {monotonic() - began:.0f} s\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
