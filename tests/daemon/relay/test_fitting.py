"""Experience that the upstream's module cannot learn from is kept, and told: sent, it would end the whole training."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from gymnasium import spaces
from structlog.testing import capture_logs

from ospbridge.daemon.relay.acting import Kind
from ospbridge.daemon.relay.spaces import (
    SaidSpaces,
    described,
    require_same_actions,
)
from ospbridge.errors import ConfigurationError, UsageError
from ospbridge.interface import BoxSpace, DiscreteSpace
from ospbridge.rllink.dialects import JSON, MSGPACK
from ospbridge.rllink.messages import SetConfig
from ospbridge.rllink.weights import MlirWeights, ModuleWeights, OnnxWeights
from tests.daemon.relay.driving import back, driven, until, upstream, world
from tests.daemon.relay.learner import Told
from tests.daemon.relay.observing import (
    Player,
    Server,
    all_arrived,
    listening,
    module,
    observed,
    sink,
    status,
)
from tests.daemon.relay.test_driving_through_changes import unfit
from tests.daemon.stage import ONE
from tests.policy.onnx_models import recorded
from tests.policy.weights import module_weights

if TYPE_CHECKING:
    from pathlib import Path

    from ospbridge.daemon.conductor import Conductor
    from ospbridge.rllink.dialects import Dialect
    from ospbridge.rllink.weights import Weights

pytestmark = [pytest.mark.loopback, pytest.mark.trio]
NUMBERS = "the upstream may not survive actions that are numbers"
NUMBER = spaces.Box(-1, 1, (1,))
BOX = "its actions are a box of 1 number"
UNKNOWN = "the upstream does not say what its module takes"


def pickled(**given: Any) -> SetConfig:
    """The settings of a server of Ray 2.49 or later."""
    return SetConfig(pickled=pickle.dumps({f"{name}_space": space for name, space in given.items()}))


def recurrent(observations: int | None, outputs: int) -> ModuleWeights:
    """Of a policy with an LSTM; None: with one that takes observations in a way that nobody knows."""
    shapes = {
        "encoder.encoder.lstm.weight_ih_l0": (28, 16),
        "encoder.encoder.lstm.weight_hh_l0": (28, 7),
        "pi.net.mlp.0.weight": (outputs, 7),
        "pi.net.mlp.0.bias": (outputs,),
    }
    if observations is not None:
        shapes["encoder.encoder.tokenizer.net.mlp.0.weight"] = (16, observations)
    return ModuleWeights({name: np.zeros(shape, np.float32) for name, shape in shapes.items()}, 1)


@pytest.mark.parametrize(
    "weights, why",
    [
        (module(3, 2), "its observations have 1 number, the server's module takes 3"),
        (module(1, 4), "its actions were drawn from 2 numbers, the server's module puts out 4"),
        (OnnxWeights(recorded("discrete"), 1), "the server's module takes 4"),
    ],
    ids=["observations", "actions", "ONNX"],
)
async def test_it_waits_for_a_server_that_it_fits(
    conductor: Conductor, tmp_path: Path, weights: Weights, why: str
) -> None:
    wrong, right = Server(), Server()
    wrong.weights = weights
    with capture_logs() as logs:
        async with observed(conductor, 1, tmp_path / "s") as relay:
            player = Player(conductor)
            async with listening(wrong.serve) as port:
                back(relay, port)
                await player.play()
                await player.play()
                await until(lambda: why in relay.status.trouble)
            assert wrong.arrived == []
            async with listening(right.serve, port):
                await all_arrived(relay)
            assert relay.status.discarded == 0
            assert relay.status.trouble == ""
    assert len(right.arrived) == 2
    (told,) = [line for line in logs if line["event"] == "experience does not fit the upstream"]
    assert "of agent 'a'" in told["reason"]
    assert why in told["reason"]
    assert str(tmp_path / "s") in told["hint"]


@pytest.mark.parametrize(
    "given, why",
    [
        ({"action": spaces.Discrete(2)}, f"{BOX}, the server learns for one of 2 choices"),
        ({"action": spaces.Box(-1, 1, (2,))}, f"{BOX}, the server learns for a box of 2 numbers"),
        ({"action": spaces.MultiDiscrete([2, 2])}, f"{BOX}, the server learns for MultiDiscrete"),
        ({"action": NUMBER, "observation": spaces.Box(-1, 1, (84, 84, 3))}, "of the shape (84, 84, 3)"),
        ({"action": NUMBER, "observation": spaces.Dict({"a": NUMBER})}, "of the kind Dict"),
    ],
)
async def test_a_server_whose_settings_say_that_it_learns_for_others_is_sent_nothing(
    conductor: Conductor, tmp_path: Path, given: dict[str, Any], why: str
) -> None:
    server = Server()
    server.config = pickled(**given)
    if "observation" in given:
        # These weights do not tell it.
        server.weights = recurrent(None, 2)
    with capture_logs() as logs:
        async with (
            listening(server.serve) as port,
            observed(conductor, port, tmp_path / "s", read_pickle=True) as relay,
        ):
            await Player(conductor).play()
            await until(lambda: why in relay.status.trouble)
    assert server.arrived == []
    assert not [line for line in logs if line["event"] == UNKNOWN]


@pytest.mark.parametrize(
    "config, weights, reason",
    [
        (
            pickled(action=spaces.Discrete(2)),
            module(1, 2),
            "whether an action is one of 2 choices or a box of 1 number",
        ),
        (None, recurrent(None, 2), ": how many numbers an observation has"),
        (None, MlirWeights(b"module", 1), "MLIR"),
        (None, module(1, 2), None),
    ],
    ids=["actions", "observations", "MLIR", "all is known"],
)
async def test_what_weights_do_not_tell_is_told_once_for_each_connection(
    conductor: Conductor,
    tmp_path: Path,
    config: SetConfig | None,
    weights: Weights,
    reason: str | None,
) -> None:
    server = Server()
    server.config, server.weights = config or server.config, weights
    with capture_logs() as logs:
        async with listening(server.serve) as port, observed(conductor, port, tmp_path / "s") as relay:
            player = Player(conductor)
            for _ in range(3):
                await player.play()
                await all_arrived(relay)
            assert server.asked == server.connections == 1
    assert len(server.arrived) == 3
    told = [line for line in logs if line["event"] == UNKNOWN]
    assert len(told) == (reason is not None)
    assert all(str(reason) in line["reason"] for line in told)
    if config is not None:
        assert "--rllink-read-pickle" in told[0]["hint"]


@pytest.mark.parametrize(
    "dialect, name, told", [(JSON, None, 1), (JSON, "another", 0), (MSGPACK, None, 0)], ids=str
)
async def test_an_old_server_of_rllibs_that_may_end_over_actions_that_are_numbers_is_told_of_once(
    conductor: Conductor, tmp_path: Path, dialect: Dialect, name: str | None, told: int
) -> None:
    server = Server()
    server.config = SetConfig(env_steps_per_sample=10, server=name)
    with capture_logs() as logs:
        async with (
            listening(server.serve) as port,
            observed(conductor, port, tmp_path / "s", dialect) as relay,
        ):
            player = Player(conductor)
            for _ in range(2):
                await player.play()
                await all_arrived(relay)
    lines = [line for line in logs if line["event"] == NUMBERS]
    assert [line["actions"] for line in lines] == ["a box of 1 number"] * told
    assert all("Ray 2.47 and 2.48" in line["hint"] for line in lines)


@pytest.mark.parametrize(
    "widths, why",
    [
        ((5, 2), "its observations have 1 number, the server's module takes 5"),
        ((1, 3), "its actions were drawn from 2 numbers, the server's module puts out 3"),
        ((None, 3), "its actions were drawn from 2 numbers, the server's module puts out 3"),
    ],
)
async def test_a_module_with_an_lstm_is_sent_nothing_of_another_width(
    conductor: Conductor, tmp_path: Path, widths: tuple[int | None, int], why: str
) -> None:
    server = Server()
    server.weights = recurrent(*widths)
    async with listening(server.serve) as port, observed(conductor, port, tmp_path / "s") as relay:
        await Player(conductor).play()
        await until(lambda: why in relay.status.trouble)
    assert server.arrived == []


@pytest.mark.parametrize("weights", [module(1, 2), None], ids=["gives weights", "gives none"])
async def test_what_was_played_without_annotations_waits_for_a_server_that_needs_none(
    conductor: Conductor, tmp_path: Path, weights: ModuleWeights | None
) -> None:
    async with observed(conductor, 1, tmp_path / "s", unannotated=True):
        player = Player(conductor, annotates=False)
        await player.play()
        conductor.leave([player.attachment])
    learner = Server()
    learner.weights = weights
    # As another daemon, which was started without that option.
    with capture_logs() as logs:
        async with observed(conductor, 1, tmp_path / "s") as relay:
            async with listening(learner.serve) as port:
                back(relay, port)
                await until(lambda: "it has no action_logp" in relay.status.trouble)
            assert learner.arrived == []
            assert status(relay).entries == 1
            async with sink(tmp_path / "in") as port:
                back(relay, port)
                await all_arrived(relay)
            assert (relay.status.delivered, relay.status.discarded, relay.status.trouble) == (5, 0, "")
    (told,) = [line for line in logs if line["event"] == "experience does not fit the upstream"]
    assert "--rllink-unannotated" in told["reason"]


async def test_a_server_that_gives_no_weights_is_sent_all_the_same_and_asked_again_when_it_comes_back(
    conductor: Conductor, tmp_path: Path
) -> None:
    server = Server()
    server.weights = None
    with capture_logs() as logs:
        async with observed(conductor, 1, tmp_path / "s") as relay:
            player = Player(conductor)
            async with listening(server.serve) as port:
                back(relay, port)
                await player.play()
                await all_arrived(relay)
            assert (len(server.arrived), server.asked, server.connections) == (1, 2, 3)
            await player.play()
            server.weights = module(3, 2)
            async with listening(server.serve, port):
                await until(lambda: "the server's module takes 3" in relay.status.trouble)
    assert len(server.arrived) == 1
    told = [line for line in logs if line["event"] == UNKNOWN]
    assert [line["connections"] for line in told] == [2]


async def test_a_sink_is_not_asked_and_takes_what_comes(conductor: Conductor, tmp_path: Path) -> None:
    with capture_logs() as logs:
        async with sink(tmp_path / "in") as port, observed(conductor, port, tmp_path / "s") as relay:
            await Player(conductor).play()
            await all_arrived(relay)
            assert relay.link.connections == 1
    assert not [line for line in logs if line["event"] == "a client is dismissed"]


async def test_agents_of_another_kind_are_not_admitted_beside_those_that_are(
    conductor: Conductor, tmp_path: Path
) -> None:
    conductor.lockstep.held["b"].task.observation_space = BoxSpace(
        np.zeros(3, np.float32), np.ones(3, np.float32)
    )
    async with observed(conductor, 1, tmp_path / "s"):
        Player(conductor)
        with pytest.raises(
            UsageError, match=r"'b' has 3 observations, 1 input.* with 1 observation, 1 input"
        ) as no:
            conductor.attach(["b"], ONE, annotates=True)
        assert "--rllink-agents" in no.value.hint
        (player,) = conductor.lockstep.attachments
        assert player.name == "a"
        conductor.leave([player])
        conductor.attach(["b"], ONE, annotates=True)
    async with observed(conductor, 1, tmp_path / "t", unannotated=True):
        conductor.attach(["b"], ONE, annotates=True)


# --- driving -----------------------------------------------------------------------------------------------------


TOLD: dict[str, Any] = {"env_steps": None, "read_pickle": True}


@pytest.mark.parametrize(
    "space, choices, reason",
    [
        (
            spaces.Discrete(2),
            0,
            "is a box of 1 number, the one that the server learns for is one of 2",
        ),
        (NUMBER, 2, "is one of 2 choices, the one that the server learns for is a box of 1 number"),
        (spaces.MultiDiscrete([2]), 2, "the one that the server learns for is MultiDiscrete"),
    ],
)
async def test_a_server_that_learns_for_other_actions_does_not_act(
    space: Any, choices: int, reason: str
) -> None:
    learner = Told({"action_space": space})
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
    learner = Told({"action_space": NUMBER})
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
    learner = Told({"action_space": spaces.Box(-most, most, (1,))})
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


# --- choices and numbers are told apart, where anything tells them apart -----------------------------------------


CHOICES = DiscreteSpace(4)


def box(*shape: int) -> BoxSpace:
    return BoxSpace(-np.ones(shape, np.float32), np.ones(shape, np.float32))


async def test_a_model_of_a_gaussian_is_no_policy_of_choices_unless_it_may_be_a_users_own() -> None:
    kind, model = Kind(box(16), CHOICES), recorded("box")
    with pytest.raises(ConfigurationError, match=r"is one of 4 choices, .* is a box of 2 numbers") as caught:
        require_same_actions(kind, SaidSpaces(), described(model, named=False))
    assert "action space" in caught.value.hint
    require_same_actions(kind, SaidSpaces(), described(model, named=True))
    require_same_actions(Kind(box(16), box(2)), SaidSpaces(), described(model, named=False))


async def test_free_deviations_are_no_policy_of_choices_whosever_they_are() -> None:
    weights = module_weights(inputs=5, hiddens=(8,), outputs=2) | {"pi.log_std": np.zeros(2, np.float32)}
    with pytest.raises(ConfigurationError, match="a box of 2 numbers"):
        require_same_actions(Kind(box(5), CHOICES), SaidSpaces(), described(weights, named=True))
