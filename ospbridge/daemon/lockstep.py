"""Who steps with whom: the attachments of one simulator's agents, their barrier and their resets. No I/O, no clock.

All agents of a session step and reset together, because the protocol is so. A step is due when every playing
attachment has acted; agents that nobody plays rest at their neutral inputs. A reset is due when nobody plays and
somebody waits for it. Attachments whose episode has just ended are given a moment to ask too, so that processes whose
episodes end together also begin together; who holds the world then is given the time for which it may.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from ospbridge.daemon.attachment import Attachment, Driver, HeldAgent, State
from ospbridge.daemon.awaited_reset import AwaitedReset
from ospbridge.daemon.choosing import OUT_OF_REACH, choose
from ospbridge.daemon.holding import Holds
from ospbridge.errors import OspBridgeError, SessionLost, TaskError
from ospbridge.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from ospbridge.interface import Match, StepOutcome
    from ospbridge.task.base import Task

__all__ = ["LockStep", "ResetPolicy"]


class ResetPolicy(StrEnum):
    """What the end of one agent's episode means for the others."""

    ALL = "all"
    """It rests until all episodes are over."""
    ANY = "any"
    """The others are truncated, and all reset together."""


class LockStep:
    """``on_episode(attachment, how, reason)`` is called for each episode that ends."""

    def __init__(
        self,
        *,
        policy: ResetPolicy = ResetPolicy.ALL,
        quorum: int = 1,
        holds: Holds | None = None,
        on_episode: Callable[[Attachment, str, str], None] = lambda *_: None,
    ) -> None:
        self.policy = policy
        self.quorum = quorum
        self.held: dict[str, HeldAgent] = {}
        self.attachments: list[Attachment] = []
        self.playing: list[Attachment] = []
        self.missing = 0
        """How many of those who play have not acted."""
        self.action_repeat = 1
        """Steps of the simulator for one action: the same for all, because all step together."""
        self.actions: dict[str, NDArray[np.float32] | bytes] = {}
        """Inputs of the step to come, of every agent of the session; as ``StepRequest.fill`` takes them."""
        self.seed = 0
        """What the simulator was given at the last reset."""
        self.begun = False
        """A reset has run: the quorum has been met."""
        self.doubt = ""
        """Why episodes cannot be trusted that the reset to come ends; empty where nothing is known against them."""
        self.next_reset = AwaitedReset(holds if holds is not None else Holds())
        self._on_episode = on_episode

    # --- agents ----------------------------------------------------------------------------------------------------

    def take_agents(self, tasks: Sequence[Task], foreign: Collection[str] = ()) -> list[str]:
        """The session controls these tasks' agents from now on. Attachments to agents that came back alike stay.

        Who waits for a reset of an agent that did not gets SessionLost. Returns those that it does not control any
        more: the simulator has them not, or, if ``foreign``, another client has them.
        """
        before, self.held = self.held, {}
        self.actions = {}
        for task in tasks:
            interface = task.agent
            held = before.get(interface.name)
            if held is None or held.task.bounded != task.bounded or not held.interface.like(interface):
                held = HeldAgent(interface, task)
            self.held[interface.name] = held
            self.actions[interface.name] = held.task.neutral
        for name, held in before.items():
            if name in foreign:
                held.missing = f"agent {name!r} is another client's since the simulator was joined again"
                held.remedy = OUT_OF_REACH
            elif name not in self.held:
                held.missing = f"agent {name!r} is gone since the simulator was joined again"
            elif held is not self.held[name]:
                held.missing = (
                    f"agent {name!r} came back with another interface when the simulator was joined again"
                )
        for attachment in self.waiting:
            if attachment.held.missing:
                attachment.error = SessionLost(attachment.held.missing, hint=attachment.held.remedy)
                attachment.state = State.ATTACHED
        return sorted(before.keys() - self.held.keys())

    def attach(
        self,
        patterns: Sequence[str],
        driver: Driver,
        meant: Sequence[Match] = (),
        foreign: Collection[str] = (),
    ) -> list[Attachment]:
        """One attachment for each agent that fits; all or none. Raises AgentNotFound, AgentTaken, UsageError."""
        attachments = [
            Attachment(held, driver) for held in choose(self.held, patterns, driver, meant, foreign)
        ]
        for attachment in attachments:
            attachment.held.attachments.append(attachment)
        self.attachments += attachments
        return attachments

    def leave(self, attachment: Attachment, now: float, reason: str = "") -> None:
        """It gives its agent back; the others never wait for it. ``reason``: why, where that was not its own wish."""
        if attachment.gone:
            return
        if attachment.state is State.PLAYING:
            self._forgo(attachment)
            self._end(attachment, now, "detached", reason)
        attachment.state = State.ATTACHED
        attachment.gone = True
        attachment.cut = ""
        self.next_reset.forget(attachment)
        self.attachments.remove(attachment)
        attachment.held.attachments.remove(attachment)
        if attachment.held.driver is attachment:
            attachment.held.driver = None

    # --- steps -----------------------------------------------------------------------------------------------------

    @property
    def step_due(self) -> bool:
        """Somebody plays, and everybody who plays has acted."""
        return not self.missing and bool(self.playing)

    def act_one(self, attachment: Attachment, inputs: NDArray[np.float32] | bytes) -> None:
        """Its inputs for the step to come."""
        attachment.acted = True
        attachment.feedback = None
        self.actions[attachment.name] = inputs
        self.missing -= 1

    def act(self, attachments: Sequence[Attachment], given: Sequence[NDArray[np.float32] | bytes]) -> None:
        """The same for several."""
        actions = self.actions
        for attachment, inputs in zip(attachments, given, strict=True):
            attachment.acted = True
            attachment.feedback = None
            actions[attachment.name] = inputs
        self.missing -= len(attachments)

    def repeating(self) -> None:
        """Several steps are to come for one action: what the first ones bring is told with the last one, or never."""
        for attachment in self.playing:
            attachment.told = attachment.observation

    def stepped(self, outcomes: Mapping[str, StepOutcome], *, repeats: int = 0) -> bool:
        """A step ran, the ``repeats``-th repetition of an action. True where it ended an episode.

        Rewards of repetitions add up. ``counted`` and ``acted`` close the action.
        """
        ended = False
        for attachment in self.playing:
            outcome = outcomes[attachment.name]
            task = attachment.held.task
            attachment.unmoved = False
            try:
                feedback = task.evaluate(outcome, seed=self.seed)
            except TaskError as error:
                # One agent's expression fails: its episode is over, and nobody else's.
                attachment.unmoved = True
                feedback = task.cut(attachment.observation.copy(), error.message, seed=self.seed)
            attachment.reward += feedback.reward
            if repeats and attachment.feedback is not None:
                feedback.reward += attachment.feedback.reward
            attachment.feedback = feedback
            attachment.infos = outcome.infos
            attachment.observation = feedback.observation
            ended = ended or feedback.terminated or feedback.truncated
        return ended

    def cut_actions(self, missing: int) -> None:
        """An episode ended ``missing`` steps before the end of an action: the others' actions end there as well."""
        if not missing:
            return
        for attachment in self.playing:
            if attachment.feedback is not None and not attachment.feedback.over:
                attachment.feedback.truncated = attachment.held.task.cut_action(missing)

    def acted(self) -> None:
        """The actions of all who play are done, and what they brought can be told: their next ones are missing."""
        for attachment in self.playing:
            attachment.steps += 1
            attachment.acted = False
            attachment.told = None
        self.missing = len(self.playing)

    def end_episodes(self, now: float, *, reason: str = "") -> None:
        """Close the episodes that the last step ended; with ``reason`` all of them, truncated."""
        # Nobody's, where those whose episodes ended have left since.
        first = next((a.name for a in self.playing if a.feedback is not None and a.feedback.over), "")
        if first and not reason and self.policy is ResetPolicy.ANY:
            others = f"the episode of agent {first!r} ended (reset policy {self.policy})"
            for attachment in self.playing:
                assert attachment.feedback is not None
                if not attachment.feedback.over:
                    attachment.feedback.truncate(others)
        for attachment in tuple(self.playing):
            feedback = attachment.feedback
            assert feedback is not None
            if reason:
                feedback.truncate(reason)
            if feedback.over:
                how = "terminated" if feedback.terminated else "truncated"
                self._end(attachment, now, how, feedback.reason)

    def cut_all(self, reason: str, now: float) -> None:
        """No episode can go on. Those who wait for the step learn it now, the others with their next one."""
        for attachment in tuple(self.playing):
            self._cut(attachment, reason, now)

    def fail_all(self, error: OspBridgeError, now: float) -> None:
        """The step did not come about: those who play get ``error``."""
        for attachment in tuple(self.playing):
            self.fail(attachment, error, now)

    def fail(self, attachment: Attachment, error: OspBridgeError, now: float) -> None:
        """Its episode is over, and ``error`` is what it gets until its next reset."""
        attachment.error = error
        self._forgo(attachment)
        self._end(attachment, now, "failed", error.message)

    def rest(self, attachment: Attachment, now: float, reason: str) -> None:
        """It plays no more, of its own will, until it asks for a reset."""
        if attachment.state is State.PLAYING:
            self._end(attachment, now, "abandoned", reason)
        attachment.state = State.ATTACHED

    def drop_laggards(self, limit: float, now: float) -> None:
        """Those who have not acted are too slow: their episodes are over, and they rest."""
        waiting = listed(a.name for a in self.playing if a.acted)
        for attachment in tuple(self.playing):
            if not attachment.acted:
                reason = (
                    f"agent {attachment.name!r} was not acted for within {limit:g} s, while {waiting} waited"
                )
                self._cut(attachment, reason, now)

    def _cut(self, attachment: Attachment, reason: str, now: float) -> None:
        if attachment.acted:
            self._forgo(attachment)
            attachment.cut_short(reason)
        else:
            attachment.cut = reason
        self._end(attachment, now, "truncated", reason)

    @staticmethod
    def _forgo(attachment: Attachment) -> None:
        """Its episode ends before the step that is under way: what that has brought so far is not told, nor counts."""
        if attachment.acted and attachment.feedback is not None:
            attachment.reward -= attachment.feedback.reward
            attachment.feedback = None
            if attachment.told is not None:
                attachment.observation = attachment.told

    def _end(self, attachment: Attachment, now: float, how: str, reason: str = "") -> None:
        """Its episode is over, its agent rests."""
        self.next_reset.quiet_since = now
        attachment.state = State.DONE
        attachment.acted = False
        attachment.held.episodes += 1
        self.playing.remove(attachment)
        if attachment.name in self.actions:
            self.actions[attachment.name] = attachment.held.task.neutral
        self._count()
        self._on_episode(attachment, how, reason)

    # --- resets ----------------------------------------------------------------------------------------------------

    def ask_reset(self, attachments: Sequence[Attachment], seed: int, thread: int, now: float) -> None:
        """They wait for the next reset, and drive their agents from then on."""
        if not self.waiting:
            self.next_reset.asked_since = now
        first = next((a.name for a in attachments if a.state is State.PLAYING), "")
        for attachment in attachments:
            attachment.abandons = attachment.state is State.PLAYING
            if attachment.abandons:
                self._end(attachment, now, "abandoned")
        if first and self.policy is ResetPolicy.ANY:
            self.cut_all(f"the episode of agent {first!r} was abandoned", now)
        for attachment in attachments:
            displaced, attachment.held.driver = attachment.held.driver, attachment
            if displaced is not None and displaced is not attachment:
                if displaced.state is State.PLAYING:
                    self._forgo(displaced)
                    self._end(displaced, now, "abandoned")
                elif displaced.state is State.WAITING:
                    # It is told so also if whoever took its agent has left by then.
                    displaced.error = displaced.not_playing()
                displaced.state = State.ATTACHED
            attachment.state = State.WAITING
            attachment.cut = ""
            attachment.error = None
            attachment.feedback = None
            attachment.thread = thread
            self.next_reset.ask(attachment, seed)

    @property
    def waiting(self) -> list[Attachment]:
        """Those who wait for a reset."""
        return [a for a in self.attachments if a.state is State.WAITING]

    def reset_due(self, now: float) -> bool:
        """Somebody waits, nobody plays, and nobody else is expected."""
        if self.playing:
            return False
        waiting = self.waiting
        if not waiting or (not self.begun and len(waiting) < self.quorum):
            return False
        return not self.next_reset.may_grow(self.attachments, waiting, now)

    @property
    def settle_steps(self) -> int:
        """Neutral steps after a reset."""
        return max((held.task.settle_steps for held in self.held.values()), default=1)

    def start_values(self, seed: int) -> dict[str, str]:
        """Variables to set before a reset, for the agents that somebody will play.

        Whose task cannot say them waits no longer.
        """
        values: dict[str, str] = {}
        for attachment in self.waiting:
            try:
                # OSP's seeds have a sign, numpy's have none.
                random = np.random.default_rng(seed % 2**32)
                values.update(attachment.held.task.start_values(random))
            except TaskError as error:
                attachment.error = error
                attachment.state = State.ATTACHED
        return values

    def begin(self, outcomes: Mapping[str, StepOutcome], seed: int, now: float) -> None:
        """The reset ran, and the neutral step after it brought ``outcomes``: all who wait play."""
        self.seed = seed
        self.next_reset.retried_seed = None
        self.begun = True
        for attachment in self.attachments:
            if attachment.state is State.DONE:
                attachment.state = State.ATTACHED
            if attachment.state is not State.WAITING or attachment.held.missing:
                continue
            outcome = outcomes[attachment.name]
            try:
                attachment.feedback = attachment.held.task.begin(outcome, seed=seed)
            except TaskError as error:
                attachment.error = error
                attachment.state = State.ATTACHED
                continue
            if self.doubt and attachment.abandons:
                attachment.feedback.doubt_the_one_before(self.doubt)
            attachment.state = State.PLAYING
            attachment.infos = outcome.infos
            attachment.observation = attachment.feedback.observation
            attachment.seed = seed
            attachment.started = now
            attachment.steps = 0
            attachment.reward = 0.0
            self.playing.append(attachment)
        self.doubt = ""
        self._count()

    def _count(self) -> None:
        """Somebody plays who did not, or plays no more."""
        self.missing = sum(not a.acted for a in self.playing)
        self.action_repeat = max((a.held.task.action_repeat for a in self.playing), default=1)

    def refuse(self, error: OspBridgeError) -> None:
        """The reset did not come about: those who wait get ``error`` and rest."""
        self.next_reset.retried_seed = None
        for attachment in self.waiting:
            attachment.error = error
            attachment.state = State.ATTACHED
