"""The driver: acts for agents with the upstream's policy, and has it learn from what that brings.

It has one policy and one connection, and a loop for each simulator, at that simulator's own speed: one that is lost
comes back by itself, and no other waits for it. To a simulator the driver is an attachment like any other.
While it waits for weights it holds the worlds, for a limited time; then its episodes are over, its agents rest, and it
goes on when the upstream does.

What the loops live through is counted together, and learned from together. A loop is *busy* while nothing may be taken
from it: for a step, or, where only whole episodes are learned from, for an episode. Once enough was lived for a batch
it is due: no loop begins anything more, learning starts when the last of them is not busy, and all go on when it is
done. So no batch ever holds a step of other weights than the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import trio

from ospbridge.daemon.attachment import Driver
from ospbridge.daemon.episodes import STOPPED
from ospbridge.daemon.relay.actors import Actors
from ospbridge.daemon.relay.compatibility import (
    Kind,
    actions_of,
    described,
    kind_of,
    other_bounds,
    require_same_actions,
    tell_numbers,
)
from ospbridge.daemon.relay.learner import Learner
from ospbridge.daemon.relay.link import WhileAway, run_apart
from ospbridge.errors import (
    AgentNotFound,
    AgentTaken,
    ConfigurationError,
    LocalProtocolError,
    OspBridgeError,
    SimulatorNotFound,
    UsageError,
)
from ospbridge.interface import LARGEST_SEED, BoxSpace, chosen
from ospbridge.observe import logs
from ospbridge.observe.sparing import SparingMore
from ospbridge.policy.acting import Policy
from ospbridge.policy.describing import LONGEST_TOLD, Description
from ospbridge.policy.rlmodule import read_architecture
from ospbridge.rllink.batches import BatchMode, check_fragment
from ospbridge.rllink.messages import ModuleWeights
from ospbridge.text import listed, printable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Never

    from ospbridge.daemon.attachment import Attachment
    from ospbridge.daemon.conductor import Conductor
    from ospbridge.daemon.relay.learner import Making, Wanted
    from ospbridge.daemon.relay.link import Link, Upstream
    from ospbridge.rllink.messages import EpisodeFragment, Weights

__all__ = ["Driving", "DrivingLoop", "Gathering"]

log = logs.get(__name__)
LOOK_AGAIN: Final = 0.2
"""Seconds between looks for agents that are not there yet, or taken."""
RECOVER: Final = 1.0
"""Seconds after a reset or a step that failed."""
UNFIT_AGENTS: Final = 10.0
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
OTHERWISE: Final = (
    "use RLlib's own PPO module with the activations that it says; normalize and stack observations in the scenario "
    "(normalize, frame_stack) instead of by connectors; or let RLlib's own env runners attach to the hub; or say "
    "--rllink-play-anyway"
)
UNFIT: Final = 10.0
"""Seconds until weights that do not fit are asked for again."""


class Gathering:
    """The loops call ``begin``, ``lived`` and ``end``, whoever learns ``gathered`` and ``go_on``."""

    __slots__ = ("_busy", "_learner", "_loops", "_missing", "due", "whole")

    def __init__(self) -> None:
        self.due = False
        """A batch is to be learned from: begin nothing, and wait until that ``resumed``."""
        self.whole = False
        """Only whole episodes are learned from."""
        self._missing = 0
        self._busy = 0
        self._learner = trio.lowlevel.ParkingLot()
        self._loops = trio.lowlevel.ParkingLot()

    @property
    def busy(self) -> bool:
        """Some loop is."""
        return self._busy > 0

    # --- the loops' side ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A loop is busy from now on. May be called again before ``end``, which must then be called as often."""
        self._busy += 1

    def lived(self, steps: int) -> None:
        """So many steps more."""
        self._missing -= steps
        if self._missing <= 0:
            self.due = True

    def end(self) -> None:
        """It is not busy any more."""
        self._busy -= 1
        if self.due and not self._busy:
            self._learner.unpark_all()

    async def resumed(self) -> None:
        """Wait while a batch is due."""
        while self.due:
            await self._loops.park()

    # --- the learner's side ------------------------------------------------------------------------------------------

    async def gathered(self) -> None:
        """Wait until a batch is due and no loop is busy."""
        while self._busy or not self.due:
            await self._learner.park()

    def go_on(self, missing: int, *, whole: bool) -> None:
        """Let the loops go on: the next batch is due after ``missing`` steps."""
        self._missing = missing
        self.whole = whole
        self.due = False
        self._loops.unpark_all()


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
                await trio.sleep(UNFIT_AGENTS if self._said == reason else LOOK_AGAIN)

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
            and not conductor.supervisor.connection.given_up
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
        return next(
            (a.held.missing for a in attachments if a.held.missing), conductor.supervisor.connection.text
        )

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


@dataclass(slots=True)
class _Acting:
    """What acts now for all agents."""

    kind: Kind
    policy: Policy
    making: Making
    """What the policy was made with beside weights."""
    outdated: bool = False
    """It fits neither the agents that are there nor the server's weights."""


class Driving:
    """``run`` drives until cancelled. ``link.run`` must be running, and the conductors'."""

    def __init__(self, upstream: Upstream, conductors: Sequence[Conductor], link: Link) -> None:
        self.upstream = upstream
        # With a process of its own it would share agents with the daemon's other drivers.
        self.driver = Driver(f"relay {upstream}", 0)
        self.learner = Learner(upstream, link)
        self.gathering = Gathering()
        self.weights_seq_no: int | None = None
        self.trouble = ""
        """Why the weights that the upstream has do not act; empty where they do, or none came yet."""
        self._unfit = SparingMore()
        self._link = link
        self._loops = [
            DrivingLoop(self, conductor, seed=self._seed(at)) for at, conductor in enumerate(conductors)
        ]
        self._pending: list[EpisodeFragment] = []
        """Lived with the weights in force, and not sent."""
        self._random = np.random.default_rng(upstream.seed)
        """What actions are drawn with."""
        self._acting: _Acting | None = None
        self._told: Description | None = None
        """What the latest weights tell."""
        self._making = trio.Lock()
        self._dialect_mode = BatchMode.COMPLETE_EPISODES
        """Of the latest connection."""

    def _seed(self, at: int) -> int:
        """Of a simulator's first reset: another one for each, or equal simulators would live equal episodes."""
        seed = self.upstream.seed
        return 0 if seed is None else (seed - 1 + at) % LARGEST_SEED + 1

    @property
    def at_work(self) -> bool:
        """Something has been learned from."""
        return self.learner.batches > 0

    @property
    def why_no_weights(self) -> str:
        """Why the worlds were held for too long."""
        within = f"within {self.upstream.hold:g} s"
        if self.gathering.busy:
            return f"another simulator did not finish what belongs to the batch {within}"
        return f"the upstream {self._link.address} gave no new weights {within}"

    async def run(self) -> Never:
        """Act and learn. Raises UsageError for agents that no one policy can drive."""
        async with trio.open_nursery() as nursery:
            for loop in self._loops:
                nursery.start_soon(loop.run)
            while True:
                await self.gathering.gathered()
                await self._learn()

    # --- policies ----------------------------------------------------------------------------------------------------

    async def actors(self, attachments: Sequence[Attachment], simulator: str) -> Actors | None:
        """Who act for these of ``simulator``, with the one policy; waits for weights that fit.

        None where an agent goes missing. Raises UsageError where one policy cannot act for them all, or not for those
        of other simulators too.
        """
        kind = kind_of(attachments)
        while not await self._has_policy(kind, attachments):
            if not _missing(attachments):
                await trio.sleep(UNFIT)
            if _missing(attachments):
                return None
        acting = self._acting
        assert acting is not None
        if kind != acting.kind:
            raise UsageError(
                "one policy cannot act for agents of several kinds: "
                f"{listed(a.name for a in attachments)}: {kind.beside(acting.kind)}; those of other simulators: "
                f"{acting.kind.beside(kind)}",
                hint="choose agents of one kind, or give each simulator an [[rllink]] of its own",
            )
        assert self.weights_seq_no is not None
        return Actors(
            attachments, acting.policy, kind, weights_seq_no=self.weights_seq_no, simulator=simulator
        )

    async def _has_policy(self, kind: Kind, attachments: Sequence[Attachment]) -> bool:
        """Make the policy, if there is none, or this kind may have another one. False where no weights fit it now."""
        async with self._making:
            # Nobody begins to act in the midst of learning: what comes of that replaces the policy.
            await self.gathering.resumed()
            alone = not any(loop.actors for loop in self._loops)
            if self._acting and not self._acting.outdated and (kind == self._acting.kind or not alone):
                return True
            weights = await self.learner.weights()
            if _missing(attachments):
                # It took long, and whoever has come in their place may be what these weights are for.
                return False
            first = self._acting is None
            try:
                await self._make(kind, weights)
            except ConfigurationError as error:
                self._tell_unfit(weights, error)
                return False
            self.learner.discarded += self._steps_pending
            self._pending.clear()
            if first:
                self._tell_assumed(kind, weights)
                self._tell_bounds(kind)
                self._tell_numbers(kind)
            await self._in_force(weights)
            self._go_on()
            return True

    async def _make(self, kind: Kind, weights: Weights) -> None:
        """Another policy, as the server makes it of these. Raises ConfigurationError where it does not fit."""
        wanted = self.learner.wanted
        making = wanted.making
        if making.otherwise:
            raise ConfigurationError(
                f"the server's own policy would act otherwise than what is made of its weights here: "
                f"{making.otherwise}",
                hint=OTHERWISE,
            )
        make = partial(
            Policy,
            weights.policy,
            kind.observation,
            kind.action,
            activation=making.activation,
            head_activation=making.head_activation,
            normalize_actions=making.normalize_actions,
            clip_actions=making.clip_actions,
            explore=self.upstream.explore,
            seed=self._random,
            most_work=self.upstream.most_work,
        )
        policy = await run_apart(_work(weights), make)
        await self._require_same_actions(kind, wanted, weights)
        self._acting = _Acting(kind, policy, making)

    async def _require_same_actions(self, kind: Kind, wanted: Wanted, weights: Weights) -> None:
        """Raises ConfigurationError where the server learns for others than these agents have."""
        self._told = await run_apart(_work(weights), partial(described, weights.policy, named=wanted.named))
        require_same_actions(kind, wanted.making.spaces, self._told)

    def _tell_assumed(self, kind: Kind, weights: Weights) -> None:
        """What nobody said, where it matters to these agents and weights."""
        wanted = self.learner.wanted
        making = wanted.making
        assumed: dict[str, object] = {}
        if "env_steps" in wanted.assumed:
            assumed["env_steps"] = wanted.env_steps
        if "activation" in wanted.assumed:
            assumed["activation"] = making.activation
        deep = isinstance(weights, ModuleWeights) and len(read_architecture(weights.arrays).head) > 1
        if "head_activation" in wanted.assumed and deep:
            assumed["head_activation"] = making.head_activation
        if "normalize_actions" in wanted.assumed and kind.stretched:
            assumed["normalize_actions"] = making.normalize_actions
        if "actions" in wanted.assumed and self._told is not None and len(self._told.actions) > 1:
            assumed["actions"] = actions_of(kind.action)
        if "module" in wanted.assumed:
            assumed["module"] = "RLlib's own of PPO"
        if "connectors" in wanted.assumed:
            assumed["connectors"] = "none"
        if assumed:
            log.warning(
                "the upstream does not tell all that a driver must know, RLlib's defaults are assumed",
                upstream=str(self._link.address),
                **assumed,
                hint="say them, as with --rllink-env-steps and --rllink-activation; where the server sends a pickle, "
                "let it be read, which alone tells its action space, its module and its connectors",
            )

    def _tell_bounds(self, kind: Kind) -> None:
        """That the server's settings have other bounds: a policy that is stretched to ours acts otherwise elsewhere."""
        wanted = self.learner.wanted
        making = wanted.making
        other = other_bounds(kind, making.spaces)
        if other and (making.normalize_actions or making.clip_actions):
            log.warning(
                "the upstream's actions have other bounds",
                upstream=str(self._link.address),
                reason=other,
                hint="the agents' count here; give the server their action space, so that the policy means the same "
                "wherever it acts",
            )

    def _tell_numbers(self, kind: Kind) -> None:
        """That these agents' actions may end a server of RLlib's, if it is an old one."""
        wanted, connection = self.learner.wanted, self._link.connected
        if isinstance(kind.action, BoxSpace) and connection is not None and not wanted.named:
            tell_numbers(str(self._link.address), connection.dialect, actions_of(kind.action))

    def _tell_unfit(self, weights: Weights, error: ConfigurationError) -> None:
        reason = printable(error.message, LONGEST_TOLD)
        self.trouble = f"its weights cannot be used: {reason}"
        if self._unfit.due(reason):
            log.error(
                "the upstream's weights cannot be used",
                upstream=str(self._link.address),
                weights_seq_no=weights.seq_no,
                reason=reason,
                hint=error.hint,
            )

    async def _in_force(self, weights: Weights) -> None:
        assert self._acting is not None
        await self.learner.in_force(weights, self._acting.making)
        self.weights_seq_no = weights.seq_no
        self.trouble = ""
        self._unfit = SparingMore()

    # --- learning ----------------------------------------------------------------------------------------------------

    @property
    def _steps_pending(self) -> int:
        return sum(fragment.steps for fragment in self._pending)

    def keep(self, fragments: Sequence[EpisodeFragment]) -> None:
        """What can be sent: one bad episode would end a real server's listener for good."""
        assert self._acting is not None
        for fragment in fragments:
            try:
                check_fragment(fragment, self._acting.kind.needs)
            except LocalProtocolError as error:
                self.learner.discarded += fragment.steps
                log.warning("an episode is not sent", steps=fragment.steps, reason=error.message)
            else:
                self._pending.append(fragment)

    async def _learn(self) -> None:
        """Send what was lived, and act from the weights that come of it."""
        for loop in self._loops:
            if loop.actors is not None:
                self.keep(loop.actors.take())
        wanted = self.learner.wanted
        if self._steps_pending >= wanted.env_steps:
            batch, self._pending = self._pending, []
            weights = await self.learner.learn(batch, wait=not self._acts_on)
            if weights is not None:
                await self._new_weights(weights)
            else:
                wanted = self.learner.wanted
                self._pending = batch
                self._drop_old(wanted)
                missing = wanted.env_steps - self._steps_pending
                # Where nothing is missing, it is no use to look again with each step.
                self.gathering.go_on(missing if missing > 0 else wanted.env_steps, whole=self._whole(wanted))
                return
        self._go_on()

    async def _new_weights(self, weights: Weights) -> None:
        while True:
            try:
                await self._load(weights)
            except ConfigurationError as error:
                self._tell_unfit(weights, error)
            else:
                await self._in_force(weights)
                return
            await trio.sleep(UNFIT)
            if not any(loop.present for loop in self._loops):
                # Agents and server may both have been replaced: who attaches next has a policy made anew.
                assert self._acting is not None
                self._acting.outdated = True
                return
            learner = self.learner
            others = await (learner.weights_at_once() if self._acts_on else learner.weights())
            if others is None:
                # Away: whoever comes back has other weights, and learns nothing from what is lived until then.
                return
            weights = others

    @property
    def _acts_on(self) -> bool:
        """The worlds do not wait for an upstream that is away."""
        return self.upstream.away is WhileAway.CONTINUE

    async def _load(self, weights: Weights) -> None:
        """Act from these from now on. Raises ConfigurationError for weights that do not fit; others stay in force."""
        acting = self._acting
        assert acting is not None
        wanted = self.learner.wanted
        if wanted.making != acting.making:
            await self._make(acting.kind, weights)
        else:
            await self._require_same_actions(acting.kind, wanted, weights)
            await run_apart(_work(weights), acting.policy.load, weights.policy)
        everybody = [loop.actors for loop in self._loops if loop.actors is not None]
        assert not any(actors.steps for actors in everybody), "new weights came in the middle of a batch"
        assert self._acting is not None
        for actors in everybody:
            actors.act_from(self._acting.policy, weights.seq_no)

    def _go_on(self) -> None:
        wanted = self.learner.wanted
        self.gathering.go_on(wanted.env_steps - self._steps_pending, whole=self._whole(wanted))

    def _whole(self, wanted: Wanted) -> bool:
        """Whether only whole episodes are learned from."""
        connection = self._link.connected
        if connection is not None:
            self._dialect_mode = connection.dialect.batch_mode
        return (wanted.batch_mode or self._dialect_mode) is BatchMode.COMPLETE_EPISODES

    def _drop_old(self, wanted: Wanted) -> None:
        """The upstream is away, and acting goes on: keep no more than a batch or two."""
        while self._steps_pending - self._pending[0].steps >= wanted.env_steps:
            self.learner.discarded += self._pending.pop(0).steps


def _work(weights: Weights) -> float:
    """Bytes that a policy is made from; a few of a model's may stand for any work."""
    return (
        sum(array.nbytes for array in weights.arrays.values())
        if isinstance(weights, ModuleWeights)
        else math.inf
    )


def _missing(attachments: Sequence[Attachment]) -> bool:
    """Whether one of these agents is gone for good."""
    return any(attachment.held.missing for attachment in attachments)
