"""A learner that is lost and comes back: what it did not read is sent again, what it read is not."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import trio

from ospbridge.errors import SessionLost
from ospbridge.rllink.fragments import EpisodeFragment
from ospbridge.rllink.messages import SetConfig
from ospbridge.rllink.server import ServerMachine
from ospbridge.rllink.weights import ModuleWeights
from tests.daemon.relay.driving import driven, until, upstream, world
from tests.daemon.relay.learner import TinyLearner

pytestmark = [pytest.mark.loopback, pytest.mark.trio]


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

    async def _answer(self, machine: ServerMachine, *_: Any) -> bool:
        if self.read and not self.left:
            self.left = True
            return False
        machine.send_state(self._sent())
        return True


class Restored(TinyLearner):
    """Starts anew where it hangs up, and restores its checkpoint right after it was asked for weights."""

    def __init__(self) -> None:
        super().__init__()
        self.forgets = True
        self._checkpoint: tuple[dict[str, Any], int] | None = None

    def forget(self) -> None:
        self._checkpoint = self.weights, self.seq_no
        super().forget()

    def _sent(self) -> ModuleWeights:
        sent = super()._sent()
        if self._checkpoint is not None:
            (self.weights, self.seq_no), self._checkpoint = self._checkpoint, None
        return sent


async def test_what_was_proven_to_be_read_is_not_sent_again_where_weights_are_lost_behind_it() -> None:
    learner = Recorder()
    _, conductor = world()
    async with learner.listening() as port, driven(conductor, upstream(port)) as relay:
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
    monkeypatch.setattr("ospbridge.daemon.relay.upstream.LARGEST_TAKEN", learner.largest)
    _, conductor = world()
    async with learner.listening() as port, driven(conductor, upstream(port, env_steps=70)):
        await until(lambda: len(learner.read) >= 20)
    assert learner.connections == 1


async def test_a_learner_that_is_restored_from_a_checkpoint_and_goes_on_from_its_number_is_learned_from() -> (
    None
):
    learner = TinyLearner()
    _, conductor = world()
    async with learner.listening() as port, driven(conductor, upstream(port)) as relay:
        await until(lambda: len(learner.batches) >= 6)
        learner.seq_no -= 4
        await until(lambda: len(learner.batches) >= 16)
        assert relay.driving.learner.discarded == 0
    assert learner.connections == 1
    assert learner.wrong == []


async def test_a_learner_that_restores_its_checkpoint_after_it_was_asked_learns_nothing_of_its_first_weights() -> (
    None
):
    learner = Restored()
    learner.hang_up_in = [4]
    _, conductor = world()
    async with learner.listening() as port, driven(conductor, upstream(port)) as relay:
        await until(lambda: len(learner.batches) >= 8)
        assert relay.driving.learner.discarded == 2 * learner.batch
    assert learner.wrong == []


class Thoughtful(TinyLearner):
    """Learns for a while, the first time, and notes what becomes of a connection that was left meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.thinks = 0.6
        self.learning = trio.Event()
        self.found: list[str] = []

    async def _answer(self, machine: ServerMachine, *asked: Any) -> bool:
        event, stream, _ = asked
        if event.learned and not self.learning.is_set():
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
        return await super()._answer(machine, *asked)


async def test_a_learner_that_is_left_while_it_learns_is_not_reset_over_its_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("LEARN_SOON", "LEARN_WITHIN", "LEAVE_WITHIN"):
        monkeypatch.setattr(f"ospbridge.daemon.relay.link.{name}", 0.05)
    learner = Thoughtful()
    _, conductor = world()
    async with learner.listening() as port, driven(conductor, upstream(port)) as relay:
        await learner.learning.wait()
        assert relay.link.connected is not None
        relay.link.drop(relay.link.connected, SessionLost("for a test"))
        await until(lambda: learner.found)
        done = len(learner.batches)
        await until(lambda: len(learner.batches) > done + 1)
    assert learner.found == ["in peace"]
