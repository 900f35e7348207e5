"""One simulator of a driver: its agents are taken, reset and acted for, at the simulator's own speed.

It is lost and comes back by itself, and no other simulator waits for it meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from ospbridge.daemon.episodes import STOPPED
from ospbridge.daemon.relay.acting import Kind
from ospbridge.errors import AgentNotFound, AgentTaken, OspBridgeError, SimulatorNotFound, UsageError
from ospbridge.interface import chosen
from ospbridge.observe import logs

if TYPE_CHECKING:
    from typing import Never

    from ospbridge.daemon.attachment import Attachment
    from ospbridge.daemon.conductor import Conductor
    from ospbridge.daemon.relay.acting import Actors
    from ospbridge.daemon.relay.driving import Driving

__all__ = ["DrivingLoop"]

log = logs.get(__name__)
LOOK_AGAIN: Final = 0.2
"""Seconds between looks for agents that are not there yet, or taken."""
RECOVER: Final = 1.0
"""Seconds after a reset or a step that failed."""
UNFIT: Final = 10.0
"""Seconds until agents that the policy cannot act for are looked at again."""
LONG: Final = 2
"""Batches that an episode may be longer than, before that is told."""
LONGEST: Final = 100_000
"""Steps of an episode where only whole ones are learned from: it is truncated then."""
ENDLESS: Final = (
    "end episodes with max_steps or terminated in the scenario, or learn from parts of them: --rllink-batch-mode "
    "truncate_episodes"
)
FEW: Final = (
    "they play on when weights come; a server never answers a batch that is smaller than its own: see "
    "--rllink-env-steps, and the learner's log"
)


class DrivingLoop:
    """``run`` drives until cancelled. ``driving`` has the policy, and learns; ``seed`` is the first reset's, or 0."""

    def __init__(self, driving: Driving, conductor: Conductor, *, seed: int) -> None:
        self.conductor = conductor
        self.actors: Actors | None = None
        """Who acts for its agents, while they are taken."""
        self._driving = driving
        self._gathering = driving.gathering
        self._seed = seed
        self._said = ""
        self._told_long = False

    @property
    def present(self) -> bool:
        """It acts for agents that are all there."""
        return self.actors is not None and not any(a.held.missing for a in self.actors.attachments)

    async def run(self) -> Never:
        """Take the agents, then reset and act. Raises UsageError for agents that no one policy can drive."""
        with self.conductor.logging():
            while True:
                attachments = await self._seated()
                reason = ""
                try:
                    reason = await self._drive(attachments)
                except trio.Cancelled:
                    reason = STOPPED
                    raise
                except UsageError as error:
                    reason = error.message
                    if not self._driving.at_work:
                        raise
                    # Others learn meanwhile, and need not end with it.
                    self._tell(error, "a simulator is not driven")
                finally:
                    self.actors = None
                    self.conductor.leave(attachments, reason)
                await trio.sleep(UNFIT if self._said == reason else LOOK_AGAIN)

    async def _seated(self) -> list[Attachment]:
        """The agents, once they are there and free."""
        driving = self._driving
        while True:
            try:
                return self.conductor.attach(driving.upstream.agents or ("*",), driving.driver)
            except SimulatorNotFound:
                pass
            except (AgentNotFound, AgentTaken) as error:
                self._tell(error, "the driver waits for its agents")
            await trio.sleep(LOOK_AGAIN)

    def _tell(self, error: OspBridgeError, event: str) -> None:
        if error.message != self._said:
            self._said = error.message
            log.warning(event, reason=error.message, hint=error.hint)

    async def _drive(self, attachments: list[Attachment]) -> str:
        """Until an agent is gone for good, or others like them have come. Why it leaves them."""
        conductor = self.conductor
        held = conductor.lockstep.held
        actors = self.actors = await self._driving.actors(attachments, str(conductor.settings.simulator))
        while (
            actors is not None
            and not conductor.given_up
            and not any(attachment.held.missing for attachment in attachments)
        ):
            if conductor.lockstep.held is not held:
                # The simulator was joined again.
                held = conductor.lockstep.held
                if self._more(attachments):
                    return "more agents like it have come"
            if self._gathering.due:
                await self._pause(actors)
            if await self._reset(actors):
                await self._episodes(actors)
        return next((a.held.missing for a in attachments if a.held.missing), conductor.connection)

    def _more(self, attachments: list[Attachment]) -> bool:
        """Whether agents came that are wanted and free; and all that are wanted are of one kind."""
        own = {attachment.held for attachment in attachments}
        patterns = self._driving.upstream.agents or ("*",)
        there = self.conductor.lockstep.held
        wanted = [there[name] for name in chosen(there, patterns)]
        return (
            len(wanted) > len(own)
            and not any(held.attachments for held in wanted if held not in own)
            and len({Kind.of(held.task) for held in wanted}) == 1
        )

    async def _reset(self, actors: Actors) -> bool:
        """Begin new episodes; False where that failed, for now."""
        seed, self._seed = self._seed, 0
        try:
            await self.conductor.reset(actors.attachments, seed, 0)
        except OspBridgeError as error:
            log.warning("the driver's reset failed", reason=error.message, hint=error.hint)
            await trio.sleep(RECOVER)
            return False
        actors.begin()
        return True

    async def _episodes(self, actors: Actors) -> None:
        """Until all of them have ended."""
        gathering = self._gathering
        if gathering.due:
            await self._pause(actors)
        whole = gathering.whole
        if whole:
            gathering.begin()
        steps = 0
        try:
            while playing := actors.playing:
                if not whole and gathering.due:
                    await self._pause(actors)
                elif whole and steps >= LONGEST:
                    self._cut(
                        actors,
                        playing,
                        f"only whole episodes are learned from, and this one has {steps} steps",
                        ENDLESS,
                    )
                else:
                    await self._step(actors, playing)
                    steps += 1
                    if whole and gathering.due:
                        self._tell_long(steps)
            self._driving.keep(actors.take())
        finally:
            if whole:
                gathering.end()

    async def _step(self, actors: Actors, playing: list[Attachment]) -> None:
        gathering = self._gathering
        gathering.begin()
        try:
            await self.conductor.step(actors.moves())
        except OspBridgeError as error:
            # No step, or no policy that can decide: the episodes end here.
            failed = error
        else:
            gathering.lived(actors.stepped())
            return
        finally:
            gathering.end()
        self._cut(actors, playing, failed.message, failed.hint)
        await trio.sleep(RECOVER)

    def _cut(self, actors: Actors, playing: list[Attachment], why: str, hint: str) -> None:
        log.warning("the driver's episodes are cut", reason=why, hint=hint)
        actors.cut()
        self.conductor.rest(playing, why)

    def _tell_long(self, steps: int) -> None:
        """A batch is due, and waits for the end of an episode of so many steps."""
        wanted = self._driving.learner.wanted
        assert wanted is not None
        if not self._told_long and steps >= LONG * wanted.env_steps:
            self._told_long = True
            log.warning("nothing is learned before an episode ends", steps=steps, hint=ENDLESS)

    async def _pause(self, actors: Actors) -> None:
        """A batch is learned from: the world is held, and let go after a while; the agents rest then."""
        driving = self._driving
        seconds = driving.upstream.hold
        with self.conductor.holding(driving.driver, seconds, f"{driving.driver} waits for weights"):
            with trio.move_on_after(seconds) as held:
                await self._gathering.resumed()
            if held.cancelled_caught:
                why = driving.why_no_weights
                log.warning("the driver's agents rest", reason=why, hint=FEW)
                self.conductor.rest(actors.playing, why)
                actors.cut()
                await self._gathering.resumed()
