"""A server that learns for other actions than its agents have is not let act; what nobody says of them is told."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest
from structlog.testing import capture_logs

from ospbridge.interface import BoxSpace, DiscreteSpace
from ospbridge.rllink.dialects import JSON, MSGPACK
from ospbridge.rllink.messages import SetConfig
from tests.daemon.relay.driving import driven, until, upstream, world
from tests.daemon.relay.learner import TinyLearner
from tests.daemon.relay.test_driving_through_changes import unfit

if TYPE_CHECKING:
    from ospbridge.rllink.dialects import Dialect

pytestmark = [pytest.mark.loopback, pytest.mark.trio]


class Spaced(TinyLearner):
    """Says in a pickle which actions it learns for; its weights may be of two choices or of a box of one number."""

    def __init__(self, space: Any) -> None:
        super().__init__()
        self.space = space

    def _config(self) -> SetConfig:
        said = {"train_batch_size_per_learner": self.batch, "action_space": self.space}
        return SetConfig(pickled=pickle.dumps(said, 4))


NUMBER = gymnasium.spaces.Box(-1, 1, (1,))
TOLD: dict[str, Any] = {"env_steps": None, "read_pickle": True}


@pytest.mark.parametrize(
    "space, choices, reason",
    [
        (
            gymnasium.spaces.Discrete(2),
            0,
            "is a box of 1 number, the one that the server learns for is one of 2",
        ),
        (NUMBER, 2, "is one of 2 choices, the one that the server learns for is a box of 1 number"),
        (gymnasium.spaces.MultiDiscrete([2]), 2, "the one that the server learns for is MultiDiscrete"),
    ],
)
async def test_a_server_that_learns_for_other_actions_does_not_act(
    space: Any, choices: int, reason: str
) -> None:
    learner = Spaced(space)
    session, conductor = world()
    if choices:
        conductor.lockstep.held["a"].task.action_space = DiscreteSpace(choices)
    with capture_logs() as logs:
        async with learner.listening() as port, driven(conductor, upstream(port, **TOLD)):
            await until(lambda: len(unfit(logs)) >= 2)
    assert reason in unfit(logs)[0]["reason"]
    assert "action space" in unfit(logs)[0]["hint"]
    assert session.steps == []
    assert learner.batches == []


@pytest.mark.parametrize("read", [True, False])
async def test_actions_that_a_server_does_not_tell_are_assumed_and_that_is_told(read: bool) -> None:
    learner = Spaced(NUMBER)
    _, conductor = world()
    with capture_logs() as logs:
        async with learner.listening() as port, driven(conductor, upstream(port, read_pickle=read)):
            await until(lambda: len(learner.batches) >= 2)
    told = [line for line in logs if "RLlib's defaults are assumed" in line["event"]]
    assert [line.get("actions") for line in told] == ([] if read else ["a box of 1 number"])
    assert all("--rllink-read-pickle" in line["hint"] for line in told)
    assert learner.wrong == []


@pytest.mark.parametrize("most", [1.0, 3.0])
async def test_bounds_that_a_server_has_otherwise_are_told_once(most: float) -> None:
    learner = Spaced(gymnasium.spaces.Box(-most, most, (1,)))
    _, conductor = world()
    conductor.lockstep.held["a"].task.action_space = BoxSpace(
        np.full(1, -2.0, np.float32), np.full(1, 2.0, np.float32)
    )
    with capture_logs() as logs:
        async with learner.listening() as port, driven(conductor, upstream(port, **TOLD)):
            await until(lambda: len(learner.batches) >= 2)
    told = [line["reason"] for line in logs if line["event"] == "the upstream's actions have other bounds"]
    between = "number 0 of an action is between -2 and 2 for the agents, and between -3 and 3 for the server"
    assert told == ([between] if most == 3.0 else [])


@pytest.mark.parametrize("dialect, told", [(JSON, 1), (MSGPACK, 0)], ids=str)
async def test_an_old_server_of_rllibs_that_may_end_over_actions_that_are_numbers_is_told_of_once(
    dialect: Dialect, told: int
) -> None:
    learner = TinyLearner()
    _, conductor = world()
    with capture_logs() as logs:
        async with learner.listening() as port, driven(conductor, upstream(port, dialect=dialect)):
            await until(lambda: len(learner.batches) >= 2)
    event = "the upstream may not survive actions that are numbers"
    assert [line["actions"] for line in logs if line["event"] == event] == ["a box of 1 number"] * told
