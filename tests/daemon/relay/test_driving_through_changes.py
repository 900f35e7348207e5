"""A driver whose agents, server, or both become others while it works, and an episode that does not end."""

from __future__ import annotations

import pickle
import sys
from collections import Counter
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import trio
from structlog.testing import capture_logs

from ospbridge.interface import BoxSpace
from ospbridge.rllink.cutting import BatchMode
from ospbridge.task.plain import PlainTask
from tests.daemon.relay.driving import driven, until, upstream, world
from tests.daemon.relay.learner import HIDDEN, TinyLearner, Told
from tests.daemon.stage import FakeSession, agent

if TYPE_CHECKING:
    from ospbridge.daemon.conductor import Conductor

pytestmark = [pytest.mark.loopback, pytest.mark.trio]


def returns(session: FakeSession, conductor: Conductor, *names: str) -> None:
    """The simulator is started anew, with these agents."""
    session.names = names
    session.ending = dict.fromkeys(names, 7)
    conductor.lockstep.cut_all("the simulator is gone", trio.current_time())
    conductor.lockstep.take_agents([PlainTask(agent(name), bounded=True) for name in names])
    conductor._changed()


def unfit(logs: list[Any]) -> list[Any]:
    return [line for line in logs if line["event"] == "the upstream's weights cannot be used"]


# --- agents and servers --------------------------------------------------------------------------------------------


async def test_agents_that_a_simulator_brings_along_when_it_returns_are_driven_too() -> None:
    learner = TinyLearner()
    session, conductor = world("a")
    async with learner.listening() as port, driven(conductor, upstream(port)):
        await until(lambda: len(learner.batches) >= 2)
        returns(session, conductor, "a", "b")
        await until(lambda: {each.name for each in conductor.lockstep.attachments} == {"a", "b"})
        done = len(learner.batches)
        await until(lambda: len(learner.batches) >= done + 2)
    assert learner.wrong == []


@pytest.mark.parametrize(
    "driven_one, name, patterns",
    [("a", "odd", ("*",)), ("robot[1]", "robot1", ("robot[1]",))],
)
async def test_agents_that_are_not_wanted_or_of_another_kind_change_nothing_for_those_that_are_driven(
    driven_one: str, name: str, patterns: tuple[str, ...]
) -> None:
    learner = TinyLearner()
    session, conductor = world(driven_one)
    with capture_logs() as logs:
        async with learner.listening() as port, driven(conductor, upstream(port, agents=patterns)):
            await until(lambda: len(learner.batches) >= 2)
            session.names = (driven_one, name)
            low = -3.0 if name == "odd" else -1.0
            tasks = [PlainTask(each, bounded=True) for each in (agent(driven_one), agent(name, low=low))]
            conductor.lockstep.take_agents(tasks)
            done = len(learner.batches)
            await until(lambda: len(learner.batches) >= done + 5)
            assert [each.name for each in conductor.lockstep.attachments] == [driven_one]
            assert not [line for line in logs if line["event"] == "detached"]
    assert learner.wrong == []


# --- what a server is like -----------------------------------------------------------------------------------------


class Configured(Told):
    """Makes another thing of the same weights each time that it starts."""

    def forget(self) -> None:
        self.activation = "relu"


async def test_a_server_that_returns_with_another_activation_is_acted_for_with_that_one() -> None:
    learner = Configured()
    learner.hang_up_in, learner.forgets = [3], True
    _, conductor = world()
    told = {"activation": None, "env_steps": None, "read_pickle": True}
    async with learner.listening() as port, driven(conductor, upstream(port, **told)) as relay:
        await until(lambda: len(learner.batches) >= 6)
        assert relay.driving.learner.discarded >= 20
    assert learner.connections == 2
    # Each batch was decided as this activation decides.
    assert learner.wrong == []


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
    head_activation: str, tells: bool, said: str | None, assumed: list[str]
) -> None:
    learner = DeepHead(head_activation=head_activation, tells=tells)
    _, conductor = world()
    changes = {"activation": None, "env_steps": None, "read_pickle": True, "head_activation": said}
    with capture_logs() as logs:
        async with learner.listening() as port, driven(conductor, upstream(port, **changes)):
            await until(lambda: len(learner.batches) >= 2)
    assert learner.wrong == []
    told = [line["head_activation"] for line in logs if "head_activation" in line]
    assert told == assumed


@pytest.mark.parametrize(
    "tells, said, clipped",
    [(True, None, True), (None, True, True), (True, False, False), (None, None, False)],
    ids=["told by the server", "said by the user", "denied by the user", "neither"],
)
async def test_actions_are_limited_to_their_space_as_the_user_says_or_the_server_tells(
    tells: bool | None, said: bool | None, clipped: bool
) -> None:
    learner = Told({"normalize_actions": False} | ({} if tells is None else {"clip_actions": tells}))
    session, conductor = world()
    narrow = BoxSpace(np.full(1, -0.25, np.float32), np.full(1, 0.25, np.float32))
    conductor.lockstep.held["a"].task.action_space = narrow
    changes = {"activation": None, "env_steps": None, "read_pickle": True, "clip_actions": said}
    async with learner.listening() as port, driven(conductor, upstream(port, **changes)):
        await until(lambda: len(learner.batches) >= 2)
    assert learner.wrong == []
    given = np.array([step["a"] for step in session.steps])
    drawn = np.concatenate([fragment.actions[:, 0] for batch in learner.batches for fragment in batch])
    assert np.abs(drawn).max() > 0.25
    assert bool(np.abs(given).max() <= 0.25) is clipped
    expected = np.clip(drawn, -0.25, 0.25) if clipped else drawn
    assert np.abs(given[:, None] - expected).min(axis=0).max() < 1e-5


@pytest.mark.parametrize(
    "pickled, reason",
    [
        (b"\x80\x05\x97.", "opcode 0x97 is not read"),
        (pickle.dumps({"train_batch_size": "many", "num_learners": -1}), "num_learners and train_batch_size"),
    ],
)
async def test_settings_that_cannot_be_read_are_told_once_and_what_was_said_by_hand_counts(
    pickled: bytes, reason: str
) -> None:
    learner = Told(pickled=pickled)
    learner.hang_up_in = [1, 2]
    _, conductor = world()
    with capture_logs() as logs:
        async with learner.listening() as port, driven(conductor, upstream(port, read_pickle=True)):
            await until(lambda: len(learner.batches) >= 4)
    assert learner.connections == 3
    (told,) = (line for line in logs if line["event"] == "the upstream's settings cannot be read")
    assert reason in told["reason"]
    assert "--rllink-env-steps" in told["hint"]
    assert learner.wrong == []


@pytest.mark.parametrize("algorithm", ["APPO", "IMPALA", "PPO"])
async def test_an_algorithm_that_never_answers_a_driver_is_told(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
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
    _, conductor = world()
    with capture_logs() as logs:
        async with (
            learner.listening() as port,
            driven(conductor, upstream(port, read_pickle=True)) as relay,
        ):
            await until(lambda: relay.status.weights_seq_no == 0)
            assert (algorithm in relay.status.trouble) == (algorithm != "PPO")
            await until(lambda: len(learner.batches) >= 2)
            # It did answer, whatever was to be expected.
            assert relay.status.trouble == ""
    told = [line for line in logs if line["event"] == "the upstream's algorithm does not answer a driver"]
    assert [line["algorithm"] for line in told] == ([] if algorithm == "PPO" else [algorithm])
    assert all("PPO" in line["hint"] for line in told)


class Starting(TinyLearner):
    """Replaces its weights behind the first question for them, and their number stays: as Ray's servers do in setup."""

    async def _answer(self, machine: Any, event: Any, *rest: Any) -> bool:
        answered = await super()._answer(machine, event, *rest)
        if not event.learned and self.connections == 1 and not self.replaced:
            self.replaced = True
            self.weights = self._drawn()
        return answered

    replaced = False


async def test_weights_that_a_server_replaces_as_it_starts_under_the_same_number_are_noticed() -> None:
    learner = Starting()
    _, conductor = world()
    async with learner.listening() as port, driven(conductor, upstream(port)) as relay:
        await until(lambda: len(learner.batches) >= 3)
        assert relay.driving.learner.discarded >= 20
    assert learner.wrong == []


class Pushing(TinyLearner):
    """Takes other weights of its own accord in the third round, and pushes them."""

    async def _answer(self, machine: Any, event: Any, stream: trio.SocketStream, *rest: Any) -> bool:
        answered = await super()._answer(machine, event, stream, *rest)
        if answered and event.learned and len(self.batches) == 3:
            for part in machine.data_to_send():
                await stream.send_all(part)
            self.seq_no += 1
            self.weights = self._drawn()
            machine.send_state(self._sent())
        return answered


async def test_a_batch_that_weights_overtake_which_the_server_pushes_is_not_learned_from() -> None:
    learner = Pushing()
    _, conductor = world()
    async with learner.listening() as port, driven(conductor, upstream(port)) as relay:
        await until(lambda: len(learner.batches) >= 6)
        assert relay.driving.learner.discarded >= 20
    assert learner.wrong == []


class Answering(TinyLearner):
    """Answers its third batch at once with the old weights, and leaves while it learns from it."""

    def __init__(self, *, forgetful: bool = False) -> None:
        super().__init__()
        self.read: Counter[tuple[str, int]] = Counter()
        self.asked = 0
        self.forgetful = forgetful
        """It is started anew then, and has read nothing."""

    async def _answer(self, machine: Any, event: Any, stream: trio.SocketStream, batch: Any) -> bool:
        if event.learned:
            self.asked += 1
            self.read.update((fragment.id, fragment.t_started) for fragment in batch)
            if self.asked == 3:
                machine.send_state(self._sent())
                for part in machine.data_to_send():
                    await stream.send_all(part)
                await trio.sleep(0.05)
                return False
        elif self.asked == 3 and self.connections == 2 and not self.forgetful:
            # The question is heard once more before the learning is done.
            answered = await super()._answer(machine, event, stream, batch)
            self.asked += 1
            self.batches.append(())
            self.seq_no += 1
            self.weights = self._drawn()
            return answered
        return await super()._answer(machine, event, stream, batch)


async def test_a_batch_that_was_answered_with_old_weights_is_not_sent_again_over_the_next_connection() -> (
    None
):
    learner = Answering()
    _, conductor = world()
    async with learner.listening() as port, driven(conductor, upstream(port)) as relay:
        await until(lambda: len(learner.batches) >= 6)
        assert relay.driving.learner.discarded == 0
        assert relay.driving.learner.batches >= 5
    assert learner.connections == 2
    assert set(learner.read.values()) == {1}
    assert learner.wrong == []


class Replaced(Answering):
    """Another run answers behind it, which has other weights and numbers them anew."""

    replaced = False

    async def _answer(self, machine: Any, event: Any, stream: trio.SocketStream, batch: Any) -> bool:
        if self.connections == 2 and not self.replaced:
            self.replaced = True
            self.forget()
        return await super()._answer(machine, event, stream, batch)


async def test_a_batch_that_a_server_of_another_run_knows_nothing_of_is_told_as_discarded() -> None:
    learner = Replaced(forgetful=True)
    _, conductor = world()
    with capture_logs() as logs:
        async with learner.listening() as port, driven(conductor, upstream(port)) as relay:
            await until(lambda: len(learner.batches) >= 5)
            found = relay.driving.learner
            assert found.discarded >= 20
            # As many as it learned from, of which the last may be under way.
            assert found.batches <= len(learner.batches)
    (told,) = (line for line in logs if line["event"] == "a batch is discarded")
    assert "the server has weights of another run" in told["reason"]
    assert set(learner.read.values()) == {1}
    assert learner.wrong == []


async def test_a_server_that_knows_nothing_of_a_batch_it_answered_gets_it_again_after_a_while() -> None:
    learner = Answering(forgetful=True)
    _, conductor = world()
    limits = type(upstream(1).limits)(pong=5.0, state=5.0, proof=0.3)
    async with learner.listening() as port, driven(conductor, upstream(port, limits=limits)) as relay:
        await until(lambda: len(learner.batches) >= 4)
        assert relay.driving.learner.discarded == 0
    assert max(learner.read.values()) == 2
    assert learner.wrong == []


# --- an episode that does not end ----------------------------------------------------------------------------------


async def test_an_episode_that_must_be_sent_whole_and_does_not_end_is_told_and_truncated_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ospbridge.daemon.relay.loop.LONGEST", 150)
    learner = TinyLearner()
    _, conductor = world(length=10**9)
    with capture_logs() as logs:
        to = {"batch_mode": BatchMode.COMPLETE_EPISODES}
        async with learner.listening() as port, driven(conductor, upstream(port, **to)):
            await until(lambda: len(learner.batches) >= 3)
    (long,) = [line for line in logs if line["event"] == "nothing is learned before an episode ends"]
    assert long["steps"] == 40
    assert "--rllink-batch-mode truncate_episodes" in long["hint"]
    cut = [line for line in logs if line["event"] == "the driver's episodes are cut"]
    assert len(cut) >= 3
    assert all("this one has 150 steps" in line["reason"] and "max_steps" in line["hint"] for line in cut)
    for (fragment,) in learner.batches:
        assert (fragment.steps, fragment.truncated, fragment.terminated) == (150, True, False)
    assert learner.wrong == []
