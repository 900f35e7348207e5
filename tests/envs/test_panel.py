"""The instrument panel: what text and pictures show, and that nobody pays who does not look."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from ospbridge.envs.agent_env import AgentEnv
from ospbridge.envs.panel import Channels
from ospbridge.envs.watched import WatchedSeat
from ospbridge.errors import BarrierStuck, LocalProtocolError, OspBridgeError, UsageError
from ospbridge.interface import (
    AgentInterface,
    BoxSpace,
    Feedback,
    InterfaceValue,
    Space,
)
from ospbridge.simulator.arena import ArenaWorld
from ospbridge.simulator.udp import UdpSimulator

NEEDS_PILLOW = "needs the extra: pip install 'ospbridge[video]'"


class MadeUpSeat:
    """Sensor k shows the step's number plus k; the tenth step ends the episode."""

    def __init__(
        self, sensors: int, inputs: int, *, action: Space | None = None, bound: float = np.inf
    ) -> None:
        self.interface = AgentInterface(
            1,
            "robot1",
            tuple(InterfaceValue(f"/Leg/Knee{at}/DesiredTorque", -1.0, 1.0) for at in range(inputs)),
            tuple(InterfaceValue(f"/Arm/Shoulder{at}/Velocity", -bound, bound) for at in range(sensors)),
            (InterfaceValue("/Body/X", -1.0, 1.0),),
        )
        self.observation_space = BoxSpace(
            np.full(sensors, -bound, np.float32), np.full(sensors, bound, np.float32)
        )
        self.action_space = action or BoxSpace(-np.ones(inputs, np.float32), np.ones(inputs, np.float32))
        self.observation_names = [value.name for value in self.interface.outputs]
        self.action_names = [value.name for value in self.interface.inputs]
        self.number = 0
        self.error: OspBridgeError | None = None
        """What the next step fails with."""

    def _feedback(self) -> Feedback:
        observation = np.float32(self.number) + np.arange(len(self.observation_space.low), dtype=np.float32)
        ended = self.number == 10
        return Feedback(
            observation,
            0.5,
            truncated=ended,
            reason="lost" if ended else "",
            info={"infos": {"/Body/X": 0.25}},
        )

    def reset(self, seed: int) -> Feedback:
        self.number = 0
        return self._feedback()

    def step(self, action: Any) -> Feedback:
        if self.error is not None:
            raise self.error
        self.number += 1
        return self._feedback()

    def forgo(self) -> None:
        pass

    def close(self) -> None:
        pass


def panel(mode: str, sensors: int, inputs: int, *, steps: int = 3, **options: Any) -> WatchedSeat:
    made = WatchedSeat(MadeUpSeat(sensors, inputs, **options), "x", None, mode)
    made.reset(1)
    for _ in range(steps):
        made.step(np.full(inputs, -0.25, np.float32) if "action" not in options else 1)
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
    seat, action = MadeUpSeat(1, 1), np.zeros(1, np.float32)
    made = WatchedSeat(seat, "x", None, "ansi")
    made.reset(1)
    seat.error = error
    with pytest.raises(type(error)):
        made.step(action)
    assert str(made.render()).splitlines()[1] == shown


def test_names_that_would_steer_the_terminal_are_shown_escaped() -> None:
    channels = Channels(["\x1b[31mred"], np.zeros(1, np.float32), np.ones(1, np.float32))
    assert channels.names == ["\\x1b[31mred"]


# --- pictures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sensors, inputs", [(4, 1), (37, 42), (1, 0)])
def test_pictures_have_one_size_and_change_with_the_numbers(sensors: int, inputs: int) -> None:
    pytest.importorskip("PIL", reason=NEEDS_PILLOW)
    made = WatchedSeat(MadeUpSeat(sensors, inputs), "x", None, "rgb_array")
    pictures = [made.render()]
    made.reset(1)
    for _ in range(3):
        made.step(np.zeros(inputs, np.float32))
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
    (shown,) = made.onlookers.panels.values()
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
