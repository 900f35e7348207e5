"""Panels and recordings hold what the callers of environments saw."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from ospbridge.envs.agent_env import AgentEnv
from ospbridge.envs.annotations import NextNote
from ospbridge.envs.backend import DrivenAgent, Found
from ospbridge.envs.observers import RecordingBackend
from ospbridge.envs.panel import Channels
from ospbridge.errors import BarrierStuck, ConfigurationError, LocalProtocolError, OspBridgeError, UsageError
from ospbridge.interface import (
    AgentInterface,
    BoxSpace,
    Feedback,
    InterfaceValue,
    Space,
)
from ospbridge.observe.runtime import default_hub
from ospbridge.record.episode import RecordedEpisode
from ospbridge.record.reading import read_recording
from ospbridge.record.writing import EpisodeWriter
from ospbridge.session.blocking import BlockingSession
from ospbridge.simulator.arena import ArenaWorld
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.daemons import hosted, reached
from tests.envs.vectors import cart_poles, fleet

pytestmark = pytest.mark.loopback


NEEDS_PILLOW = "needs the extra: pip install 'ospbridge[video]'"


class MadeUpBackend:
    """Sensor k shows the step's number plus k; the tenth step ends the episode."""

    next_notes: Mapping[str, NextNote] = {}  # never changed

    def __init__(
        self, sensors: int, inputs: int, *, action: Space | None = None, bound: float = np.inf
    ) -> None:
        interface = AgentInterface(
            1,
            "robot1",
            tuple(InterfaceValue(f"/Leg/Knee{at}/DesiredTorque", -1.0, 1.0) for at in range(inputs)),
            tuple(InterfaceValue(f"/Arm/Shoulder{at}/Velocity", -bound, bound) for at in range(sensors)),
            (InterfaceValue("/Body/X", -1.0, 1.0),),
        )
        outside = np.full(sensors, bound, np.float32)
        self.agents = {
            "robot1": DrivenAgent(
                interface,
                BoxSpace(-outside, outside),
                action or BoxSpace(-np.ones(inputs, np.float32), np.ones(inputs, np.float32)),
                [value.name for value in interface.outputs],
                [value.name for value in interface.inputs],
            )
        }
        self.sensors = np.arange(sensors, dtype=np.float32)
        self.number = 0
        self.error: OspBridgeError | None = None
        """What the next step fails with."""

    def _feedback(self) -> Feedback:
        ended = self.number == 10
        return Feedback(
            np.float32(self.number) + self.sensors,
            0.5,
            truncated=ended,
            reason="lost" if ended else "",
            info={"infos": {"/Body/X": 0.25}},
        )

    def reset(self, seed: int) -> Found:
        self.number = 0
        return {"robot1": self._feedback()}

    def step(self, actions: Mapping[str, Any]) -> Found:
        return {"robot1": self.step_one(actions["robot1"])}

    def step_one(self, action: Any) -> Feedback:
        if self.error is not None:
            raise self.error
        self.number += 1
        return self._feedback()

    def cancel_step(self) -> None:
        pass

    def close(self) -> None:
        pass


def panel(mode: str, sensors: int, inputs: int, *, steps: int = 3, **options: Any) -> RecordingBackend:
    made = RecordingBackend(MadeUpBackend(sensors, inputs, **options), "x", None, mode)
    made.reset(1)
    for _ in range(steps):
        made.step_one(np.full(inputs, -0.25, np.float32) if "action" not in options else 1)
    return made


# --- text ------------------------------------------------------------------------------------------------------------


def test_the_text_shows_names_values_bars_inputs_reward_and_time() -> None:
    text = panel("ansi", 2, 1, bound=4.0).render()
    assert isinstance(text, str)
    head, state, *lines = text.splitlines()
    assert head.startswith("robot1   episode 1   step 3   ")
    assert head.endswith("reward 0.500   return 1.500")
    assert state == "playing"
    assert lines == [
        "sensors",
        "  /Arm/Shoulder0/Velocity        3.000 [............========#...] -4.000 .. 4.000",
        "  /Arm/Shoulder1/Velocity        4.000 [............===========#] -4.000 .. 4.000",
        "inputs",
        "  /Leg/Knee0/DesiredTorque      -0.250 [.........#===...........] -1.000 .. 1.000",
        "infos",
        "  /Body/X                        0.250",
    ]


def test_how_an_episode_ended_is_shown_and_the_next_begins_anew() -> None:
    made = panel("ansi", 1, 1, steps=10)
    assert str(made.render()).splitlines()[1] == "truncated: lost"
    made.reset(2)
    head, state, *_ = str(made.render()).splitlines()
    assert "episode 2   step 0" in head
    assert state == "playing"


@pytest.mark.parametrize(
    "error, shown",
    [
        (BarrierStuck("others do\nnot vote"), "others do not vote"),
        (LocalProtocolError("not sent"), "playing"),
    ],
    ids=["lost", "not_sent"],
)
def test_what_a_step_failed_with_is_shown_unless_nothing_was_sent(error: OspBridgeError, shown: str) -> None:
    seat, action = MadeUpBackend(1, 1), np.zeros(1, np.float32)
    made = RecordingBackend(seat, "x", None, "ansi")
    made.reset(1)
    seat.error = error
    with pytest.raises(type(error)):
        made.step_one(action)
    assert str(made.render()).splitlines()[1] == shown


def test_names_that_would_steer_the_terminal_are_shown_escaped() -> None:
    channels = Channels(["\x1b[31mred"], np.zeros(1, np.float32), np.ones(1, np.float32))
    assert channels.names == ["\\x1b[31mred"]


# --- pictures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sensors, inputs", [(4, 1), (37, 42), (1, 0)])
def test_pictures_have_one_size_and_change_with_the_numbers(sensors: int, inputs: int) -> None:
    pytest.importorskip("PIL", reason=NEEDS_PILLOW)
    made = RecordingBackend(MadeUpBackend(sensors, inputs), "x", None, "rgb_array")
    pictures = [made.render()]
    made.reset(1)
    for _ in range(3):
        made.step_one(np.zeros(inputs, np.float32))
        pictures.append(made.render())
    for picture in pictures:
        assert isinstance(picture, np.ndarray)
        assert picture.shape == (720, 960, 3)
        assert picture.dtype == np.uint8
    for picture, following in pairwise(pictures):
        assert not np.array_equal(picture, following)


def test_what_is_not_finite_is_no_trouble_to_draw() -> None:
    pytest.importorskip("PIL", reason=NEEDS_PILLOW)
    made = panel("rgb_array", 3, 1)
    (shown,) = made._observers.panels.values()
    shown.sensors.add([np.nan, np.inf, -np.inf])
    shown.sensors.add([1e30, -1e30, 0.0])
    made.render()


@pytest.mark.loopback
def test_record_video_writes_a_film(tmp_path: Path) -> None:
    pytest.importorskip("PIL", reason=NEEDS_PILLOW)
    pytest.importorskip("moviepy", reason=NEEDS_PILLOW)
    with UdpSimulator(ArenaWorld(1), port=0) as simulator:
        made = gymnasium.make("ospbridge/Agent-v0", simulator=str(simulator.address), render_mode="rgb_array")
        env: gymnasium.Env[Any, Any] = gymnasium.wrappers.RecordVideo(
            made, str(tmp_path / "films"), episode_trigger=lambda _: True
        )
        env.reset(seed=1)
        for _ in range(20):
            env.step(env.action_space.sample())
        env.close()
    (film,) = (tmp_path / "films").glob("*.mp4")
    assert film.stat().st_size > 1000


# --- for those who do not look ---------------------------------------------------------------------------------------


def test_an_unknown_mode_is_refused_before_anything_is_joined() -> None:
    with pytest.raises(UsageError, match="'human' is not offered"):
        AgentEnv(simulator="127.0.0.1:1", render_mode="human")


def test_without_pillow_pictures_are_refused_with_the_way_to_get_it() -> None:
    code = (
        "import importlib.util, sys\n"
        "found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *a: None if name == 'PIL' else found(name, *a)\n"
        "from ospbridge.envs.agent_env import AgentEnv\n"
        "from ospbridge.errors import ConfigurationError\n"
        "assert AgentEnv.metadata['render_modes'] == ['ansi']\n"
        "try: AgentEnv(simulator='127.0.0.1:1', render_mode='rgb_array')\n"
        "except ConfigurationError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert "pip install 'ospbridge[video]'" in done.stdout


# --- vector and parallel environments ------------------------------------------------------------------------------


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


def assert_same_episode(episode: RecordedEpisode, expected: Seen) -> None:
    assert (episode.seed, episode.how) == (expected.seed, expected.how or "abandoned")
    assert episode.reason == (expected.reason if expected.how else "closed before its end")
    for name in ("observations", "actions", "rewards"):
        np.testing.assert_array_equal(getattr(episode, name), getattr(expected, name))
    assert episode.truncated[-1] == (expected.how != "terminated")
    assert not episode.terminated[:-1].any()
    assert not episode.truncated[:-1].any()


@pytest.mark.sampled(4)
@MODES
@pytest.mark.parametrize("way", ["direct", "hub"])
def test_recordings_hold_what_the_caller_saw_in_every_mode(
    way: str, mode: AutoresetMode, tmp_path: Path, runtime_directory: Path
) -> None:
    with ExitStack() as stack:
        found: dict[str, Any] = {}
        for number, address in enumerate(stack.enter_context(cart_poles(2, copies=2))):
            where = stack.enter_context(reached(way, address, runtime_directory / str(number)))
            for key, place in where.items():
                found.setdefault(key, []).append(place)
        envs: Any = gymnasium.make_vec(
            "ospbridge/Agent-v0", num_envs=4, record=str(tmp_path), autoreset_mode=mode, **found
        )
        stack.callback(envs.close)
        seen = play(envs, 60, tmp_path)
        names = [name for group in envs._fleet.groups for name in group.names]
    assert sum(bool(episode.how) for episode in seen[0]) >= 2
    assert {episode.how for each in seen for episode in each} == {"terminated", "truncated", ""}
    (places,) = found.values()
    recorded = list(read_recording(tmp_path))
    for at, each in enumerate(seen):
        mine = [e for e in recorded if (e.simulator, e.agent) == (places[at // 2], names[at])]
        wanted = [episode for episode in each if episode.actions]
        for episode, expected in zip(mine, wanted, strict=True):
            assert_same_episode(episode, expected)


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


# --- annotations, as the daemon records them -----------------------------------------------------------------------


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
