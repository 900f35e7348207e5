"""Several agents of one simulator driven by one environment over a session of this process.

Agents of a session step and reset together. An agent whose episode is over rests at its neutral inputs until the
episodes of all are over.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from ospbridge.envs.groups.rows import FeedbackRows
from ospbridge.envs.noticing import tell, tell_at_once, tell_of_unlike_paces
from ospbridge.envs.sharing import LOSSES
from ospbridge.errors import (
    BarrierStuck,
    OspBridgeError,
    SessionClosed,
)
from ospbridge.interface import unobserved
from ospbridge.session.rebuild import Attempts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from ospbridge.envs.sharing import SharedSession
    from ospbridge.interface import AgentInterface, BoxSpace, Feedback, Space, StepOutcome
    from ospbridge.osp.client import Exchange
    from ospbridge.session.blocking import BlockingSession
    from ospbridge.session.core import SessionCore
    from ospbridge.session.hub_client import NextNote
    from ospbridge.task.base import Task

__all__ = ["DirectGroup", "Found", "Group", "NamedGroup"]

Found: TypeAlias = "Mapping[str, Feedback]"
"""What a reset or step brought, by agent."""


class Group(Protocol):
    """Agents of one simulator, taken, and their tasks at work; everything by agent name."""

    interfaces: dict[str, AgentInterface]
    observation_spaces: dict[str, BoxSpace]
    action_spaces: dict[str, Space]

    @property
    def playing(self) -> bool:
        """Somebody plays: a step can be given."""
        ...

    def reset(self, seed: int) -> Found:
        """Reset the world and let it settle; all agents play. ``seed`` in [1, 2**31 - 1]."""
        ...

    def step(self, actions: Mapping[str, Any]) -> Found:
        """One action of every agent that plays; what they return. A lost session truncates them all."""
        ...

    def close(self) -> None:
        """Give the agents back, within 2 s. Safe to call again."""
        ...


class NamedGroup(Group, Protocol):
    """A group that also knows, for people, what the numbers of its agents are."""

    observation_names: dict[str, list[str]]
    action_names: dict[str, list[str]]
    """Of no meaning where an action is discrete."""
    next_notes: dict[str, NextNote]
    """What is said of the next actions; empty where nobody annotates."""


class DirectGroup:
    """Agents of a session of this process."""

    def __init__(self, shared: SharedSession, tasks: Iterable[Task]) -> None:
        self.shared = shared
        self._tasks = {task.agent.name: task for task in tasks}
        self.interfaces = {agent.name: agent for agent in shared.agents}
        self.observation_spaces = {name: task.observation_space for name, task in self._tasks.items()}
        self.action_spaces = {name: task.action_space for name, task in self._tasks.items()}
        self.observation_names = {name: task.observation_names for name, task in self._tasks.items()}
        self.action_names = {name: task.action_names for name, task in self._tasks.items()}
        self.next_notes: dict[str, NextNote] = {}
        self._inputs: dict[str, NDArray[np.float32]] = {}
        self._unnamed: Sequence[str] = ()
        """Those whose tasks leave out the infos of a step, so that it can be told as ``FeedbackRows`` ..."""
        self._info_names: Sequence[str] = ()
        """... where all infos have these names."""
        self._last: Found = {}
        """What those that play were told latest."""
        self._playing: list[str] = []
        self._abandoned: list[str] = []
        """Those of whom the reset under way abandons an episode, and ..."""
        self._doubt = ""
        """... why that cannot be trusted; empty where nothing is known against it."""
        self._stepping: Mapping[str, Task] = {}
        """The tasks of those who take the step under way."""
        self._found: Found = {}
        """What it brought, as soon as that is known and as long as it is not told."""
        self._seed = 0
        self._closed = False
        tell_of_unlike_paces(self._tasks.values())
        self._subscribed = self.shared.session
        self._subscribed.subscribe(self._tasks.values())

    def tell_rows(self) -> None:
        """Tell steps as rows where that can be: for whoever takes in the feedback of all agents at once.

        Nothing changes where the agents have observations or infos of different sizes or names.
        """
        forms = {
            (len(self.observation_spaces[name].low), tuple(task.info_names))
            for name, task in self._tasks.items()
        }
        if len(forms) == 1:
            self._unnamed = [name for name, task in self._tasks.items() if task.name_no_infos()]
            self._info_names = next(iter(self._tasks.values())).info_names

    # --- resets ----------------------------------------------------------------------------------------------------

    def reset(self, seed: int) -> Found:
        """Rebuild the session where it was lost, reset the world, take the neutral steps."""
        attempts = Attempts()
        while True:
            try:
                exchange = self.resetting(seed)
                return self.begun(_result(self.shared.session, exchange))
            except LOSSES:
                if not attempts.again(free=self.shared.free):
                    raise

    def resetting(self, seed: int) -> Exchange[Found]:
        """The exchange of a reset, whose result or error ``begun`` takes. Rebuilds the session where it was lost."""
        shared = self._open()
        self._seed = seed = int(seed)
        if self._playing:
            self._abandoned, self._playing = self._playing, []
        shared.look_after()
        if shared.broken:
            shared.rebuild()
        if self._subscribed is not shared.session:
            self._subscribed = shared.subscribe(self._tasks.values())
        return self._settled(shared.session.core, seed)

    def begun(self, result: Found | Exception) -> Found:
        """A reset has ended. Raises the error that it ended with."""
        if isinstance(result, Exception):
            if isinstance(result, (BarrierStuck, *LOSSES)):
                self.shared.give_up(result)
            raise result
        core = self.shared.session.core
        if core.machine.notices:
            tell_at_once(core)
        if self._doubt:
            for name in self._abandoned:
                result[name].doubt_the_one_before(self._doubt)
        self._abandoned, self._doubt = [], ""
        self._playing = list(self._tasks)
        self._last = result
        return result

    def _settled(self, core: SessionCore, seed: int) -> Exchange[Found]:
        self._doubt = self._doubt or (yield from core.audit_previous())
        # What others did before this reset concerns no episode of ours.
        tell(core.pop_notices())
        tasks = self._tasks
        values: dict[str, str] = {}
        for task in tasks.values():
            values.update(task.start_values(np.random.default_rng(seed)))
        for name, text in values.items():
            yield from core.set(name, text)
        yield from core.reset(seed)
        self._inputs = {name: task.neutral for name, task in tasks.items()}
        outcomes = {name: unobserved(task.agent) for name, task in tasks.items()}
        for _ in range(max(task.settle_steps for task in tasks.values())):
            outcomes = yield from core.step(self._inputs)
        return {name: task.begin(outcomes[name], seed=seed) for name, task in tasks.items()}

    # --- steps -----------------------------------------------------------------------------------------------------

    @property
    def playing(self) -> bool:
        """Somebody plays: a step can be given."""
        return bool(self._playing)

    def step(self, actions: Mapping[str, Any]) -> Found:
        """One step. Episodes that cannot be told exactly end truncated, with the reason."""
        session = self._open().session
        exchange = self.stepping(actions)
        result = _result(session, exchange)
        if exchange is None and not isinstance(result, Exception):
            result = self.evaluate(result)
            if isinstance(result, Generator):
                result = _result(session, result)
        return self.stepped(result)

    def stepping(self, actions: Mapping[str, Any]) -> Exchange[Found] | None:
        """The exchange of a step, whose result or error ``stepped`` takes. Raises LocalProtocolError, nothing sent.

        None for a step of the session itself: ``evaluate`` takes its outcomes.
        """
        core = self._open().session.core
        tasks = self._tasks
        if len(self._playing) < len(tasks):
            tasks = {name: tasks[name] for name in self._playing}
        inputs = self._inputs
        for name, task in tasks.items():
            inputs[name] = task.inputs(actions[name])
        # From here on they stand in the requests: the caller may have others in its arrays.
        core.fill(inputs)
        repeats = max([task.action_repeat for task in tasks.values()])
        self._found = {}
        self._stepping = tasks
        return None if repeats == 1 else self._evaluated(core, tasks, repeats)

    def evaluate(self, outcomes: Mapping[str, StepOutcome]) -> Found | Exception | Exchange[Found]:
        """Of a step of the session: what ``stepped`` takes, or the exchange that has it as its result."""
        try:
            found = {
                name: task.evaluate(outcomes[name], seed=self._seed) for name, task in self._stepping.items()
            }
        except Exception as error:  # noqa: BLE001  # a task's of a user, raised by ``stepped``
            return error
        core = self.shared.session.core
        reason = tell(core.pop_notices()) if core.machine.notices else ""
        if reason or any(feedback.terminated or feedback.truncated for feedback in found.values()):
            return self._concluded(core, found, outcomes, reason)
        return self._told(found, outcomes)

    def stepped(self, result: Found | Exception) -> Found:
        """A step has ended. Raises an error that is no end of an episode."""
        if not isinstance(result, Exception):
            return result
        shared = self.shared
        shared.check_process()
        playing, self._playing = self._playing, []
        if isinstance(result, SessionClosed) and shared.broken:
            # Ctrl-C came while it was built anew, which is up to the next reset.
            return self._cut(playing, shared.broken)
        if isinstance(result, (BarrierStuck, *LOSSES)):
            shared.give_up(result)
        if not isinstance(result, LOSSES):
            raise result
        if self._found:
            # The step itself is known; what came behind it was not answered.
            self._playing = playing
            self._end(self._found, result.message)
            return self._found
        return self._cut(playing, result.message)

    def _cut(self, playing: Sequence[str], reason: str) -> Found:
        """The ends of episodes whose step brought nothing."""
        return {
            name: self._tasks[name].cut(self._last[name].observation.copy(), reason, seed=self._seed)
            for name in playing
        }

    def cancel_step(self) -> None:
        """Nobody is told what the latest step brought: the next one truncates the episodes of those who took it."""
        self._playing = list(self._stepping)
        self.shared.session.cancel_step()

    def _evaluated(self, core: SessionCore, tasks: Mapping[str, Task], repeats: int) -> Exchange[Found]:
        """The step, repeated as the tasks want it: equally often for all, because all step together."""
        found: dict[str, Feedback] = {}
        outcomes: Mapping[str, StepOutcome] = {}
        reason = ""
        for number in range(repeats):
            outcomes = yield from core.resume(None)
            before = found
            found = {name: task.evaluate(outcomes[name], seed=self._seed) for name, task in tasks.items()}
            for name, feedback in before.items():
                found[name].reward += feedback.reward
            if core.machine.notices:
                reason = tell(core.pop_notices())
            if reason or any(feedback.terminated or feedback.truncated for feedback in found.values()):
                _cut_actions(tasks, found, repeats - number - 1)
                break
        return (yield from self._concluded(core, found, outcomes, reason))

    def _concluded(
        self,
        core: SessionCore,
        found: dict[str, Feedback],
        outcomes: Mapping[str, StepOutcome],
        reason: str,
    ) -> Exchange[Found]:
        """What a step brought, after questions that the end of an episode needs."""
        if not (reason or any(feedback.over for feedback in found.values())):
            return self._told(found, outcomes)
        self._name_infos(found, outcomes)
        self._last = self._found = found
        self._end(found, reason or (yield from self._audit(core)))
        return found

    def _told(self, found: dict[str, Feedback], outcomes: Mapping[str, StepOutcome]) -> Found:
        """What a step brought that ends nothing: in rows where that can be."""
        rows = None
        if len(found) == len(self._unnamed):
            rows = FeedbackRows.of(found, outcomes, self._info_names)
        if rows is None:
            self._name_infos(found, outcomes)
        self._last = told = found if rows is None else rows
        return told

    def _name_infos(self, found: Mapping[str, Feedback], outcomes: Mapping[str, StepOutcome]) -> None:
        """Add what tasks leave out for rows, where it was not to be rows."""
        for name in self._unnamed:
            feedback = found.get(name)
            if feedback is not None and not feedback.info["infos"]:
                infos = zip(self._info_names, outcomes[name].infos.tolist(), strict=True)
                feedback.info = {**feedback.info, "infos": dict(infos)}

    def _audit(self, core: SessionCore) -> Exchange[str]:
        """Why the steps cannot be trusted; empty where the simulator's clock agrees with them."""
        try:
            reason = yield from core.audit()
        except OspBridgeError as error:
            reason = error.message
        tell(core.pop_notices())
        if reason:
            self.shared.give_up(reason)
        else:
            self.shared.budget.give_back()
        return reason

    def _end(self, found: Found, reason: str) -> None:
        """Those whose episode is over rest; with ``reason`` all are truncated."""
        for name, feedback in found.items():
            if reason:
                feedback.truncate(reason)
            if feedback.over:
                self._playing.remove(name)
                self._inputs[name] = self._tasks[name].neutral

    def _open(self) -> SharedSession:
        if self._closed:
            raise SessionClosed("this environment was closed")
        self.shared.check_process()
        return self.shared

    def close(self) -> None:
        """Leave the session."""
        if not self._closed:
            self._closed = True
            self.shared.release()


def _cut_actions(tasks: Mapping[str, Task], found: Found, missing: int) -> None:
    """An episode ended ``missing`` steps before the end of an action: the others' actions end there as well."""
    if missing:
        for name, feedback in found.items():
            if not feedback.over:
                feedback.truncated = tasks[name].cut_action(missing)


def _result(session: BlockingSession, exchange: Exchange[Found] | None) -> Any:
    """What comes of it, or of a step, or the error that it ended with."""
    try:
        return session.step_filled() if exchange is None else session.run(exchange)
    except Exception as error:  # noqa: BLE001  # raised again where it is no loss
        return error
