"""Experience that the upstream's module cannot learn from is kept, and told: sent, it would end the whole training."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from ospbridge.daemon.relay.compatibility import Kind, SaidSpaces, described, require_same_actions
from ospbridge.errors import ConfigurationError, UsageError
from ospbridge.interface import BoxSpace, DiscreteSpace
from ospbridge.rllink.dialects import JSON, MSGPACK, Dialect
from ospbridge.rllink.messages import ModuleWeights, OnnxWeights, SetConfig, Weights
from tests.daemon.relay.driving import back, until
from tests.daemon.relay.observing import (
    Feed,
    Server,
    all_arrived,
    listening,
    module,
    sink,
    status,
)
from tests.daemon.stage import ONE, Logs
from tests.policy.onnx_models import recorded
from tests.policy.weights import module_weights

pytestmark = [pytest.mark.loopback, pytest.mark.trio]
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
    "weights, settings, why",
    [
        (module(3, 2), {}, "its observations have 1 number, the server's module takes 3"),
        (module(1, 4), {}, "its actions were drawn from 2 numbers, the server's module puts out 4"),
        (OnnxWeights(recorded("discrete"), 1), {}, "the server's module takes 4"),
        (recurrent(5, 2), {}, "its observations have 1 number, the server's module takes 5"),
        (recurrent(1, 3), {}, "its actions were drawn from 2 numbers, the server's module puts out 3"),
        (recurrent(None, 3), {}, "its actions were drawn from 2 numbers, the server's module puts out 3"),
        (None, {"action": spaces.Discrete(2)}, f"{BOX}, the server learns for one of 2 choices"),
        (None, {"action": spaces.Box(-1, 1, (2,))}, f"{BOX}, the server learns for a box of 2 numbers"),
        (None, {"action": spaces.MultiDiscrete([2, 2])}, f"{BOX}, the server learns for MultiDiscrete"),
        # These weights do not tell it.
        (
            recurrent(None, 2),
            {"action": NUMBER, "observation": spaces.Box(-1, 1, (84, 84, 3))},
            "of the shape (84, 84, 3)",
        ),
        (
            recurrent(None, 2),
            {"action": NUMBER, "observation": spaces.Dict({"a": NUMBER})},
            "of the kind Dict",
        ),
    ],
    ids=[
        *("observations", "actions", "ONNX"),
        *("observations of an LSTM", "actions of an LSTM", "actions of an LSTM alone"),
        *("choices by its settings", "numbers by its settings", "another space by its settings"),
        *("a shape by its settings", "a kind by its settings"),
    ],
)
async def test_it_waits_for_a_server_that_it_fits(
    feed: Feed, weights: Weights | None, settings: dict[str, Any], why: str, logs: Logs
) -> None:
    wrong, right = Server(), Server()
    wrong.weights = weights or wrong.weights
    if settings:
        wrong.config = pickled(**settings)
    async with feed.observed(read_pickle=True) as relay:
        player = feed.player()
        async with listening(wrong.serve) as port:
            back(relay, port)
            await player.plays(2)
            await until(lambda: why in relay.status.trouble)
        assert wrong.arrived == []
        async with listening(right.serve, port):
            await all_arrived(relay)
        assert relay.status.discarded == 0
        assert relay.status.trouble == ""
    assert len(right.arrived) == 2
    assert not settings or not logs.of(UNKNOWN)
    (line,) = logs.of("experience does not fit the upstream")
    assert "of agent 'a'" in line["reason"]
    assert why in line["reason"]
    assert str(feed.directory / "s") in line["hint"]


@pytest.mark.parametrize(
    "config, weights, reason",
    [
        (
            pickled(action=spaces.Discrete(2)),
            module(1, 2),
            "whether an action is one of 2 choices or a box of 1 number",
        ),
        (None, recurrent(None, 2), ": how many numbers an observation has"),
        (None, OnnxWeights(b"MLIR", 1), ": how many numbers an observation has"),
        (None, module(1, 2), None),
    ],
    ids=["actions", "observations", "no ONNX file", "all is known"],
)
async def test_what_weights_do_not_tell_is_told_once_for_each_connection(
    feed: Feed, config: SetConfig | None, weights: Weights, reason: str | None, logs: Logs
) -> None:
    feed.server.config, feed.server.weights = config or feed.server.config, weights
    async with feed.feeding(read_pickle=False) as relay:
        player = feed.player()
        for _ in range(3):
            await player.play()
            await all_arrived(relay)
        assert feed.server.asked == feed.server.connections == 1
    assert len(feed.server.arrived) == 3
    lines = logs.of(UNKNOWN)
    assert len(lines) == (reason is not None)
    assert all(str(reason) in line["reason"] for line in lines)
    if config is not None:
        assert "--no-rllink-read-pickle" in lines[0]["hint"]


@pytest.mark.parametrize(
    "dialect, name, told", [(JSON, None, 1), (JSON, "another", 0), (MSGPACK, None, 0)], ids=str
)
async def test_an_old_server_of_rllibs_that_may_end_over_actions_that_are_numbers_is_told_of_once(
    feed: Feed, dialect: Dialect, name: str | None, told: int, logs: Logs
) -> None:
    feed.server.config = SetConfig(env_steps_per_sample=10, server=name)
    async with feed.feeding(dialect) as relay:
        player = feed.player()
        for _ in range(2):
            await player.play()
            await all_arrived(relay)
    lines = logs.of("the upstream may not survive actions that are numbers")
    assert [line["actions"] for line in lines] == ["a box of 1 number"] * told
    assert all("Ray 2.47 and 2.48" in line["hint"] for line in lines)


@pytest.mark.parametrize("weights", [module(1, 2), None], ids=["gives weights", "gives none"])
async def test_what_was_played_without_annotations_waits_for_a_server_that_needs_none(
    feed: Feed, weights: ModuleWeights | None, logs: Logs
) -> None:
    async with feed.observed(unannotated=True):
        player = feed.player(annotates=False)
        await player.play()
        feed.conductor.leave([player.attachment])
    learner = Server()
    learner.weights = weights
    # As another daemon, which was started without that option.
    async with feed.observed() as relay:
        async with listening(learner.serve) as port:
            back(relay, port)
            await until(lambda: "it has no action_logp" in relay.status.trouble)
        assert learner.arrived == []
        assert status(relay).entries == 1
        # A sink is not asked, and takes what comes.
        async with sink(feed.directory / "in") as port:
            back(relay, port)
            await all_arrived(relay)
        assert (relay.status.delivered, relay.status.discarded, relay.status.trouble) == (5, 0, "")
    assert not logs.of("a client is dismissed")
    (line,) = logs.of("experience does not fit the upstream")
    assert "--rllink-unannotated" in line["reason"]


async def test_a_server_that_gives_no_weights_is_sent_all_the_same_and_asked_again_when_it_comes_back(
    feed: Feed, logs: Logs
) -> None:
    feed.server.weights = None
    async with feed.observed() as relay:
        player = feed.player()
        async with listening(feed.server.serve) as port:
            back(relay, port)
            await player.play()
            await all_arrived(relay)
        assert (len(feed.server.arrived), feed.server.asked, feed.server.connections) == (1, 2, 3)
        await player.play()
        feed.server.weights = module(3, 2)
        async with listening(feed.server.serve, port):
            await until(lambda: "the server's module takes 3" in relay.status.trouble)
    assert len(feed.server.arrived) == 1
    assert [line["connections"] for line in logs.of(UNKNOWN)] == [2]


async def test_agents_of_another_kind_are_not_admitted_beside_those_that_are(feed: Feed) -> None:
    wide = BoxSpace(np.zeros(3, np.float32), np.ones(3, np.float32))
    feed.conductor.lockstep.held["b"].task.observation_space = wide
    async with feed.observed():
        a = feed.player().attachment
        with pytest.raises(
            UsageError, match=r"'b' has 3 observations, 1 input.* with 1 observation, 1 input"
        ) as no:
            feed.conductor.attach(["b"], ONE, annotates=True)
        assert "--rllink-agents" in no.value.hint
        assert feed.conductor.lockstep.attachments == [a]
        feed.conductor.leave([a])
        feed.conductor.attach(["b"], ONE, annotates=True)
    async with feed.observed(unannotated=True):
        feed.conductor.attach(["b"], ONE, annotates=True)


# --- choices and numbers are told apart, where anything tells them apart -----------------------------------------


CHOICES = DiscreteSpace(4)


def box(*shape: int) -> BoxSpace:
    return BoxSpace(-np.ones(shape, np.float32), np.ones(shape, np.float32))


async def test_a_gaussian_is_no_policy_of_choices_unless_it_may_be_a_users_own() -> None:
    model, nothing = recorded("box"), SaidSpaces()
    with pytest.raises(ConfigurationError, match=r"is one of 4 choices, .* is a box of 2 numbers") as caught:
        require_same_actions(Kind(box(16), CHOICES), nothing, described(model, named=False))
    assert "action space" in caught.value.hint
    require_same_actions(Kind(box(16), CHOICES), nothing, described(model, named=True))
    require_same_actions(Kind(box(16), box(2)), nothing, described(model, named=False))
    # Free deviations are none, whosever they are.
    weights = module_weights(inputs=5, hiddens=(8,), outputs=2) | {"pi.log_std": np.zeros(2, np.float32)}
    with pytest.raises(ConfigurationError, match="a box of 2 numbers"):
        require_same_actions(Kind(box(5), CHOICES), nothing, described(weights, named=True))
