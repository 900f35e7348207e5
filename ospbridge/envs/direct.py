"""Agents of one simulator driven over a session of this process.

Agents of a session step and reset together. An agent whose episode is over rests at its neutral inputs until the
episodes of all are over. Where environments share a session, the one that was reset last owns the agent.
"""

from __future__ import annotations

from collections.abc import Generator
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ospbridge.envs.backend import DrivenAgent, FeedbackRows
from ospbridge.envs.conventions import say, tell, tell_at_once
from ospbridge.envs.sharing import TRUNCATING
from ospbridge.errors import (
    BarrierStuck,
    LocalProtocolError,
    OspBridgeError,
    SessionClosed,
    SessionLost,
)
from ospbridge.interface import unobserved
from ospbridge.session.rebuild import Attempts
from ospbridge.task.base import HINT, unlike
from ospbridge.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from ospbridge.envs.annotations import NextNote
    from ospbridge.envs.backend import Found
    from ospbridge.envs.sharing import ConnectOptions, SharedSession
    from ospbridge.interface import Feedback, StepOutcome
    from ospbridge.osp.client import Exchange
    from ospbridge.session.blocking import BlockingSession
    from ospbridge.session.core import SessionCore
    from ospbridge.task.base import Task

__all__ = ["DirectBackend"]


class DirectBackend:
    """The agents of a shared session, for which ``options`` are in force from each reset of this backend on."""

    next_notes: Mapping[str, NextNote] = MappingProxyType({})

    def __init__(self, shared: SharedSession, tasks: Iterable[Task], options: ConnectOptions) -> None:
        self.shared = shared
        self._options = options
        self._tasks = {task.agent.name: task for task in tasks}
        self._only = next(iter(self._tasks.values()))
        """The task of the only agent."""
        self._inputs: dict[str, NDArray[np.float32]] = {}
        self._unnamed: Sequence[str] = ()
        """Those whose tasks leave out the infos of a step, so that it can be told as ``FeedbackRows``."""
        self._last: Found = {}
        """What those that play were told latest."""
        self._latest = b""
        """The latest observation of the only agent, float32, since the array itself is its receiver's."""
        self._playing: list[str] = []
        self._doubt: tuple[str, list[str]] = "", []
        """Why the episodes that the reset under way abandons cannot be trusted, and whose they are."""
        self._stepping: Mapping[str, Task] = {}
        """The tasks of those who take the step under way."""
        self._found: Found = {}
        """What it brought, as soon as that is known and as long as it is not told."""
        self._seed = 0
        self._closed = False
        self._subscribed: BlockingSession | None = None
        """The session that was asked for what the tasks want; a rebuild makes another, whoever rebuilds."""
        if repeats := unlike(self._tasks.values()):
            told = listed(f"{repeat} of agent {name!r}" for name, repeat in repeats.items())
            say(f"action_repeat differs ({told}), {max(repeats.values())} is taken for all ({HINT})")
        # Who plays goes on as it does.
        in_force = shared.options
        shared.configure(options)
        try:
            shared.session.subscribe(self._tasks.values())
            self._subscribed = shared.session
        except SessionLost as error:
            # Another environment has lost it, and is still to be told. The first reset makes it anew.
            shared.give_up(error)
        finally:
            shared.configure(in_force)

    @property
    def agents(self) -> dict[str, DrivenAgent]:
        """In the order of the session's."""
        return {
            name: DrivenAgent(
                task.agent,
                task.observation_space,
                task.action_space,
                task.observation_names,
                task.action_names,
            )
            for name, task in self._tasks.items()
        }

    def tell_rows(self) -> None:
        """Tell steps as rows where that can be: for whoever takes in the feedback of all agents at once.

        Nothing changes where the agents have observations or infos of different sizes or names.
        """
        forms = {(len(task.observation_space.low), tuple(task.info_names)) for task in self._tasks.values()}
        if len(forms) == 1:
            self._unnamed = [name for name, task in self._tasks.items() if task.share_plain_info()]

    # --- resets ----------------------------------------------------------------------------------------------------

    def reset(self, seed: int) -> Found:
        """Take the agents over, rebuild their session where it was lost, reset the world, take the neutral steps."""
        attempts = Attempts()
        while True:
            exchange = self.resetting(seed)
            try:
                return self.begun(_result(self.shared.session, exchange))
            except TRUNCATING:
                if not attempts.again(free=self.shared.free):
                    raise

    def resetting(self, seed: int) -> Exchange[Found]:
        """The exchange of a reset, whose result or error ``begun`` takes. Rebuilds the session where it was lost."""
        shared = self._open()
        taken_over = shared.owner is not None and shared.owner is not self
        if self._playing or taken_over:
            self._doubt = self._doubt[0], self._playing or list(self._tasks)
        self._playing = []
        shared.owner = self
        shared.configure(self._options)
        self._seed = seed = int(seed)
        shared.look_after()
        if shared.broken:
            shared.rebuild()
        if self._subscribed is not shared.session:
            self._subscribed = shared.subscribe(self._tasks.values())
        return self._settled(shared.session.core, seed)

    def begun(self, result: Found | Exception) -> Found:
        """A reset has ended. Raises the error that it ended with."""
        if isinstance(result, Exception):
            if isinstance(result, (BarrierStuck, *TRUNCATING)):
                self.shared.give_up(result)
            raise result
        core = self.shared.session.core
        if core.machine.notices:
            tell_at_once(core)
        doubt, abandoned = self._doubt
        if doubt:
            for name in abandoned:
                result[name].doubt_the_one_before(doubt)
        self._doubt = "", []
        self._playing = list(self._tasks)
        self._stepping = self._tasks
        self._found = {}
        self._last = result
        self._latest = result[self._playing[0]].observation.tobytes()
        return result

    def _settled(self, core: SessionCore, seed: int) -> Exchange[Found]:
        doubt, abandoned = self._doubt
        self._doubt = doubt or (yield from core.audit_previous()), abandoned
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

    def step_one(self, action: Any) -> Feedback:
        """``step`` of the only agent, without names: the shortest way."""
        shared = self.shared
        if shared.owner is not self or not self._playing:
            raise self._not_playing()
        task = self._only
        inputs = task.inputs(action)
        session = shared.session
        reset_reason = ""
        try:
            feedback = task.evaluate(session.step_one(inputs), seed=self._seed)
            if task.action_repeat > 1:
                for _ in range(task.action_repeat - 1):
                    if session.machine.notices:
                        reset_reason = tell(session.pop_notices())
                    if reset_reason or feedback.terminated or feedback.truncated:
                        break
                    reward = feedback.reward
                    feedback = task.evaluate(session.step_one(inputs), seed=self._seed)
                    feedback.reward += reward
        except LocalProtocolError:
            # Nothing was sent: the episode goes on.
            raise
        except Exception as error:  # noqa: BLE001  # raised again where it is no loss
            name = task.agent.name
            self._last[name].observation = np.frombuffer(self._latest, np.float32)
            return self.stepped(error)[name]
        self._latest = feedback.observation.tobytes()
        if session.machine.notices:
            reset_reason = reset_reason or tell(session.pop_notices())
        if reset_reason or feedback.terminated or feedback.truncated:
            name = task.agent.name
            ended = self._concluded(session.core, {name: feedback}, {}, reset_reason)
            return self.stepped(_result(session, ended))[name]
        return feedback

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
        if isinstance(result, (BarrierStuck, *TRUNCATING)):
            shared.give_up(result)
        if not isinstance(result, TRUNCATING):
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
        if self.shared.owner is self:
            self._playing = list(self._stepping)
            self._found = {}
            self.shared.session.cancel_step()

    def _evaluated(self, core: SessionCore, tasks: Mapping[str, Task], repeats: int) -> Exchange[Found]:
        """The step, repeated as the tasks want it: equally often for all, because all step together."""
        found: dict[str, Feedback] = {}
        outcomes: Mapping[str, StepOutcome] = {}
        reason = ""
        for number in range(repeats):
            outcomes = yield from core.finish_step(None)
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
            info_names = self._tasks[self._unnamed[0]].info_names
            rows = FeedbackRows.of(found, outcomes, info_names)
        if rows is None:
            self._name_infos(found, outcomes)
        self._last = told = found if rows is None else rows
        return told

    def _name_infos(self, found: Mapping[str, Feedback], outcomes: Mapping[str, StepOutcome]) -> None:
        """Add what tasks leave out for rows, where it was not to be rows."""
        for name in self._unnamed:
            feedback = found.get(name)
            if feedback is not None and not feedback.info["infos"]:
                infos = zip(self._tasks[name].info_names, outcomes[name].infos.tolist(), strict=True)
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

    def _not_playing(self) -> LocalProtocolError:
        shared = self._open()
        if shared.owner is not self and shared.owner is not None:
            return LocalProtocolError(
                f"another environment of this process was reset later and owns agent {shared.agent.name!r} now",
                hint="reset this one to take it back; environments that step in turn need an agent each",
            )
        return LocalProtocolError("the episode is over, or none was begun", hint="call reset first")

    def close(self) -> None:
        """Give the agents back where no other environment uses them."""
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
