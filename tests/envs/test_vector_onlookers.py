"""Vector and parallel environments that record and are looked at: files and panels hold what the caller saw."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv

from ospbridge.errors import BarrierStuck, ConfigurationError
from ospbridge.record.episode import RecordedEpisode
from ospbridge.record.reading import read_recording
from ospbridge.record.writing import EpisodeWriter
from ospbridge.session.blocking import BlockingSession
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.daemons import hosted
from tests.envs.vectors import cart_poles, fleet

pytestmark = pytest.mark.loopback
MODES = pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda m: m.value)


@dataclass
class Seen:
    """An episode as the caller saw it."""

    seed: int
    observations: list[Any]
    actions: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    how: str = ""
    reason: str = ""


@contextmanager
def worlds(
    kind: str, directory: Path, **options: Any
) -> Iterator[tuple[VectorEnv[Any, Any, Any], list[str]]]:
    """An environment of four carts, and the address that each one's recordings name."""
    with ExitStack() as stack:
        if kind == "one simulator":
            addresses = stack.enter_context(cart_poles(1, copies=4))
            places, bridge = addresses * 4, None
        else:
            addresses = stack.enter_context(cart_poles(2, copies=2))
            places, bridge = [address for address in addresses for _ in range(2)], None
        if kind == "hubs":
            hubs = [directory / "one", directory / "two"]
            for address, hub in zip(addresses, hubs, strict=True):
                stack.enter_context(hosted(address, hub))
            bridge = [f"unix:{hub}" for hub in hubs]
            places = [hub for hub in bridge for _ in range(2)]
        found: dict[str, Any] = {"simulator": addresses} if bridge is None else {"bridge": bridge}
        envs = gymnasium.make_vec("ospbridge/Agent-v0", num_envs=4, **found, **options)
        try:
            yield envs, places
        finally:
            envs.close()


def play(envs: Any, steps: int, directory: Path) -> list[list[Seen]]:
    """Episodes of each environment. All that have ended are on disk after every step."""
    mode = envs.metadata["autoreset_mode"]
    choices = np.random.default_rng(3)
    observations, info = envs.reset(seed=11)
    seen = [[Seen(int(info["osp_seed"][at]), [observations[at]])] for at in range(envs.num_envs)]
    begins = np.zeros(envs.num_envs, bool)
    for _ in range(steps):
        actions = choices.integers(2, size=(envs.num_envs, 1)).astype(np.float32)
        given = actions.copy()
        envs.send(actions)
        # Whoever keeps the array for the next actions must not change the recording of these.
        actions[:] = np.nan
        observations, rewards, terminations, truncations, info = envs.recv()
        ended = terminations | truncations
        same_step = mode is AutoresetMode.SAME_STEP
        for at in range(envs.num_envs):
            if begins[at]:
                seen[at].append(Seen(int(info["osp_seed"][at]), [observations[at]]))
                continue
            episode = seen[at][-1]
            final = same_step and ended[at]
            episode.observations.append(info["final_obs"][at] if final else observations[at])
            episode.actions.append(given[at])
            episode.rewards.append(float(rewards[at]))
            if ended[at]:
                episode.how = "terminated" if terminations[at] else "truncated"
                episode.reason = (info["final_info"] if final else info)["reason"][at]
                if final:
                    seen[at].append(Seen(int(info["osp_seed"][at]), [observations[at]]))
        assert len(list(directory.glob("*.npz"))) == sum(bool(e.how) for each in seen for e in each)
        begins = ended & (mode is AutoresetMode.NEXT_STEP)
        if mode is AutoresetMode.DISABLED and ended.any():
            observations, info = envs.reset(options={"reset_mask": ended})
            for at in np.flatnonzero(ended).tolist():
                seen[at].append(Seen(int(info["osp_seed"][at]), [observations[at]]))
    return seen


def assert_recorded(directory: Path, seen: list[list[Seen]], places: list[str], names: list[str]) -> None:
    recorded = list(read_recording(directory))
    for at, each in enumerate(seen):
        mine = [e for e in recorded if (e.simulator, e.agent) == (places[at], names[at])]
        wanted = [episode for episode in each if episode.actions]
        assert len(mine) == len(wanted)
        for episode, expected in zip(mine, wanted, strict=True):
            assert_same_episode(episode, expected)


def assert_same_episode(episode: RecordedEpisode, expected: Seen) -> None:
    assert (episode.seed, episode.how) == (expected.seed, expected.how or "abandoned")
    assert episode.reason == (expected.reason if expected.how else "closed before its end")
    np.testing.assert_array_equal(episode.observations, expected.observations)
    np.testing.assert_array_equal(episode.actions, expected.actions)
    np.testing.assert_array_equal(episode.rewards, expected.rewards)
    assert episode.truncated[-1] == (expected.how != "terminated")
    assert not episode.terminated[:-1].any()
    assert not episode.truncated[:-1].any()


@pytest.mark.sampled(4)
@MODES
@pytest.mark.parametrize("kind", ["one simulator", "fleet", "hubs"])
def test_recordings_hold_what_the_caller_saw_in_every_mode(
    kind: str, mode: AutoresetMode, tmp_path: Path, runtime_directory: Path
) -> None:
    with worlds(kind, runtime_directory, record=str(tmp_path), autoreset_mode=mode) as (envs, places):
        seen = play(envs, 60, tmp_path)
        names = [seats for group in envs._groups for seats in group.names]  # type: ignore[attr-defined]
    assert sum(bool(episode.how) for episode in seen[0]) >= 2
    assert {episode.how for each in seen for episode in each} == {"terminated", "truncated", ""}
    assert_recorded(tmp_path, seen, places, names)


def test_a_step_that_others_hold_up_and_a_reset_before_the_end_are_written_with_their_reasons(
    tmp_path: Path,
) -> None:
    with UdpSimulator(SyntheticWorld(1, 2, agents=2), port=0) as simulator:
        address = str(simulator.address)
        envs = fleet(address, 1, agents="agent1", record=str(tmp_path), step_timeout=0.5)
        actions = np.zeros((1, 1), np.float32)
        envs.reset(seed=1)
        envs.step(actions)
        envs.reset(seed=2)
        (episode,) = read_recording(tmp_path)
        assert (episode.how, episode.reason) == ("abandoned", "reset before its end")
        envs.step(actions)
        with BlockingSession.connect(address) as foreign:
            foreign.register("agent2")
            with pytest.raises(BarrierStuck) as caught:
                envs.step(actions)
        *_, episode = read_recording(tmp_path)
        assert (episode.how, episode.reason, len(episode)) == ("lost", caught.value.message, 1)
        envs.close()


def test_an_episode_that_cannot_be_written_is_told_and_costs_no_other_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, full = EpisodeWriter.write, True

    def refusing(self: EpisodeWriter, episode: Any) -> None:
        if full and episode.agent == "cart1":
            raise ConfigurationError("no space for cart1")
        write(self, episode)

    monkeypatch.setattr(EpisodeWriter, "write", refusing)
    (tmp_path / "file").touch()
    with cart_poles(1, copies=2) as addresses:
        with pytest.raises(ConfigurationError, match="cannot be recorded"):
            fleet(addresses, 2, record=str(tmp_path / "file"))
        envs = fleet(addresses, 2, record=str(tmp_path / "out"), autoreset_mode="Disabled")
        envs.reset(seed=1)
        with pytest.raises(ConfigurationError, match="no space for cart1"):
            step_until_an_end(envs)
        (episode,) = read_recording(tmp_path / "out")
        assert episode.agent == "cart2"
        full = False
        envs.reset(seed=2)
        step_until_an_end(envs)
        envs.close()
        assert [episode.agent for episode in read_recording(tmp_path / "out")].count("cart1") == 1


def step_until_an_end(envs: Any) -> list[str]:
    """Which environments' episodes ended, and why the bridge ended them."""
    actions = np.tile(np.array([[1.0], [0.0]], np.float32), (envs.num_envs // 2, 1))
    for _ in range(100):
        *_, terminations, truncations, info = envs.step(actions)
        if (terminations | truncations).any():
            return [str(reason) for reason in info["reason"]]
    raise AssertionError("a cart that is only pushed to one side has not fallen")


# --- panels ----------------------------------------------------------------------------------------------------------


def test_text_is_a_tuple_with_one_for_each_environment(tmp_path: Path) -> None:
    with cart_poles(2, copies=2) as addresses:
        envs: Any = fleet(addresses, 4, render_mode="ansi", record=str(tmp_path))
        try:
            envs.reset(seed=1)
            for _ in range(3):
                envs.step(np.ones((4, 1), np.float32))
            shown = envs.render()
        finally:
            envs.close()
    assert isinstance(shown, tuple)
    assert [text.splitlines()[0].split("   ")[:3] for text in shown] == [
        [f"{at}: cart{at % 2 + 1}", "episode 1", "step 3"] for at in range(4)
    ]
    assert all("/cart/position" in text for text in shown)


# --- the parallel environment ----------------------------------------------------------------------------------------


def test_the_parallel_environment_shows_all_agents_in_one_text_and_records(tmp_path: Path) -> None:
    pytest.importorskip("pettingzoo")
    from ospbridge.envs.parallel import parallel_env

    with cart_poles(1, copies=3) as (address,):
        env = parallel_env(address, render_mode="ansi", record=str(tmp_path))
        try:
            env.reset(seed=1)
            while len(env.agents) == 3:
                env.step(dict.fromkeys(env.agents, np.ones(1, np.float32)))
            text = env.render()
        finally:
            env.close()
    assert [line.split("   ")[0] for line in text.splitlines() if "   episode 1   " in line] == [
        "cart1",
        "cart2",
        "cart3",
    ]
    states = [line for line in text.splitlines() if line in {"terminated", "playing"}]
    assert "terminated" in states
    assert len(states) == 3
    assert sum(episode.how == "terminated" for episode in read_recording(tmp_path)) == states.count(
        "terminated"
    )
