"""An agent driven by a session of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ospbridge.envs.noticing import tell, tell_at_once
from ospbridge.envs.sharing import LOSSES
from ospbridge.errors import (
    BarrierStuck,
    LocalProtocolError,
    OspBridgeError,
    SessionClosed,
    SessionLost,
    TaskError,
)
from ospbridge.interface import unobserved
from ospbridge.session.rebuild import Attempts

if TYPE_CHECKING:
    from ospbridge.envs.sharing import SharedSession
    from ospbridge.envs.terms import Terms
    from ospbridge.interface import Feedback, StepOutcome
    from ospbridge.session.blocking import BlockingSession
    from ospbridge.task.base import Task

__all__ = ["DirectSeat"]


class DirectSeat:
    """One environment's place at a shared session, for which its terms are in force from each of its resets on."""

    def __init__(self, shared: SharedSession, task: Task, terms: Terms) -> None:
        self.shared = shared
        self.interface = shared.agent
        self.observation_space = task.observation_space
        self.action_space = task.action_space
        self.observation_names = task.observation_names
        self.action_names = task.action_names
        self._task = task
        self._terms = terms
        self._name = shared.agent.name
        self._seed = 0
        self._playing = False
        self._last = b""
        """The latest observation, float32; the array itself is its receiver's."""
        self._closed = False
        self._subscribed: BlockingSession | None = None
        """The session that was asked for what the task wants; a rebuild makes another, whoever rebuilds."""
        # Who plays goes on as it does.
        in_force = shared.terms
        shared.configure(terms)
        try:
            shared.session.subscribe((task,))
            self._subscribed = shared.session
        except SessionLost as error:
            # Another environment has lost it, and is still to be told. The first reset makes it anew.
            shared.give_up(error)
        finally:
            shared.configure(in_force)

    def reset(self, seed: int) -> Feedback:
        """Take the agent over, rebuild its session where it was lost, reset the world, take the neutral step."""
        shared = self._open()
        shared.owner = self
        shared.configure(self._terms)
        self._seed = seed = int(seed)
        self._playing = False
        attempts = Attempts()
        doubt = ""
        shared.look_after()
        while True:
            if shared.broken:
                shared.rebuild()
            if self._subscribed is not shared.session:
                self._subscribed = shared.subscribe((self._task,))
            try:
                # What others did before this reset concerns no episode of ours.
                doubt = doubt or shared.session.audit_previous()
                tell(shared.session.pop_notices())
                outcome = self._settled(shared.session, seed)
            except BarrierStuck as error:
                shared.give_up(error)
                raise
            except LOSSES as error:
                shared.give_up(error)
                if not attempts.again(free=shared.free):
                    raise
                continue
            feedback = self._task.begin(outcome, seed=seed)
            if shared.session.machine.notices:
                tell_at_once(shared.session.core)
            if doubt:
                feedback.doubt_the_one_before(doubt)
            self._playing = True
            self._last = feedback.observation.tobytes()
            return feedback

    def _settled(self, session: BlockingSession, seed: int) -> StepOutcome:
        """Set the start values, reset, and take the neutral steps whose last outcome begins the episode."""
        for name, text in self._task.start_values(np.random.default_rng(seed)).items():
            session.set(name, text)
        session.reset(seed)
        outcome = unobserved(self.interface)
        for _ in range(self._task.settle_steps):
            outcome = session.step_one(self._task.neutral)
        return outcome

    def step(self, action: Any) -> Feedback:
        """One step. An episode that cannot be told exactly ends truncated, with the reason."""
        shared = self.shared
        if shared.owner is not self or not self._playing:
            raise self._not_playing()
        task = self._task
        inputs = task.inputs(action)
        session = shared.session
        try:
            feedback = task.evaluate(session.step_one(inputs), seed=self._seed)
            if task.action_repeat > 1:
                for _ in range(task.action_repeat - 1):
                    if session.machine.notices:
                        self._look_at_notices(feedback)
                    if feedback.terminated or feedback.truncated:
                        break
                    reward = feedback.reward
                    feedback = task.evaluate(session.step_one(inputs), seed=self._seed)
                    feedback.reward += reward
        except TaskError:
            # What came cannot be told, and nothing can be said of what follows.
            self._playing = False
            raise
        except SessionClosed:
            shared.check_process()
            raise
        except BarrierStuck as error:
            self._playing = False
            shared.give_up(error)
            raise
        except LOSSES as error:
            self._playing = False
            shared.give_up(error)
            last = np.frombuffer(self._last, np.float32).copy()
            return self._task.cut(last, error.message, seed=self._seed)
        self._last = feedback.observation.tobytes()
        if session.machine.notices:
            self._look_at_notices(feedback)
        if feedback.terminated or feedback.truncated:
            self._playing = False
            self._audit(feedback)
        return feedback

    def _look_at_notices(self, feedback: Feedback) -> None:
        reset = tell(self.shared.session.pop_notices())
        if reset and not feedback.truncated:
            feedback.truncate(reset)

    def _audit(self, feedback: Feedback) -> None:
        try:
            reason = self.shared.session.audit()
        except OspBridgeError as error:
            reason = error.message
        tell(self.shared.session.core.pop_notices())
        if reason:
            self.shared.give_up(reason)
            feedback.truncate(reason)
        else:
            self.shared.budget.give_back()

    def _open(self) -> SharedSession:
        if self._closed:
            raise SessionClosed("this environment was closed")
        self.shared.check_process()
        return self.shared

    def _not_playing(self) -> OspBridgeError:
        shared = self._open()
        if shared.owner is not self and shared.owner is not None:
            return LocalProtocolError(
                f"another environment of this process was reset later and owns agent {self._name!r} now",
                hint="reset this one to take it back; environments that step in turn need an agent each",
            )
        return LocalProtocolError("the episode is over, or none was begun", hint="call reset first")

    def cancel_step(self) -> None:
        """Nobody is told what the latest step brought, an end neither: the next one truncates the episode."""
        if self.shared.owner is self:
            self._playing = bool(self._last)
            self.shared.session.cancel_step()

    def close(self) -> None:
        """Give the agent back where no other environment uses it."""
        if not self._closed:
            self._closed = True
            self.shared.release()
