"""The driver against a learner that checks it, beside others, and in trouble; the world is one in memory."""

from __future__ import annotations

import math
import pickle
import sys
import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import trio
from gymnasium import spaces

from ospbridge.daemon.attachment import Attachment, Driver, State
from ospbridge.daemon.conductor import Conductor
from ospbridge.daemon.relay import driver, link
from ospbridge.daemon.relay.link import WhileAway
from ospbridge.daemon.relay.relay import Relay
from ospbridge.errors import SessionLost, StepUncertain, UsageError
from ospbridge.interface import BoxSpace, DiscreteSpace
from ospbridge.rllink.batches import BatchMode
from ospbridge.rllink.client import ClientMachine
from tests.daemon.relay.driving import WITHIN, away, back, until, upstream, world
from tests.daemon.relay.learner import HIDDEN, TOLD, Gated, TinyLearner, Told, driving
from tests.daemon.stage import (
    FakeSession,
    Logs,
    act,
    agent,
    attach,
    conductor_of,
    episodes,
    recorded,
    tasks,
    told,
)

pytestmark = [pytest.mark.loopback, pytest.mark.trio]
UNUSABLE = "the upstream's weights cannot be used"


def box(most: float) -> BoxSpace:
    return BoxSpace(np.full(1, -most, np.float32), np.full(1, most, np.float32))


# --- learning ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", BatchMode)
@pytest.mark.parametrize("agents", [("a",), ("a", "b", "c")])
async def test_every_batch_comes_from_the_weights_before_it(
    mode: BatchMode, agents: tuple[str, ...], logs: Logs
) -> None:
    learner = TinyLearner()
    _, conductor = world(*agents)
    async with driving(learner, conductor, batch_mode=mode) as relay:
        await learner.learned(12)
        assert relay.driving.weights_seq_no is not None
        assert relay.driving.weights_seq_no >= 11
        assert relay.driving.learner.batches >= 11
    for batch in learner.batches:
        assert sum(fragment.steps for fragment in batch) >= 20
        if mode is BatchMode.COMPLETE_EPISODES:
            assert all(fragment.terminated and fragment.steps == 7 for fragment in batch)
    # Whoever records them can tell them apart.
    whose = {(fragment.agent, fragment.simulator) for batch in learner.batches for fragment in batch}
    assert whose == {(name, "sim:1") for name in agents}
    episodes = [line for line in logs if line["event"] == "episode" and line["ended"] == "terminated"]
    assert {0, 1, 2} <= {line["weights_seq_no"] for line in episodes}
    assert all(line["driver"].startswith("relay drive 127.0.0.1:") for line in episodes)


async def test_pieces_of_an_episode_follow_each_other_without_a_gap() -> None:
    learner = TinyLearner()
    async with driving(learner, world(length=33)[1]):
        await learner.learned(10)
    pieces = [fragment for batch in learner.batches for fragment in batch]
    for before, after in pairwise(pieces):
        if before.done:
            assert after.t_started == 0
            assert before.t == 33
        else:
            assert after.id == before.id
            assert after.t_started == before.t
            assert after.observations[0].tolist() == before.observations[-1].tolist()


async def test_the_same_seed_draws_the_same_actions() -> None:
    async def taken() -> list[Any]:
        learner = TinyLearner(seed=3)
        session, conductor = world()
        async with driving(learner, conductor, seed=11):
            await learner.learned(3)
        assert session.seeds[0] == 11
        return [fragment.actions.tolist() for batch in learner.batches[:3] for fragment in batch]

    assert await taken() == await taken()


# --- how it acts -------------------------------------------------------------------------------------------------


async def test_a_greedy_policy_takes_its_means() -> None:
    learner = TinyLearner()
    async with driving(learner, explore=False):
        await learner.learned(1)
    for fragment in learner.batches[0]:
        assert fragment.action_dist_inputs is not None
        assert np.array_equal(fragment.actions, fragment.action_dist_inputs[:, :1])


AS_DRAWN: dict[str, Any] = {"normalize_actions": False}


@pytest.mark.parametrize(
    "tells, said, most, expected",
    [
        (None, {}, 8.0, "stretched"),
        (None, {"normalize_actions": True}, 8.0, "stretched"),
        (None, {"normalize_actions": False}, 8.0, "drawn"),
        (AS_DRAWN | {"clip_actions": True}, TOLD, 0.25, "clipped"),
        (AS_DRAWN, TOLD | {"clip_actions": True}, 0.25, "clipped"),
        (AS_DRAWN | {"clip_actions": True}, TOLD | {"clip_actions": False}, 0.25, "drawn"),
        (AS_DRAWN, TOLD, 0.25, "drawn"),
    ],
    ids=[
        *("stretched by default", "stretched", "not stretched"),
        *("clipped by the server", "clipped by the user", "denied by the user", "not clipped by default"),
    ],
)
async def test_actions_are_stretched_and_limited_as_the_user_says_or_the_server_tells_and_doubt_is_told(
    tells: dict[str, Any] | None, said: dict[str, Any], most: float, expected: str, logs: Logs
) -> None:
    learner = TinyLearner() if tells is None else Told(tells)
    session, conductor = world()
    conductor.lockstep.held["a"].task.action_space = box(most)
    async with driving(learner, conductor, **said):
        await learner.learned(2)
    assumed = [line.get("normalize_actions") for line in logs.of("RLlib's defaults are assumed")]
    if tells is None:
        assert assumed == ([None] if said else [True])
    given = np.array([step["a"] for step in session.steps])
    drawn = np.concatenate([fragment.actions[:, 0] for batch in learner.batches for fragment in batch])
    assert np.abs(drawn).max() > 0.25
    wanted = np.clip(8 * drawn if expected == "stretched" else drawn, -most, most)
    wanted = drawn if expected == "drawn" else wanted
    assert np.abs(given[:, None] - wanted).min(axis=0).max() < 1e-5
    assert expected != "clipped" or np.abs(given).max() <= most


class DeepHead(Told):
    """Its policy's head has a hidden layer; its settings may tell that layer's activation."""

    def __init__(self, *, head_activation: str, tells: bool) -> None:
        super().__init__(model={"head_fcnet_activation": head_activation} if tells else {})
        self.head_activation = head_activation

    def _drawn(self) -> dict[str, Any]:
        weights = super()._drawn()
        for part in ("weight", "bias"):
            weights[f"pi.net.mlp.2.{part}"] = weights[f"pi.net.mlp.0.{part}"]
        weights["pi.net.mlp.0.weight"] = self._random.normal(size=(HIDDEN, HIDDEN)).astype(np.float32)
        weights["pi.net.mlp.0.bias"] = self._random.normal(size=HIDDEN).astype(np.float32)
        return weights


@pytest.mark.parametrize(
    "head_activation, tells, said, assumed",
    [
        ("tanh", True, None, []),
        ("silu", False, "silu", []),
        ("silu", True, "silu", []),
        ("relu", False, None, ["relu"]),
    ],
    ids=["told by the server", "said by the user", "told and said", "neither"],
)
async def test_a_policys_head_is_activated_as_the_user_says_or_the_server_tells(
    head_activation: str, tells: bool, said: str | None, assumed: list[str], logs: Logs
) -> None:
    learner = DeepHead(head_activation=head_activation, tells=tells)
    async with driving(learner, **TOLD, head_activation=said):
        await learner.learned(2)
    assert [line["head_activation"] for line in logs if "head_activation" in line] == assumed


@pytest.mark.parametrize(
    "space, choices, reason",
    [
        (spaces.Discrete(2), 0, "is a box of 1 number, the one that the server learns for is one of 2"),
        (
            spaces.Box(-1, 1, (1,)),
            2,
            "is one of 2 choices, the one that the server learns for is a box of 1 number",
        ),
        (spaces.MultiDiscrete([2]), 2, "the one that the server learns for is MultiDiscrete"),
    ],
)
async def test_a_server_that_learns_for_other_actions_does_not_act(
    space: Any, choices: int, reason: str, logs: Logs
) -> None:
    learner = Told({"action_space": space})
    session, conductor = world()
    if choices:
        conductor.lockstep.held["a"].task.action_space = DiscreteSpace(choices)
    async with driving(learner, conductor, **TOLD):
        await until(lambda: learner.given >= 3)
    (line,) = logs.of(UNUSABLE)
    assert reason in line["reason"]
    assert "action space" in line["hint"]
    assert session.steps == []
    assert learner.batches == []


@pytest.mark.parametrize("read", [True, False])
async def test_actions_that_a_server_does_not_tell_are_assumed_and_that_is_told(
    read: bool, logs: Logs
) -> None:
    learner = Told({"action_space": spaces.Box(-1, 1, (1,))})
    async with driving(learner, read_pickle=read):
        await learner.learned(2)
    (line,) = logs.of("RLlib's defaults are assumed")
    assert line.get("actions") == (None if read else "a box of 1 number")
    # These settings are a dict, which names no class.
    assert line["module"] == "RLlib's own of PPO"
    assert line["connectors"] == "none"
    assert "let it be read" in line["hint"]


@pytest.mark.parametrize(
    "said, model, by_hand, reason",
    [
        ({"_rl_module_spec": {"module_class": Path}}, {}, {}, "its module is pathlib"),
        ({"_env_to_module_connector": math.sqrt}, {}, {}, "env_to_module_connector math.sqrt"),
        ({"_learner_connector": math.sqrt}, {}, {}, "learner_connector math.sqrt"),
        ({}, {"fcnet_activation": "relu"}, {"activation": "tanh"}, "is relu, and tanh was said"),
        (
            {},
            {"head_fcnet_hiddens": [8], "head_fcnet_activation": "relu"},
            {"head_activation": "elu"},
            "head_fcnet_activation is relu, and elu was said",
        ),
    ],
    ids=["module", "connector", "learner connector", "activation", "head activation"],
)
async def test_a_server_whose_own_policy_would_act_otherwise_is_refused_unless_it_is_played_anyway(
    said: dict[str, Any], model: dict[str, Any], by_hand: dict[str, Any], reason: str, logs: Logs
) -> None:
    learner = Told(said, model=model)
    session, conductor = world()
    async with driving(learner, conductor, **(TOLD | by_hand)) as relay:
        await until(lambda: learner.given >= 3)
        assert reason in relay.status.trouble
    (line,) = logs.of(UNUSABLE)
    assert "--rllink-play-anyway" in line["hint"]
    assert session.steps == []
    async with driving(learner, **(TOLD | by_hand), play_anyway=True):
        await learner.learned(2)


@pytest.mark.parametrize("by_hand", ["Swish", "relu"])
async def test_settings_that_nobody_reads_refuse_nothing_and_other_names_of_a_function_are_no_other(
    by_hand: str, logs: Logs
) -> None:
    learner = Told(
        {"_learner_connector": math.sqrt} if by_hand == "relu" else {}, model={"fcnet_activation": "silu"}
    )
    learner.activation = by_hand
    async with driving(learner, **(TOLD | {"activation": by_hand, "read_pickle": by_hand != "relu"})):
        await learner.learned(2)
    (line,) = logs.of("RLlib's defaults are assumed")
    assert line["connectors"] == "none"


@pytest.mark.parametrize("most", [1.0, 3.0])
async def test_bounds_that_a_server_has_otherwise_are_told_once(most: float, logs: Logs) -> None:
    learner = Told({"action_space": spaces.Box(-most, most, (1,))})
    _, conductor = world()
    conductor.lockstep.held["a"].task.action_space = box(2.0)
    async with driving(learner, conductor, **TOLD):
        await learner.learned(2)
    between = "number 0 of an action is between -2 and 2 for the agents, and between -3 and 3 for the server"
    reasons = [line["reason"] for line in logs.of("the upstream's actions have other bounds")]
    assert reasons == ([between] if most == 3.0 else [])


# --- an upstream in trouble --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spoilt",
    [
        {"pi.net.mlp.0.weight": np.full((2, 4), np.nan, np.float32)},
        {"pi.net.mlp.0.weight": np.zeros((5, 4), np.float32)},
        {"encoder.encoder.net.mlp.0.weight": np.zeros((4, 9), np.float32)},
    ],
)
async def test_weights_that_cannot_work_are_told_in_log_and_status_until_better_ones_come(
    spoilt: dict[str, Any], logs: Logs
) -> None:
    learner = TinyLearner()
    good = learner.weights
    learner.weights = good | spoilt
    learner.spoilt = {2: good | spoilt}
    async with driving(learner) as relay:
        await until(lambda: "its weights cannot be used: " in relay.status.trouble)
        assert relay.status.dialect
        learner.weights = good
        await learner.learned(4)
        assert relay.status.trouble == ""
    assert {line["weights_seq_no"] for line in logs.of(UNUSABLE)} == {0, 2}
    assert all(next(iter(spoilt)).rpartition(".")[0] in line["reason"] for line in logs.of(UNUSABLE))


@pytest.mark.parametrize(
    "pickled, reason",
    [
        (b"\x80\x05\x97.", "opcode 0x97 is not read"),
        (pickle.dumps({"train_batch_size": "many", "num_learners": -1}), "num_learners and train_batch_size"),
    ],
)
async def test_settings_that_cannot_be_read_are_told_once_and_what_was_said_by_hand_counts(
    pickled: bytes, reason: str, logs: Logs
) -> None:
    learner = Told(pickled=pickled)
    learner.hang_up_in = [1, 2]
    async with driving(learner, read_pickle=True):
        await learner.learned(4)
    assert learner.connections == 3
    (line,) = logs.of("the upstream's settings cannot be read")
    assert reason in line["reason"]
    assert "--rllink-env-steps" in line["hint"]


@pytest.mark.parametrize(
    "blocked", [(ClientMachine, "decode"), (driver, "Policy")], ids=["decoding", "building"]
)
async def test_what_a_server_sent_holds_up_neither_the_event_loop_nor_the_end_while_it_is_looked_at(
    blocked: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    began, release = threading.Event(), threading.Event()

    def hanging(*_: Any, **__: Any) -> None:
        began.set()
        release.wait(WITHIN)

    monkeypatch.setattr(link, "APART", -1)
    monkeypatch.setattr(*blocked, hanging)
    try:
        async with driving(TinyLearner()):
            await until(began.is_set)
        assert not release.is_set()
    finally:
        release.set()


async def test_weights_of_too_many_arrays_are_told_and_good_ones_are_taken(logs: Logs) -> None:
    learner = TinyLearner()
    learner.spoilt = {0: {str(at): np.zeros(0, np.float32) for at in range(6000)}}
    async with driving(learner) as relay:
        await until(lambda: "more than 21000 values" in relay.status.trouble)
        await learner.learned(2)
    (line,) = logs.of("upstream away")
    assert "--rllink-most-arrays" in line["hint"]


async def test_names_of_weights_are_cut_in_logs(logs: Logs) -> None:
    learner = TinyLearner()
    learner.weights |= {f"encoder.encoder.{'x' * 900}": np.zeros(1, np.float32)}
    async with driving(learner) as relay:
        await until(lambda: "cannot be used" in relay.status.trouble)
        assert len(relay.status.trouble) < 600
    (line,) = logs.of(UNUSABLE)
    assert len(line["reason"]) <= 500


@pytest.mark.parametrize("algorithm", ["APPO", "IMPALA", "PPO"])
async def test_an_algorithm_that_never_answers_a_driver_is_told(
    algorithm: str, monkeypatch: pytest.MonkeyPatch, logs: Logs
) -> None:
    module = ModuleType(f"ray.rllib.algorithms.{algorithm.lower()}")
    settings = type(f"{algorithm}Config", (), {"__module__": module.__name__})
    setattr(module, settings.__name__, settings)
    for name in ("ray", "ray.rllib", "ray.rllib.algorithms"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    given = settings()
    given.train_batch_size = 20
    learner = Told(pickled=pickle.dumps(given))
    learner.thinks = 0.2
    async with driving(learner, read_pickle=True) as relay:
        await until(lambda: relay.status.weights_seq_no == 0)
        assert (algorithm in relay.status.trouble) == (algorithm != "PPO")
        await learner.learned(2)
        # It did answer, whatever was to be expected.
        assert relay.status.trouble == ""
    found = logs.of("the upstream's algorithm does not answer a driver")
    assert [line["algorithm"] for line in found] == ([] if algorithm == "PPO" else [algorithm])
    assert all("PPO" in line["hint"] for line in found)


@pytest.mark.parametrize("length", [7, 10**6])
async def test_acting_goes_on_while_the_upstream_is_away_if_so_asked(length: int) -> None:
    learner = TinyLearner()
    session, conductor = world()
    async with driving(learner, conductor, away=WhileAway.CONTINUE) as relay:
        await learner.learned(2)
        port = relay.link.address.endpoint.port
        away(relay)
        session.ending = {"a": length}
        steps = len(session.steps)
        await until(lambda: len(session.steps) > steps + 200)
        assert relay.driving.learner.discarded >= 100
        back(relay, port)
        await learner.learns(2)


# --- environments beside it --------------------------------------------------------------------------------------


def beside(length: int = 1000, driven: int = 1000) -> tuple[Conductor, Attachment]:
    """An environment on agent b, whose first episode begins with the driver's of agent a; a reset waits shortly."""
    session, conductor = world("a", "b")
    session.ending = {"a": driven, "b": length}
    conductor.lockstep.next_reset.quorum = 2
    conductor.lockstep.next_reset.grace = 0.2
    return conductor, attach(conductor, "b", Driver("env", 2))


async def test_others_wait_without_losing_time_while_weights_are_learned() -> None:
    learner = TinyLearner()
    learner.thinks = 0.3
    conductor, b = beside()
    conductor.settings = replace(conductor.settings, limits=replace(conductor.settings.limits, step=0.1))
    async with driving(learner, conductor, agents=("a",)):
        await conductor.reset([b], 0, 2)
        while len(learner.batches) < 2:
            await act(conductor, b=0.5)
            assert not told(b).truncated


async def test_agents_rest_when_weights_take_too_long_and_play_again_when_they_come(logs: Logs) -> None:
    learner = Gated()
    conductor, b = beside()
    async with driving(learner, conductor, agents=("a",), hold=0.05):
        await conductor.reset([b], 0, 2)
        (a,) = (each for each in conductor.lockstep.attachments if each.name == "a")
        while a.state is not State.ATTACHED:
            await act(conductor, b=0.5)
        assert learner.asked == 1
        (rested,) = logs.of("the driver's agents rest")
        assert "gave no new weights within 0.05 s" in rested["reason"]
        learner.gate.set()
        await until(lambda: a.state is State.WAITING)
        conductor.rest([b], "enough")
        await learner.learned(3)


async def test_a_world_held_for_too_long_is_reset_without_the_driver_which_joins_in_later(logs: Logs) -> None:
    learner = Gated()
    conductor, b = beside(7, 7)

    async def episode() -> list[str]:
        """Of the environment; who plays at its beginning."""
        await conductor.reset([b], 0, 2)
        names = [a.name for a in conductor.lockstep.playing]
        while b.state is State.PLAYING:
            await act(conductor, b=0.5)
        return sorted(names)

    whole = {"agents": ("a",), "batch_mode": BatchMode.COMPLETE_EPISODES, "hold": 0.1}
    async with driving(learner, conductor, **whole):
        assert [await episode() for _ in range(4)] == [["a", "b"]] * 3 + [["b"]]
        assert learner.batches == []
        learner.gate.set()
        await learner.learned(1)
        await until(lambda: "a" in [each.name for each in conductor.lockstep.playing])
        assert [await episode() for _ in range(3)] == [["a", "b"]] * 3
    assert logs.of("the driver's reset failed") == []


# --- a simulator in trouble --------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["reward", "observation"])
async def test_an_episode_with_a_number_that_is_none_is_not_sent(
    what: str, monkeypatch: pytest.MonkeyPatch, logs: Logs
) -> None:
    learner = TinyLearner()
    _, conductor = world()
    task = conductor.lockstep.held["a"].task
    seen = 0

    def number(good: float) -> float:
        nonlocal seen
        seen += 1
        return float("nan") if seen == 10 else good

    if what == "reward":
        # As with not_finite = "pass": else the episode would end there.
        monkeypatch.setattr(task, "_mends", False)
        monkeypatch.setattr(task, "judge", lambda _: (number(1.0), seen % 7 == 0, False))
    else:
        monkeypatch.setattr(task, "observe", lambda _: np.full(1, number(0.25), np.float32))
    async with driving(learner, conductor) as relay:
        await learner.learned(3)
        assert relay.status.discarded > 0
    assert len(logs.of("an episode is not sent")) == 1
    fragments = [fragment for batch in learner.batches for fragment in batch]
    assert all(np.isfinite(f.rewards).all() and np.isfinite(f.observations).all() for f in fragments)


async def test_an_episode_that_must_be_sent_whole_and_does_not_end_is_told_and_truncated_in_the_end(
    monkeypatch: pytest.MonkeyPatch, logs: Logs
) -> None:
    monkeypatch.setattr("ospbridge.daemon.relay.driver.LONGEST", 150)
    learner = TinyLearner()
    _, conductor = world(length=10**9)
    async with driving(learner, conductor, batch_mode=BatchMode.COMPLETE_EPISODES):
        await learner.learned(3)
    (long,) = logs.of("nothing is learned before an episode ends")
    assert long["steps"] == 40
    assert "--rllink-batch-mode truncate_episodes" in long["hint"]
    cut = logs.of("the driver's episodes are cut")
    assert len(cut) >= 3
    assert all("this one has 150 steps" in line["reason"] and "max_steps" in line["hint"] for line in cut)
    for (fragment,) in learner.batches:
        assert (fragment.steps, fragment.truncated, fragment.terminated) == (150, True, False)


# --- who is driven -----------------------------------------------------------------------------------------------


async def test_agents_of_several_kinds_are_refused_by_name() -> None:
    conductor = conductor_of(FakeSession("a", "b"))
    conductor.lockstep.take_agents(tasks(agent("a"), agent("b", low=-3.0)))
    async with TinyLearner().listening() as port:
        with pytest.raises(ExceptionGroup) as caught, trio.fail_after(WITHIN):
            await Relay(upstream(port), [conductor]).run()
    assert caught.group_contains(UsageError, match=r"a: 1 observation,.*b: 1 observation,")


async def test_agents_that_a_simulator_brings_along_when_it_returns_are_driven_too() -> None:
    learner = TinyLearner()
    session, conductor = world("a")
    async with driving(learner, conductor):
        await learner.learned(2)
        session.names = ("a", "b")
        session.ending = {"a": 7, "b": 7}
        conductor.lockstep.cut_all("the simulator is gone", trio.current_time())
        conductor.lockstep.take_agents(tasks(agent("a"), agent("b")))
        conductor._changed()
        await until(lambda: {each.name for each in conductor.lockstep.attachments} == {"a", "b"})
        await learner.learns(2)


@pytest.mark.parametrize(
    "driven_one, name, patterns",
    [("a", "odd", ("*",)), ("robot[1]", "robot1", ("robot[1]",))],
)
async def test_agents_that_are_not_wanted_or_of_another_kind_change_nothing_for_those_that_are_driven(
    driven_one: str, name: str, patterns: tuple[str, ...], logs: Logs
) -> None:
    learner = TinyLearner()
    session, conductor = world(driven_one)
    async with driving(learner, conductor, agents=patterns):
        await learner.learned(2)
        session.names = (driven_one, name)
        low = -3.0 if name == "odd" else -1.0
        conductor.lockstep.take_agents(tasks(agent(driven_one), agent(name, low=low)))
        await learner.learns(5)
        assert [each.name for each in conductor.lockstep.attachments] == [driven_one]
        assert logs.of("detached") == []


# --- several simulators ------------------------------------------------------------------------------------------


def worlds(*thinks: float, length: int = 7) -> tuple[list[FakeSession], list[Conductor]]:
    """One agent each; their steps take so many seconds."""
    made = [world(length=length) for _ in thinks]
    for (session, _), think in zip(made, thinks, strict=True):
        session.think = think
    return [session for session, _ in made], [conductor for _, conductor in made]


@pytest.mark.parametrize("mode", BatchMode)
async def test_every_batch_of_several_simulators_comes_from_the_weights_before_it(mode: BatchMode) -> None:
    learner = TinyLearner()
    sessions, conductors = worlds(0.0, 0.002, 0.005)
    async with driving(learner, *conductors, batch_mode=mode, seed=2**31 - 1):
        await learner.learned(10)
    # Each one's first reset has a seed of its own.
    assert [session.seeds[0] for session in sessions] == [2**31 - 1, 1, 2]
    assert all(session.steps for session in sessions)
    assert any(len({fragment.id for fragment in batch}) > 1 for batch in learner.batches)
    for batch in learner.batches:
        steps = sum(fragment.steps for fragment in batch)
        if mode is BatchMode.COMPLETE_EPISODES:
            assert all(fragment.terminated and fragment.steps == 7 for fragment in batch)
            assert steps >= 20
        else:
            # No more than it needs, and a step of each that was under way.
            assert 20 <= steps <= 22


async def test_a_fast_simulator_does_not_wait_for_a_slow_one() -> None:
    learner = TinyLearner()
    (fast, slow), conductors = worlds(0.0, 30.0, length=1000)
    async with driving(learner, *conductors):
        await learner.learned(1)
        await until(lambda: len(fast.steps) >= 20)
        assert slow.steps == []


async def test_a_lost_simulator_drops_out_and_comes_back_in() -> None:
    learner = TinyLearner()
    (_, second), conductors = worlds(0.0, 0.001)
    async with driving(learner, *conductors):
        await learner.learned(3)
        second.step_errors = [SessionLost("the simulator is gone")]
        await until(lambda: not conductors[1].ready)
        lived = len(second.steps)
        await learner.learns(5)
        assert len(second.steps) == lived
        conductors[1].supervisor.loss = None
        conductors[1]._changed()
        await until(lambda: len(second.steps) > lived + 20)
        await learner.learns(3)


async def test_an_episode_that_is_cut_is_the_same_upstream_and_in_recordings(tmp_path: Path) -> None:
    learner = TinyLearner()
    session, conductor = world(length=10**6)
    # In the middle of a batch: the end of what went with the one before is not told any more.
    session.step_errors = [*[None] * 27, StepUncertain("who knows")]
    with recorded(conductor, tmp_path):
        async with driving(learner, conductor):
            await until(lambda: conductor.supervisor.loss is not None)
            conductor.supervisor.loss = None
            conductor._changed()
            await learner.learns(2)
    cut = next(episode for episode in episodes(tmp_path) if episode.reason == "who knows")
    sent = [fragment for batch in learner.batches for fragment in batch]
    sent = [fragment for fragment in sent if fragment.id == sent[0].id]
    assert [fragment.truncated for fragment in sent] == [*(False for _ in sent[1:]), True]
    assert sum(fragment.steps for fragment in sent) == len(cut)
    assert sent[-1].observations[-1].tolist() == cut.observations[-1].tolist()
    assert np.concatenate([fragment.rewards for fragment in sent]).tolist() == cut.rewards.tolist()


async def test_a_simulator_of_another_kind_that_comes_late_does_not_end_what_the_others_do(
    logs: Logs,
) -> None:
    learner = TinyLearner()
    _, (first,) = worlds(0.0)
    late = conductor_of(FakeSession("b"))
    late.lockstep.take_agents(tasks(agent("b", low=-3.0)))
    session, late.supervisor.session = late.supervisor.session, None
    async with driving(learner, first, late):
        await learner.learned(3)
        late.supervisor.session = session
        await until(lambda: logs.of("a simulator is not driven"))
        await learner.learns(3)
    assert late.lockstep.attachments == []
