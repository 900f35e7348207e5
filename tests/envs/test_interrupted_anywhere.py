"""Ctrl-C in a step, wherever it comes: the step after it tells so, or is the next one of what the caller has seen."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import gymnasium
import numpy as np
import pytest

import ospbridge
from ospbridge.errors import HubLost, LocalProtocolError, StepUncertain
from ospbridge.osp.profile import Profile
from ospbridge.session.blocking import BlockingSession
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.daemons import connected
from tests.envs.interrupting import AtLine

assert ospbridge.__version__
pytestmark = [pytest.mark.loopback, pytest.mark.exhaustive]

PLACES: Final = 16
"""That are tried of each kind, drawn from equal parts of all."""


TOLD: Final = -1
"""In place of a step's number: its caller was told that this one is in doubt."""


class Playing:
    """``step`` returns the numbers that a step has in each world since its reset."""

    def __init__(self, env: Any, sessions: Callable[[], list[BlockingSession]] = list) -> None:
        self.env = env
        self.sessions = sessions
        many = hasattr(env, "num_envs")
        self.seed = [1] * env.num_envs if many else 1
        self.nothing = np.zeros((env.num_envs, 1) if many else 1, np.float32)

    def reset(self) -> None:
        self.env.reset(seed=self.seed)

    def step(self) -> list[int]:
        try:
            observations, _, _, truncated, _ = self.env.step(self.nothing)
        except HubLost:
            return [TOLD]
        cuts = np.atleast_1d(truncated)
        return [TOLD if cut else number for cut, number in zip(cuts, _numbers(observations), strict=True)]


class PlayingBySession:
    """The same without an environment, over sessions that are made anew where they are in doubt."""

    def __init__(self, simulator: UdpSimulator) -> None:
        self.simulator = simulator
        self.session = self._connected()
        self.sessions = lambda: [self.session]

    def _connected(self) -> BlockingSession:
        session = BlockingSession.connect(str(self.simulator.address))
        session.register("agent")
        return session

    def reset(self) -> None:
        try:
            self.session.reset(1)
        except StepUncertain:
            self.session.close()
            self.session = self._connected()
            self.session.reset(1)
        self.step()

    def step(self) -> list[int]:
        try:
            return _numbers(self.session.step({"agent": [0.0]})["agent"].outputs)
        except StepUncertain:
            return [TOLD]

    def close(self) -> None:
        self.session.close()


class PlayingInParallel(Playing):
    """The same in PettingZoo's manner."""

    def step(self) -> list[int]:
        nothing = np.zeros(1, np.float32)
        try:
            told = self.env.step(dict.fromkeys(self.env.agents, nothing))
        except LocalProtocolError:
            return [TOLD]
        return _numbers(list(told[0].values()))


def _numbers(observations: Any) -> list[int]:
    """What the synthetic world says for inputs of 0 and seed 1."""
    first = np.atleast_2d(observations)[:, 0]
    numbers: list[int] = np.rint(first * 1024 - 1).astype(int).tolist()
    return numbers


@contextmanager
def playing(kind: str, profile: Profile, hub: Path) -> Iterator[Any]:
    with ExitStack() as stack:

        def simulator(agents: int = 1) -> UdpSimulator:
            return stack.enter_context(
                UdpSimulator(SyntheticWorld(1, 2, 1, agents=agents), port=0, profile=profile)
            )

        def vector(count: int, **where: Any) -> Any:
            envs: Any = gymnasium.make_vec("ospbridge/Agent-v0", num_envs=count, **where)
            return stack.enter_context(closing(envs))

        if kind == "session":
            yield stack.enter_context(closing(PlayingBySession(simulator())))
        elif kind == "environment":
            env: Any = gymnasium.make("ospbridge/Agent-v0", simulator=str(simulator().address)).unwrapped
            stack.enter_context(closing(env))
            yield Playing(env, lambda: [env._seat.shared.session])
        elif kind == "parallel":
            pytest.importorskip("pettingzoo")
            from ospbridge.envs.parallel import parallel_env

            both: Any = stack.enter_context(closing(parallel_env(str(simulator(2).address), "*")))
            yield PlayingInParallel(both, lambda: [both._group.shared.session])
        elif kind == "vector":
            envs = vector(2, simulator=str(simulator(2).address), agents="*")
            yield Playing(envs, lambda: [group.shared.session for group in envs._fleet.groups])
        elif kind == "fleet":
            envs = vector(2, simulator=[str(simulator().address) for _ in range(2)])
            yield Playing(envs, lambda: [group.shared.session for group in envs._fleet.groups])
        elif kind == "hub":
            stack.enter_context(connected(simulator().address, hub))
            attached: Any = gymnasium.make("ospbridge/Agent-v0", bridge=f"unix:{hub}").unwrapped
            yield Playing(stack.enter_context(closing(attached)))
        else:
            stack.enter_context(connected(simulator(2).address, hub))
            yield Playing(vector(2, bridge=f"unix:{hub}", agents="*"))


@pytest.mark.parametrize("disturbed", [False, True], ids=["quiet", "disturbed"])
@pytest.mark.parametrize(
    "kind", ["session", "environment", "parallel", "vector", "fleet", "hub", "hub-vector"]
)
def test_no_step_goes_on_silently_behind_one_that_was_interrupted(
    kind: str, disturbed: bool, profile: Profile, runtime_directory: Path
) -> None:
    if disturbed and kind.startswith("hub"):
        pytest.skip("the session is the daemon's")
    drawn = random.Random(f"{kind} {disturbed} {profile.name}")
    with playing(kind, profile, runtime_directory / "hub") as player:

        def interrupted(line: int) -> int:
            """The third step since a reset; how many lines it has."""
            player.reset()
            player.step()
            if disturbed:
                for session in player.sessions():
                    session.machine.anomaly("of this test")
            with AtLine(line) as place:
                player.step()
            return place.lines

        lines = interrupted(0)
        tried = 0
        for part in range(PLACES):
            line = drawn.randint(part * lines // PLACES + 1, (part + 1) * lines // PLACES)
            try:
                interrupted(line)
            except KeyboardInterrupt:
                tried += 1
            else:
                # Steps are not all equally long.
                continue
            after = player.step()
            assert all(number in (TOLD, 3) for number in after), (line, after)
        assert tried > PLACES // 2
