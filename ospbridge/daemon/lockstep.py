"""Who steps with whom: the attachments of one simulator's agents, their barrier and their resets. No I/O, no clock.

All agents of a session step and reset together, because the protocol is so. A step is due when every playing
attachment has acted; agents that nobody plays rest at their neutral inputs. A reset is due when nobody plays and
somebody waits for it. Attachments whose episode has just ended are given a moment to ask too, so that processes whose
episodes end together also begin together; who suspends the deadlines then is given the time for which it may.

An attachment changes its state by the rows of ``TRANSITIONS`` alone. Time is an argument: whoever drives this calls
``take_late_steps`` and ``refuse_late_resets`` when the moments have come that ``step_ends`` and ``wakes_at`` tell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ospbridge.daemon.attachment import OUT_OF_REACH, Attachment, Driver, Episode, HeldAgent, State, choose
from ospbridge.errors import AgentsInUse, BarrierStuck, OspBridgeError, SessionLost, TaskError
from ospbridge.interface import DrawnSeed
from ospbridge.osp.timing import Limits
from ospbridge.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from ospbridge.interface import Match, StepOutcome
    from ospbridge.task.base import Task

__all__ = ["TRANSITIONS", "Event", "LockStep", "ResetPolicy", "SuspendedDeadlines"]

GRACE: Final = 2.0
"""Seconds that a due reset waits for those whose episode is over and who have not asked yet."""
SAME_THREAD_GRACE: Final = 1.0
"""Seconds after which a wait that nobody can end, since one thread drives both sides, is an error."""


class ResetPolicy(StrEnum):
    """What the end of one agent's episode means for the others."""

    ALL = "all"
    """It rests until all episodes are over."""
    ANY = "any"
    """The others are truncated, and all reset together."""


class Event(Enum):
    """What happens to an attachment."""

    ASK = "it asks for a reset"
    BEGIN = "a reset ran"
    REFUSE = "no reset comes about"
    FINISH = "its step ends the episode"
    CUT = "no step brings the end"
    FAIL = "an error ends it"
    ABANDON = "its process wants another one"
    REST = "it wants to be left out"
    LEAVE = "its connection ends"


class Row(NamedTuple):
    """Where an event leads, and why there."""

    to: State
    why: str


TRANSITIONS: Final = {
    (State.ATTACHED, Event.ASK): Row(State.WAITING, "a reset is everybody's: who would play waits for it"),
    (State.DONE, Event.ASK): Row(State.WAITING, "its episode is over; the others' may go on, and it rests"),
    (State.WAITING, Event.ASK): Row(State.WAITING, "it asks anew: its latest seed counts"),
    (State.WAITING, Event.BEGIN): Row(State.PLAYING, "the neutral step after the reset brought an observation"),
    (State.WAITING, Event.REFUSE): Row(State.ATTACHED, "`error` says why: time, task, agent or simulator"),
    (State.WAITING, Event.REST): Row(State.ATTACHED, "another environment of its process took the agent"),
    (State.WAITING, Event.LEAVE): Row(State.ATTACHED, "it is gone: its seed and its place in the quorum count no more"),
    (State.PLAYING, Event.FINISH): Row(State.DONE, "terminated or truncated by its task, a doubt, or others' end"),
    (State.PLAYING, Event.CUT): Row(State.DONE, "too slow, or the simulator is lost: told now or with its next step"),
    (State.PLAYING, Event.FAIL): Row(State.DONE, "its task or the simulator refuses: `error` until its next reset"),
    (State.PLAYING, Event.ABANDON): Row(State.DONE, "it resets, or its agent is taken: the episode has no last step"),
    (State.PLAYING, Event.REST): Row(State.DONE, "its driver has no action for long: the others must not wait"),
    (State.PLAYING, Event.LEAVE): Row(State.DONE, "it is gone: the others must not wait"),
    (State.DONE, Event.BEGIN): Row(State.ATTACHED, "the reset ran without it: it is expected no more"),
    (State.DONE, Event.REST): Row(State.ATTACHED, "it will not ask soon: no reset is held for it"),
    (State.DONE, Event.LEAVE): Row(State.ATTACHED, "it is gone: no reset is held for it"),
}  # fmt: skip
"""What may happen to an attachment in a state, and nothing else. A step that does not end its episode changes none."""


class SuspendedDeadlines:
    """Deadlines stand still while a driver waits for its weights, for as long as it may; several may at once.

    All times are in seconds. ``elapsed`` is a clock of which deadlines are reckoned.
    """

    def __init__(self) -> None:
        self.suspensions: dict[object, tuple[float, str]] = {}
        """Until when, and why, by who has not resumed yet."""
        self._suspended = 0.0
        """Seconds in all, until ``_counted``."""
        self._counted = 0.0

    def suspend(self, who: object, now: float, seconds: float, reason: str) -> None:
        """For ``seconds`` at most, or until ``who`` resumes."""
        self._count(now)
        self.suspensions[who] = (now + seconds, reason)

    def resume(self, who: object, now: float) -> None:
        """``who`` waits no more. Safe to call again."""
        self._count(now)
        self.suspensions.pop(who, None)

    @property
    def reason(self) -> str:
        """Why, by who may wait longest."""
        return max(self.suspensions.values())[1] if self.suspensions else ""

    def until(self, who: object) -> float:
        """Until when ``who`` may wait; 0 where it does not."""
        return self.suspensions.get(who, (0.0, ""))[0]

    def left(self, now: float) -> float:
        """Seconds that deadlines may still stand; 0 where they run."""
        return max((until - now for until, _ in self.suspensions.values() if until > now), default=0.0)

    def next_end(self, now: float) -> float:
        """When the next of them may wait no longer; infinity where nobody does."""
        return min((until for until, _ in self.suspensions.values() if until > now), default=math.inf)

    def elapsed(self, now: float) -> float:
        """``now``, less all the time for which deadlines stood."""
        if self.suspensions:
            self._count(now)
        return now - self._suspended

    def ends(self, deadline: float, now: float) -> float:
        """When a deadline on the clock of ``elapsed`` is over, if nobody resumes before it must."""
        return now + deadline - self.elapsed(now) + self.left(now)

    def _count(self, now: float) -> None:
        if self.suspensions:
            latest = max(self.suspensions.values())[0]
            self._suspended += max(0.0, min(now, latest) - self._counted)
        self._counted = now


@dataclass(frozen=True, slots=True)
class _ResetRequest:
    """An attachment's."""

    seed: int
    """0: don't care."""
    asked: float
    deadline: float
    """On the clock of ``SuspendedDeadlines.elapsed``."""
    steps: int
    """Of the simulator until then."""


class _NextReset:
    """It stays from one reset to the next. ``quorum``: how many must wait for the very first."""

    def __init__(self, quorum: int, deadlines: SuspendedDeadlines) -> None:
        self.quorum = quorum
        self.grace = GRACE
        self.requests: dict[Attachment, _ResetRequest] = {}
        """Of those who wait, the latest last."""
        self.begun = False
        """A reset has run: the quorum has been met."""
        self.doubt = ""
        """Why episodes that it ends cannot be trusted; empty where nothing is known against them."""
        self.quiet_since = 0.0
        """When the latest episode ended."""
        self._deadlines = deadlines

    @property
    def wanted_seed(self) -> int:
        """0: don't care. The latest counts, but none that was drawn behind one that was given."""
        wanted = 0
        for request in self.requests.values():
            given = wanted and not isinstance(wanted, DrawnSeed)
            if request.seed and not (given and isinstance(request.seed, DrawnSeed)):
                wanted = request.seed
        return wanted

    @property
    def grace_ends(self) -> float:
        """Until when a reset is held for those who are expected to ask for it too."""
        asked = min((request.asked for request in self.requests.values()), default=0.0)
        return max(self.quiet_since, asked) + self.grace

    def due(self, attachments: Iterable[Attachment], now: float) -> bool:
        """Enough wait, and nobody else of ``attachments`` is expected: an episode that has ended may bring one more.

        A thread that waits for one cannot ask for another. Who suspends deadlines asks when it has its weights, and
        would have to wait for the others' next episodes otherwise.
        """
        waiting = self.requests
        if not waiting or (not self.begun and len(waiting) < self.quorum):
            return False
        grace = now < self.grace_ends
        return not any(
            a.state is State.DONE
            and (grace or now < self._deadlines.until(a.driver))
            and not a.held.missing
            and not any(_blocked_by_same_thread(a, w) for w in waiting)
            for a in attachments
        )


def _blocked_by_same_thread(one: Attachment, waiting: Attachment) -> bool:
    """``one`` belongs to the very thread that waits for ``waiting``: it can do nothing meanwhile."""
    if one is waiting or one.thread != waiting.thread:
        return False
    # Drivers of the relay have no thread of their own, and are of one process although none waits for another.
    return one.driver is waiting.driver or (one.thread != 0 and one.driver.same_process(waiting.driver))


class LockStep:
    """``on_episode(attachment, how, reason)`` is called for each episode that ends. ``limits``: of steps and resets."""

    def __init__(
        self,
        *,
        policy: ResetPolicy = ResetPolicy.ALL,
        quorum: int = 1,
        limits: Limits | None = None,
        on_episode: Callable[[Attachment, str, str], None] = lambda *_: None,
    ) -> None:
        self.policy = policy
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
        self.steps = 0
        """Of the simulator, with those after resets."""
        self.deadlines = SuspendedDeadlines()
        self.next_reset = _NextReset(quorum, self.deadlines)
        self._limits = limits or Limits()
        self._step_deadline: float | None = None
        """When those are too slow for whom others wait; None: nobody waits."""
        self._before: dict[Attachment, NDArray[np.float32]] = {}
        """What was observed before the action under way, where that has several steps."""
        self._on_episode = on_episode

    def _move(self, attachment: Attachment, event: Event) -> None:
        """Raises KeyError for what must not happen."""
        if attachment.state is State.WAITING:
            del self.next_reset.requests[attachment]
        attachment.state = TRANSITIONS[attachment.state, event].to

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
                self._refuse(attachment, SessionLost(attachment.held.missing, hint=attachment.held.remedy))
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
            self._end(attachment, Event.LEAVE, now, "detached", reason)
        if attachment.state is not State.ATTACHED:
            self._move(attachment, Event.LEAVE)
        attachment.cut = ""
        self.attachments.remove(attachment)
        attachment.held.attachments.remove(attachment)
        if attachment.held.driver is attachment:
            attachment.held.driver = None

    def rest(self, attachment: Attachment, now: float, reason: str) -> None:
        """It plays no more, of its own will, until it asks for a reset, and nobody expects it to."""
        if attachment.state is State.PLAYING:
            self._end(attachment, Event.REST, now, "abandoned", reason)
        if attachment.state is State.DONE:
            self._move(attachment, Event.REST)

    # --- steps -----------------------------------------------------------------------------------------------------

    @property
    def step_due(self) -> bool:
        """Somebody plays, and everybody who plays has acted."""
        return not self.missing and bool(self.playing)

    def act(self, attachments: Sequence[Attachment], given: Sequence[NDArray[np.float32] | bytes]) -> None:
        """Their inputs for the step to come."""
        actions = self.actions
        for attachment, inputs in zip(attachments, given, strict=True):
            attachment.acted = True
            attachment.feedback = None
            actions[attachment.name] = inputs
        self.missing -= len(attachments)

    def repeating(self) -> None:
        """Several steps are to come for one action: what the first ones bring is told with the last one, or never."""
        self._before = {attachment: attachment.observation for attachment in self.playing}

    def stepped(self, outcomes: Mapping[str, StepOutcome], *, repeats: int = 0) -> bool:
        """A step ran, the ``repeats``-th repetition of an action. True where it ended an episode.

        Rewards of repetitions add up. ``acted`` closes the action.
        """
        ended = False
        seed = self.seed
        self.steps += 1
        for attachment in self.playing:
            outcome = outcomes[attachment.name]
            task = attachment.held.task
            episode = attachment.episode
            try:
                feedback = task.evaluate(outcome, seed=seed)
            except TaskError as error:
                # One agent's expression fails: its episode is over, and nobody else's.
                episode.unmoved = True
                feedback = task.cut(attachment.observation.copy(), error.message, seed=seed)
            episode.reward += feedback.reward
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

    def finish_action(self) -> None:
        """The actions of all who play are done, and what they brought can be told: their next ones are missing."""
        for attachment in self.playing:
            attachment.episode.steps += 1
            attachment.acted = False
        self._before = {}
        self._step_deadline = None
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
                self._end(attachment, Event.FINISH, now, how, feedback.reason)

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
        self._end(attachment, Event.FAIL, now, "failed", error.message)

    def _cut(self, attachment: Attachment, reason: str, now: float) -> None:
        if attachment.acted:
            self._forgo(attachment)
            attachment.cut_short(reason)
        else:
            attachment.cut = reason
        self._end(attachment, Event.CUT, now, "truncated", reason)

    def _forgo(self, attachment: Attachment) -> None:
        """Its episode ends before the step that is under way: what that has brought so far is not told, nor counts."""
        if attachment.acted and attachment.feedback is not None:
            attachment.episode.reward -= attachment.feedback.reward
            attachment.feedback = None
            attachment.observation = self._before.get(attachment, attachment.observation)

    def _end(self, attachment: Attachment, event: Event, now: float, how: str, reason: str = "") -> None:
        """Its episode is over, its agent rests."""
        self._move(attachment, event)
        self.next_reset.quiet_since = now
        attachment.acted = False
        attachment.held.episodes += 1
        self.playing.remove(attachment)
        if attachment.name in self.actions:
            self.actions[attachment.name] = attachment.held.task.neutral
        self._count()
        self._on_episode(attachment, how, reason)

    def _count(self) -> None:
        """Somebody plays who did not, or plays no more."""
        self.missing = sum(not a.acted for a in self.playing)
        self.action_repeat = max((a.held.task.action_repeat for a in self.playing), default=1)
        if self.missing == len(self.playing):
            self._step_deadline = None

    # --- waiting for others' steps ---------------------------------------------------------------------------------

    def await_step(self, now: float) -> None:
        """Who has acted waits for the others."""
        if self._step_deadline is None:
            self._step_deadline = self.deadlines.elapsed(now) + self._limits.step

    def waited(self, now: float) -> float:
        """For how many seconds somebody has waited for the step, without those for which deadlines stood."""
        if self._step_deadline is None:
            return 0.0
        return self.deadlines.elapsed(now) + self._limits.step - self._step_deadline

    def step_ends(self, now: float) -> float:
        """When those who have not acted are too slow."""
        assert self._step_deadline is not None
        return self.deadlines.ends(self._step_deadline, now)

    def take_late_steps(self, now: float) -> bool:
        """Whose time is over to act is cut, and rests: the others' step is due then. False: it is too early."""
        if now < self.step_ends(now):
            return False
        waiting = listed(a.name for a in self.playing if a.acted)
        limit = self._limits.step
        for attachment in tuple(self.playing):
            if not attachment.acted:
                reason = (
                    f"agent {attachment.name!r} was not acted for within {limit:g} s, while {waiting} waited"
                )
                self._cut(attachment, reason, now)
        return True

    # --- resets ----------------------------------------------------------------------------------------------------

    def ask_reset(self, attachments: Sequence[Attachment], seed: int, thread: int, now: float) -> None:
        """They wait for the next reset, and drive their agents from then on."""
        first = next((a.name for a in attachments if a.state is State.PLAYING), "")
        for attachment in attachments:
            if attachment.state is State.PLAYING:
                attachment.episode.abandoned = True
                self._end(attachment, Event.ABANDON, now, "abandoned")
        if first and self.policy is ResetPolicy.ANY:
            self.cut_all(f"the episode of agent {first!r} was abandoned", now)
        deadline = self.deadlines.elapsed(now) + self._limits.reset
        for attachment in attachments:
            displaced, attachment.held.driver = attachment.held.driver, attachment
            if displaced is not None and displaced is not attachment:
                self._displace(displaced, now)
            attachment.cut = ""
            attachment.error = None
            attachment.feedback = None
            attachment.thread = thread
            self._move(attachment, Event.ASK)
            self.next_reset.requests[attachment] = _ResetRequest(seed, now, deadline, self.steps)

    def _displace(self, attachment: Attachment, now: float) -> None:
        """Another environment of its process drives its agent from now on."""
        if attachment.state is State.PLAYING:
            self._forgo(attachment)
            self._end(attachment, Event.ABANDON, now, "abandoned")
        elif attachment.state is State.WAITING:
            # It is told so also if whoever took its agent has left by then.
            attachment.error = attachment.not_playing()
        if attachment.state is not State.ATTACHED:
            self._move(attachment, Event.REST)

    @property
    def waiting(self) -> list[Attachment]:
        """Those who wait for a reset."""
        return list(self.next_reset.requests)

    def reset_due(self, now: float) -> bool:
        """Somebody waits, nobody plays, and nobody else is expected."""
        return not self.playing and self.next_reset.due(self.attachments, now)

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
                self._refuse(attachment, error)
        return values

    def begin(self, outcomes: Mapping[str, StepOutcome], seed: int, now: float) -> None:
        """The reset ran, and the neutral step after it brought ``outcomes``: all who wait play."""
        self.seed = seed
        coming = self.next_reset
        coming.begun = True
        for attachment in self.attachments:
            if attachment.state is State.DONE:
                self._move(attachment, Event.BEGIN)
            if attachment.state is not State.WAITING or attachment.held.missing:
                continue
            outcome = outcomes[attachment.name]
            try:
                feedback = attachment.held.task.begin(outcome, seed=seed)
            except TaskError as error:
                self._refuse(attachment, error)
                continue
            if coming.doubt and attachment.episode.abandoned:
                feedback.doubt_the_one_before(coming.doubt)
            self._move(attachment, Event.BEGIN)
            attachment.episode = Episode(seed, now)
            attachment.feedback = feedback
            attachment.infos = outcome.infos
            attachment.observation = feedback.observation
            self.playing.append(attachment)
        coming.doubt = ""
        self._count()

    def refuse(self, error: OspBridgeError) -> None:
        """The reset did not come about: those who wait get ``error`` and rest."""
        for attachment in self.waiting:
            self._refuse(attachment, error)

    def _refuse(self, attachment: Attachment, error: OspBridgeError) -> None:
        attachment.error = error
        self._move(attachment, Event.REFUSE)

    # --- waiting for a reset ---------------------------------------------------------------------------------------

    def wakes_at(self, now: float) -> float:
        """When time alone may bring a reset about, or an end to waiting for it."""
        coming = self.next_reset
        moments = [coming.grace_ends, self.deadlines.next_end(now)]
        for request in coming.requests.values():
            moments += [request.asked + SAME_THREAD_GRACE, self.deadlines.ends(request.deadline, now)]
        return min((moment for moment in moments if moment > now), default=now)

    def refuse_late_resets(self, now: float, *, away: str, given_up_hint: str = "") -> bool:
        """Whose reset does not come about in time, or never can, is told why. False: nobody is.

        ``away`` says what keeps the simulator away; empty where it is there. ``given_up_hint``: what to do where nobody
        joins it any more.
        """
        late = False
        for attachment, request in tuple(self.next_reset.requests.items()):
            error: OspBridgeError | None = None
            if given_up_hint or now >= self.deadlines.ends(request.deadline, now):
                error = self._why_withheld(now - request.asked, away, given_up_hint)
            elif now >= request.asked + SAME_THREAD_GRACE and self.steps == request.steps:
                error = self._waits_for_itself(attachment)
            if error is not None:
                late = True
                self._refuse(attachment, error)
        return late

    def _waits_for_itself(self, attachment: Attachment) -> AgentsInUse | None:
        """A thread that waits for one agent's reset while it plays another waits for itself."""
        for other in self.playing:
            if not other.acted and _blocked_by_same_thread(other, attachment):
                return AgentsInUse(
                    f"agent {attachment.name!r} waits for the reset, which waits for the episode of agent "
                    f"{other.name!r}, which the same thread plays"
                )
        return None

    def _why_withheld(self, seconds: float, away: str, given_up_hint: str) -> BarrierStuck:
        if given_up_hint:
            return BarrierStuck(
                f"no reset comes about any more: the simulator is not joined: {away}", hint=given_up_hint
            )
        done = [a for a in self.attachments if a.state is State.DONE]
        if self.playing:
            why = f"agents still play: {_told(self.playing)}"
            hint = "end their episodes or close their environments, or use `ospbridge connect --reset-policy any`"
        elif away:
            why = f"the simulator is not joined: {away}"
            hint = (
                "start the simulator again if it has ended: "
                "the daemon joins it by itself, as `ospbridge status` shows"
            )
        elif done:
            why = f"those whose episodes have just ended could still ask for it: {_told(done)}"
            hint = "reset or close their environments too, or use `ospbridge connect` with a longer --reset-timeout"
        else:
            why = f"the quorum is {self.next_reset.quorum}, and fewer wait"
            hint = "start the other environments, or `ospbridge connect` with a smaller --quorum"
        return BarrierStuck(f"the reset did not come about within {seconds:.3g} s: {why}", hint=hint)


def _told(attachments: Iterable[Attachment]) -> str:
    return listed(f"{a.name} (driven by {a.driver})" for a in attachments)
