"""Ctrl-C in a step, wherever it comes: the step after it tells so, or is the next one of what the caller has seen."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

import gymnasium
import numpy as np
import pytest

import ospbridge
from ospbridge.envs import sharing
from ospbridge.errors import HubLost, LocalProtocolError, StepUncertain
from ospbridge.osp.profile import Profile
from ospbridge.session.blocking import BlockingSession
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.daemons import hosted
from tests.envs.interrupting import AtLine
from tests.envs.kinds import marked, only, parallel, step, vector

assert ospbridge.__version__
pytestmark = pytest.mark.loopback

PARTS: Final = 100
"""Into so many equal ones the lines of a step are divided. In each that is tried, one is drawn."""
TRIED: Final = 12
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
        self.session = self._hosted()
        self.sessions = lambda: [self.session]

    def _hosted(self) -> BlockingSession:
        session = BlockingSession.connect(str(self.simulator.address))
        session.register("agent")
        return session

    def reset(self) -> None:
        try:
            self.session.reset(1)
        except StepUncertain:
            self.session.close()
            self.session = self._hosted()
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

        def many(count: int, **where: Any) -> Any:
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
            envs = many(2, simulator=str(simulator(2).address), agents="*")
            yield Playing(envs, lambda: [group.shared.session for group in envs._fleet.groups])
        elif kind == "fleet":
            envs = many(2, simulator=[str(simulator().address) for _ in range(2)])
            yield Playing(envs, lambda: [group.shared.session for group in envs._fleet.groups])
        elif kind == "hub":
            stack.enter_context(hosted(simulator().address, hub))
            attached: Any = gymnasium.make("ospbridge/Agent-v0", bridge=f"unix:{hub}").unwrapped
            yield Playing(stack.enter_context(closing(attached)))
        else:
            stack.enter_context(hosted(simulator(2).address, hub))
            yield Playing(many(2, bridge=f"unix:{hub}", agents="*"))


KINDS = ["session", "environment", "parallel", "vector", "fleet", "hub", "hub-vector"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "kind, disturbed",
    [(kind, True) for kind in KINDS if not kind.startswith("hub")] + [(kind, False) for kind in KINDS],
)
def test_no_step_goes_on_silently_behind_one_that_was_interrupted(
    kind: str, disturbed: bool, profile: Profile, runtime_directory: Path, sample: Callable[..., list[int]]
) -> None:
    drawn = random.Random(f"{kind} {disturbed} {profile.name}")
    with playing(kind, profile, runtime_directory / "hub") as player:

        def interrupted(line: int) -> int:
            """The third step since a reset; how many lines it has."""
            player.reset()
            player.step()
            if disturbed:
                for session in player.sessions():
                    session.machine.notices.anomaly("of this test")
            with AtLine(line) as place:
                player.step()
            return place.lines

        lines = interrupted(0)
        tried = 0
        parts = sample(range(PARTS), TRIED)
        for part in parts:
            line = part * lines // PARTS + 1 + drawn.randrange(max(lines // PARTS, 1))
            try:
                interrupted(line)
            except KeyboardInterrupt:
                tried += 1
            else:
                # Steps are not all equally long.
                continue
            after = player.step()
            assert all(number in (TOLD, 3) for number in after), (line, after)
        assert tried > len(parts) // 2


# --- while agents are joined again ----------------------------------------------------------------------------------


def interrupted(*_: object, **__: object) -> NoReturn:
    raise KeyboardInterrupt


def lose_all() -> None:
    for shared in sharing._shared.values():
        shared.give_up("something went wrong")


@pytest.mark.parametrize("made", [vector, parallel])
def test_where_it_comes_before_events_and_values_are_asked_for_the_next_reset_asks(
    made: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = marked(tmp_path)
    with UdpSimulator(SyntheticWorld(2, 3, values=2), port=0) as simulator:
        env = made(str(simulator.address), scenario=str(scenario))
        env.reset(seed=1)
        lose_all()
        with monkeypatch.context() as patch:
            patch.setattr(BlockingSession, "subscribe", interrupted)
            with pytest.raises(KeyboardInterrupt):
                env.reset(seed=2)
        env.reset(seed=3)
        assert [bool(only(step(env)[2])) for _ in range(9)] == [False] * 8 + [True]
        env.close()


def test_in_a_step_that_begins_the_next_episode_the_next_step_tells_of_it_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with UdpSimulator(SyntheticWorld(2, 3), port=0) as simulator:
        env = vector(str(simulator.address), autoreset_mode="SameStep")
        env.reset(seed=1)
        session = env._fleet.groups[0].shared.session
        session.cancel_step()
        with monkeypatch.context() as patch:
            patch.setattr(sharing, "connect", interrupted)
            with pytest.raises(KeyboardInterrupt):
                step(env)
        assert np.all(step(env)[3])
        assert not np.any(step(env)[3])
        env.close()
