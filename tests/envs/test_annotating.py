"""Annotations of single, vector and parallel environments, as the daemon records them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest

from ospbridge.errors import LocalProtocolError, UsageError
from ospbridge.observe.runtime import default_hub
from ospbridge.record.reading import read_recording
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.daemons import hosted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ospbridge.record.episode import RecordedEpisode

pytestmark = pytest.mark.loopback


@pytest.fixture
def simulator() -> Iterator[UdpSimulator]:
    with UdpSimulator(SyntheticWorld(1, 2, agents=2), port=0) as running:
        yield running


def recorded(directory: Path) -> dict[str, list[RecordedEpisode]]:
    """By agent."""
    found: dict[str, list[RecordedEpisode]] = {}
    for episode in read_recording(directory):
        found.setdefault(episode.agent, []).append(episode)
    return found


def columns(episode: RecordedEpisode) -> tuple[list[float], list[list[float]]]:
    assert episode.action_logp is not None
    assert episode.action_dist_inputs is not None
    return episode.action_logp.tolist(), episode.action_dist_inputs.tolist()


def test_a_vector_environment_annotates_row_by_row_and_not_where_it_resets(
    simulator: UdpSimulator, tmp_path: Path
) -> None:
    scenario = tmp_path / "short.toml"
    scenario.write_text('name = "short"\n[[agent]]\n[agent.episode]\nmax_steps = 3\n')
    options = ["--record", str(tmp_path / "in"), "--scenario", str(scenario), "--reset-policy", "any"]
    with hosted(simulator.address, default_hub(), *options):
        envs = gymnasium.make_vec("ospbridge/Agent-v0", num_envs=2, annotates=True)
        vector: Any = envs.unwrapped
        envs.reset(seed=1)
        with pytest.raises(LocalProtocolError, match=r"'agent1' .* nothing was said"):
            envs.step(envs.action_space.sample())
        with pytest.raises(LocalProtocolError, match="expected 2 rows, one for each environment"):
            vector.annotate(action_logp=np.zeros(3), action_dist_inputs=np.zeros((2, 2)))
        for number in range(7):
            # The fourth resets all, and what is said of it counts for nobody.
            rows = np.array([[number, 0.5], [number, -0.5]], np.float32)
            # What was drawn is said from the second step on: the first was given as it was.
            drawn = rows[:, :1] + 10 if number else None
            vector.annotate(
                action_logp=rows[:, 1], action_dist_inputs=rows, weights_seq_no=number, action=drawn
            )
            envs.step(np.full((2, 1), 0.25, np.float32))
        envs.close()
    for name, logp in (("agent1", 0.5), ("agent2", -0.5)):
        first, second = recorded(tmp_path / "in")[name]
        assert columns(first) == ([logp] * 3, [[float(n), logp] for n in (0, 1, 2)])
        assert columns(second) == ([logp] * 3, [[float(n), logp] for n in (4, 5, 6)])
        assert (first.weights_seq_no, second.weights_seq_no) == (2, 6)
        assert first.drawn_actions is not None
        assert second.drawn_actions is not None
        assert first.drawn_actions.tolist() == [[0.25], [11.0], [12.0]]
        assert second.drawn_actions.tolist() == [[14.0], [15.0], [16.0]]
        assert first.actions.tolist() == second.actions.tolist() == [[0.25]] * 3


def test_a_parallel_environment_annotates_by_agent(simulator: UdpSimulator, tmp_path: Path) -> None:
    pytest.importorskip("pettingzoo", reason="needs the extra: pip install 'ospbridge[pettingzoo]'")
    from ospbridge.envs.parallel import parallel_env

    with hosted(simulator.address, default_hub(), "--record", str(tmp_path / "in")):
        env = parallel_env(annotates=True)
        env.reset(seed=1)
        with pytest.raises(LocalProtocolError, match=r"annotations of \['agent2'\] are missing"):
            env.annotate(action_logp={"agent1": 0.0}, action_dist_inputs={"agent1": [0.0]})
        for number in range(2):
            env.annotate(
                action_logp={"agent1": -1.0, "agent2": -2.0},
                action_dist_inputs={"agent1": [number], "agent2": [number, 7.0]},
                action={"agent1": None, "agent2": [9.0]},
            )
            env.step({name: env.action_space(name).sample() for name in env.agents})
        env.close()
    found = recorded(tmp_path / "in")
    assert columns(found["agent1"][0]) == ([-1.0, -1.0], [[0.0], [1.0]])
    assert columns(found["agent2"][0]) == ([-2.0, -2.0], [[0.0, 7.0], [1.0, 7.0]])
    assert found["agent1"][0].drawn_actions is None
    assert found["agent2"][0].drawn_actions is not None
    assert found["agent2"][0].drawn_actions.tolist() == [[9.0], [9.0]]


def test_an_environment_that_joins_the_simulator_itself_says_that_nobody_would_hear(
    simulator: UdpSimulator,
) -> None:
    address = str(simulator.address)
    with pytest.raises(UsageError, match="through a daemon"):
        gymnasium.make("ospbridge/Agent-v0", simulator=address, agent="agent1", annotates=True)
    with pytest.raises(UsageError, match="through a daemon"):
        gymnasium.make_vec("ospbridge/Agent-v0", num_envs=2, simulator=address, annotates=True)
    env = gymnasium.make("ospbridge/Agent-v0", simulator=address, agent="agent1")
    unwrapped: Any = env.unwrapped
    with pytest.raises(UsageError, match="only environments of a daemon's hub feed an upstream"):
        unwrapped.annotate(action_logp=0.0, action_dist_inputs=[0.0])
    env.reset(seed=1)
    env.step(env.action_space.sample())
    env.close()
    envs = gymnasium.make_vec("ospbridge/Agent-v0", num_envs=2, simulator=address)
    vector: Any = envs.unwrapped
    with pytest.raises(UsageError, match="joined the simulator itself"):
        vector.annotate(action_logp=np.zeros(2), action_dist_inputs=np.zeros((2, 2)))
    envs.close()
