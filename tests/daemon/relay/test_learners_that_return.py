"""A learner that is lost and comes back, or changes: what it did not read is sent again, what it read is not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import trio

from ospbridge.errors import SessionLost
from ospbridge.rllink.connecting import Limits
from ospbridge.rllink.messages import EpisodeFragment, ModuleWeights, SetConfig
from tests.daemon.relay.driving import until
from tests.daemon.relay.learner import TOLD, TinyLearner, Told, driving
from tests.daemon.stage import Logs

pytestmark = [pytest.mark.loopback, pytest.mark.trio]


def hanging_up(*rounds: int) -> TinyLearner:
    learner = TinyLearner()
    learner.hang_up_in = list(rounds)
    return learner


def stale(*rounds: int) -> TinyLearner:
    learner = TinyLearner()
    learner.stale = list(rounds)
    return learner


class Restored(TinyLearner):
    """Is restored from a checkpoint behind its sixth batch, and goes on from its lower number."""

    async def _answer(self, machine: Any, event: Any, *rest: Any) -> bool:
        if len(self.batches) == 6:
            self.seq_no = 2
        return await super()._answer(machine, event, *rest)


class RestoredLate(TinyLearner):
    """Starts anew over its fifth batch, and restores its checkpoint right after it was asked for weights."""

    def __init__(self) -> None:
        super().__init__()
        self.hang_up_in, self.forgets = [4], True
        self._checkpoint: tuple[dict[str, Any], int] | None = None

    def forget(self) -> None:
        self._checkpoint = self.weights, self.seq_no
        super().forget()

    def _sent(self) -> ModuleWeights:
        sent = super()._sent()
        if self._checkpoint is not None:
            (self.weights, self.seq_no), self._checkpoint = self._checkpoint, None
        return sent


class Configured(Told):
    """Makes another thing of the same weights when it starts again."""

    def __init__(self) -> None:
        super().__init__()
        self.hang_up_in, self.forgets = [3], True

    def forget(self) -> None:
        self.activation = "relu"


class Starting(TinyLearner):
    """Replaces its weights behind the first question for them, and their number stays: as Ray's servers do in setup."""

    replaced = False

    async def _answer(self, machine: Any, event: Any, *rest: Any) -> bool:
        answered = await super()._answer(machine, event, *rest)
        if not event.learned and self.connections == 1 and not self.replaced:
            self.replaced = True
            self.weights = self._drawn()
        return answered


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


@pytest.mark.parametrize(
    "make, discarded, connections",
    [
        (lambda: stale(1, 2, 5), 0, 1),
        (lambda: hanging_up(2), 0, 2),
        (Restored, 0, 1),
        (RestoredLate, 40, 2),
        (Configured, 20, 2),
        (Starting, 20, 1),
        (Pushing, 20, 1),
    ],
    ids=[
        "it answers with old weights first",
        "its answer is lost",
        "it is restored from a checkpoint",
        "it restores its checkpoint after it was asked",
        "it returns with another activation",
        "it replaces its weights under the same number as it starts",
        "it pushes other weights",
    ],
)
async def test_each_batch_that_is_learned_from_comes_from_the_weights_before_it_and_no_other_is_sent_again(
    make: Callable[[], TinyLearner], discarded: int, connections: int
) -> None:
    learner = make()
    async with driving(learner, **(TOLD if isinstance(learner, Told) else {})) as relay:
        await learner.learned(16)
        found = relay.driving.learner.discarded
        assert found == discarded if discarded != 20 else found >= discarded
    assert learner.connections == connections


class Answering(TinyLearner):
    """Answers its third batch at once with the old weights, and leaves while it learns from it."""

    def __init__(self, *, forgetful: bool = False, replaced: bool = False) -> None:
        super().__init__()
        self.read: Counter[tuple[str, int]] = Counter()
        self.asked = 0
        self.forgetful = forgetful
        """It is started anew then, and has read nothing."""
        self.replaced = replaced
        """Another run answers behind it, which has other weights and numbers them anew."""

    async def _answer(self, machine: Any, event: Any, stream: trio.SocketStream, batch: Any) -> bool:
        if self.connections == 2 and self.replaced:
            self.replaced = False
            self.forget()
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


@pytest.mark.parametrize(
    "learner, proof, discards, read",
    [
        ({}, 5.0, False, 1),
        ({"forgetful": True, "replaced": True}, 5.0, True, 1),
        ({"forgetful": True}, 0.3, False, 2),
    ],
    ids=["not sent again", "of another run, which discards it", "of a server that forgot it, sent again"],
)
async def test_a_batch_that_was_answered_with_old_weights_over_the_next_connection(
    learner: dict[str, bool], proof: float, discards: bool, read: int, logs: Logs
) -> None:
    found = Answering(**learner)
    async with driving(found, limits=Limits(pong=5.0, state=5.0, proof=proof)) as relay:
        await found.learned(6)
        assert (relay.driving.learner.discarded >= 20) is discards
    reasons = [line["reason"] for line in logs if line["event"] == "a batch is discarded"]
    assert len(reasons) == discards
    assert all("the server has weights of another run" in reason for reason in reasons)
    assert max(found.read.values()) == read


class Recorder(TinyLearner):
    """Takes what comes and has no answer for it; leaves once, over the question that follows the first experience."""

    def __init__(self) -> None:
        super().__init__()
        self.read: Counter[tuple[str, int]] = Counter()
        """How often each piece of an episode came."""
        self.left = False

    def _config(self) -> SetConfig:
        return SetConfig(env_steps_per_sample=self.batch, force_on_policy=False)

    def _check(self, fragments: tuple[EpisodeFragment, ...]) -> None:
        self.read.update((fragment.id, fragment.t_started) for fragment in fragments)

    async def _answer(self, machine: Any, *_: Any) -> bool:
        if self.read and not self.left:
            self.left = True
            return False
        machine.send_state(self._sent())
        return True


async def test_what_was_proven_to_be_read_is_not_sent_again_where_weights_are_lost_behind_it() -> None:
    learner = Recorder()
    async with driving(learner) as relay:
        await until(lambda: len(learner.read) >= 12)
        assert relay.driving.learner.discarded == 0
    assert learner.left
    assert learner.connections == 2
    assert set(learner.read.values()) == {1}


async def test_a_batch_is_sent_in_messages_that_servers_like_ours_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner = Recorder()
    learner.left, learner.largest, learner.batch = True, 6000, 70
    monkeypatch.setattr("ospbridge.daemon.relay.learner.LARGEST_TAKEN", learner.largest)
    async with driving(learner, env_steps=70):
        await until(lambda: len(learner.read) >= 20)
    assert learner.connections == 1


class Thoughtful(TinyLearner):
    """Learns for a while, the first time, and notes what becomes of a connection that was left meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.thinks = 0.6
        self.learning = trio.Event()
        self.found: list[str] = []

    async def _answer(self, machine: Any, *asked: Any) -> bool:
        event, stream, _ = asked
        if not event.learned or self.learning.is_set():
            return await super()._answer(machine, *asked)
        self.learning.set()
        answered = await super()._answer(machine, *asked)
        self.thinks = 0.0
        try:
            # As a message that is too long for the kernel to take at once.
            written = b"".join(machine.data_to_send())
            for part in (written[:100], written[100:]):
                await stream.send_all(part)
                await trio.sleep(0.05)
            with trio.move_on_after(0.3):
                await stream.receive_some(1)
            self.found.append("in peace")
        except trio.BrokenResourceError:
            self.found.append("reset")
        return answered


async def test_a_learner_that_is_left_while_it_learns_is_not_reset_over_its_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("LEARN_SOON", "LEARN_WITHIN", "LEAVE_WITHIN"):
        monkeypatch.setattr(f"ospbridge.daemon.relay.link.{name}", 0.05)
    learner = Thoughtful()
    async with driving(learner) as relay:
        await learner.learning.wait()
        assert relay.link.connected is not None
        relay.link.drop(relay.link.connected, SessionLost("for a test"))
        await until(lambda: learner.found)
        await learner.learns(2)
    assert learner.found == ["in peace"]
