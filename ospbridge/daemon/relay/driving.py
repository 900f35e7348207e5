"""The driver: acts for agents with the upstream's policy, and has it learn from what that brings.

It is an attachment like any other. While it waits for weights it holds the world, for a limited time; then its
episodes are over, its agents rest, and it goes on when the upstream does.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import trio

from ospbridge.daemon.attachment import Driver
from ospbridge.daemon.relay.acting import Actors, dist_inputs_of, of_one_kind
from ospbridge.daemon.relay.settings import WhileAway
from ospbridge.daemon.relay.upstream import Learner, policy_weights
from ospbridge.errors import (
    AgentNotFound,
    AgentTaken,
    ConfigurationError,
    LocalProtocolError,
    OspBridgeError,
    SimulatorNotFound,
)
from ospbridge.observe import logs
from ospbridge.policy.acting import Policy
from ospbridge.rllink.checking import Needs, check_fragment
from ospbridge.rllink.cutting import BatchMode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Never

    from ospbridge.daemon.attachment import Attachment
    from ospbridge.daemon.conductor import Conductor
    from ospbridge.daemon.relay.link import Link
    from ospbridge.daemon.relay.settings import Upstream
    from ospbridge.daemon.relay.upstream import Wanted
    from ospbridge.rllink.fragments import EpisodeFragment
    from ospbridge.rllink.weights import Weights

__all__ = ["Driving"]

log = logs.get(__name__)
LOOK_AGAIN: Final = 0.2
"""Seconds between looks for agents that are not there yet, or taken."""
RECOVER: Final = 1.0
"""Seconds after a reset that failed."""
UNFIT: Final = 10.0
"""Seconds until weights that do not fit are asked for again."""


class Driving:
    """``run`` drives until cancelled. ``link.run`` must be running, and the conductor's."""

    def __init__(self, upstream: Upstream, conductor: Conductor, link: Link) -> None:
        self.learner = Learner(upstream, link)
        self.dropped = 0
        """Steps that could not be sent, because something of them is no number."""
        self.weights_seq_no: int | None = None
        self._upstream = upstream
        self._conductor = conductor
        self._link = link
        self._driver = Driver(f"relay {upstream}", os.getpid())
        self._said = ""
        self._pending: list[EpisodeFragment] = []
        """Lived with the weights in force, and not sent."""
        self._seed = 0 if upstream.seed is None else upstream.seed

    async def run(self) -> Never:
        """Take the agents, then reset, act and learn. Raises UsageError for agents that no one policy can drive."""
        while True:
            attachments = await self._seated()
            try:
                await self._drive(attachments)
            finally:
                self._conductor.leave(attachments)

    async def _drive(self, attachments: Sequence[Attachment]) -> None:
        """Until an agent is gone for good."""
        observation, action = of_one_kind(attachments)
        needs = Needs(
            observation_size=len(observation.low), action=action, dist_inputs_size=dist_inputs_of(action)
        )
        actors = await self._first_policy(attachments)
        while not any(attachment.held.missing for attachment in attachments):
            if await self._reset(actors):
                await self._episodes(actors, needs)

    async def _seated(self) -> list[Attachment]:
        """The agents, once they are there and free."""
        while True:
            try:
                return self._conductor.attach(self._upstream.agents or ("*",), self._driver)
            except (SimulatorNotFound, AgentNotFound, AgentTaken) as error:
                if error.message != self._said and not isinstance(error, SimulatorNotFound):
                    self._said = error.message
                    log.warning("the driver waits for its agents", reason=error.message, hint=error.hint)
            await trio.sleep(LOOK_AGAIN)

    # --- policies ----------------------------------------------------------------------------------------------------

    async def _first_policy(self, attachments: Sequence[Attachment]) -> Actors:
        observation, action = of_one_kind(attachments)
        upstream = self._upstream
        while True:
            wanted = await self.learner.needs()
            weights = await self.learner.weights()
            try:
                policy = Policy(
                    policy_weights(weights),
                    observation,
                    action,
                    activation=wanted.activation,
                    head_activation=wanted.head_activation,
                    normalize_actions=wanted.normalize_actions,
                    clip_actions=wanted.clip_actions,
                    explore=upstream.explore,
                    seed=upstream.seed,
                )
            except ConfigurationError as error:
                await self._unfit(weights, error)
                continue
            self._in_force(weights)
            return Actors(attachments, policy, weights_seq_no=weights.seq_no)

    async def _unfit(self, weights: Weights, error: OspBridgeError) -> None:
        log.error(
            "the upstream's weights cannot be used",
            upstream=str(self._link.address),
            weights_seq_no=weights.seq_no,
            reason=error.message,
            hint=error.hint,
        )
        await trio.sleep(UNFIT)

    def _in_force(self, weights: Weights) -> None:
        self.learner.in_force(weights)
        self.weights_seq_no = weights.seq_no

    # --- episodes ----------------------------------------------------------------------------------------------------

    async def _reset(self, actors: Actors) -> bool:
        """Begin new episodes; False where that failed, for now."""
        seed, self._seed = self._seed, 0
        try:
            await self._conductor.reset(actors.attachments, seed, 0)
        except OspBridgeError as error:
            log.warning("the driver's reset failed", reason=error.message, hint=error.hint)
            await trio.sleep(RECOVER)
            return False
        actors.begin()
        return True

    async def _episodes(self, actors: Actors, needs: Needs) -> None:
        """Until all of them have ended, and what is due is learned."""
        wanted = self.learner.wanted
        assert wanted is not None
        missing = wanted.env_steps - self._steps_pending
        whole = self._whole_episodes(wanted)
        while playing := actors.playing:
            try:
                await self._conductor.step(actors.moves())
            except OspBridgeError as error:
                # No step, or no policy that can decide: the episodes end here.
                log.warning("the driver's episodes are cut", reason=error.message, hint=error.hint)
                actors.cut()
                self._conductor.rest(playing, error.message)
                await trio.sleep(RECOVER)
            else:
                actors.stepped()
            if not whole and actors.steps >= missing:
                await self._learn(actors, needs)
                wanted = self.learner.wanted or wanted
                missing = wanted.env_steps - self._steps_pending
        self._keep(actors.take(), needs)
        if self._steps_pending >= wanted.env_steps:
            await self._learn(actors, needs)

    def _whole_episodes(self, wanted: Wanted) -> bool:
        connection = self._link.connected
        dialect_mode = connection.dialect.batch_mode if connection else BatchMode.COMPLETE_EPISODES
        return (wanted.batch_mode or dialect_mode) is BatchMode.COMPLETE_EPISODES

    # --- learning ----------------------------------------------------------------------------------------------------

    @property
    def _steps_pending(self) -> int:
        return sum(fragment.steps for fragment in self._pending)

    def _keep(self, fragments: Sequence[EpisodeFragment], needs: Needs) -> None:
        """What can be sent: one bad episode would end a real server's listener for good."""
        for fragment in fragments:
            try:
                check_fragment(fragment, needs)
            except LocalProtocolError as error:
                self.dropped += fragment.steps
                log.warning("an episode is not sent", steps=fragment.steps, reason=error.message)
            else:
                self._pending.append(fragment)

    async def _learn(self, actors: Actors, needs: Needs) -> None:
        """Send what was lived, and act from the weights that come of it."""
        self._keep(actors.take(), needs)
        wanted = self.learner.wanted
        assert wanted is not None
        if self._steps_pending < wanted.env_steps:
            return
        wait = self._upstream.away is WhileAway.HOLD
        batch, self._pending = self._pending, []
        weights = None
        async with trio.open_nursery() as nursery:
            with self._held(actors, nursery):
                weights = await self.learner.learn(batch, wait=wait)
                if weights is not None:
                    await self._new_weights(actors, weights)
        if weights is None:
            self._pending = batch
            self._drop_old(wanted)

    async def _new_weights(self, actors: Actors, weights: Weights) -> None:
        while True:
            try:
                actors.load(policy_weights(weights), weights_seq_no=weights.seq_no)
            except ConfigurationError as error:
                await self._unfit(weights, error)
                weights = await self.learner.weights()
            else:
                self._in_force(weights)
                return

    @contextmanager
    def _held(self, actors: Actors, nursery: trio.Nursery) -> Iterator[None]:
        """The world is held, and let go after a while: the agents rest then."""
        seconds = self._upstream.hold
        reason = f"{self._driver} waits for its upstream's weights"

        async def let_go() -> None:
            await trio.sleep(seconds)
            why = f"the upstream {self._link.address} gave no new weights within {seconds:g} s"
            log.warning("the driver's agents rest", reason=why, upstream=str(self._link.address))
            self._conductor.rest(actors.playing, why)
            actors.cut()

        nursery.start_soon(let_go)
        try:
            with self._conductor.holding(self._driver, seconds, reason):
                yield
        finally:
            nursery.cancel_scope.cancel()

    def _drop_old(self, wanted: Wanted) -> None:
        """The upstream is away, and acting goes on: keep no more than a batch or two."""
        while self._steps_pending - self._pending[0].steps >= wanted.env_steps:
            self.learner.discarded += self._pending.pop(0).steps
