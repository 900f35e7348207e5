"""Who waits for whom: seeded histories of the machine alone against a simple model, under a clock of the test's."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from ospbridge.daemon import lockstep as machine
from ospbridge.daemon.attachment import Attachment, Driver, State
from ospbridge.daemon.lockstep import GRACE, TRANSITIONS, Event, LockStep, ResetPolicy
from ospbridge.errors import AgentNotFound, AgentsInUse, AgentTaken, BarrierStuck, TaskError, ValueRejected
from ospbridge.interface import DrawnSeed, StepOutcome
from ospbridge.osp.timing import Limits
from tests.daemon.stage import agent, inputs, tasks

NAMES = "abcde"
LIMITS = Limits(step=30.0, reset=60.0)
LOST, DOUBTED, FOREIGN = "the simulator is gone", "the clock shows another step", "the world was reset"
A_MOMENT = 1e-6
"""Seconds that are no difference."""


class Model:
    """What is expected of attachments, told in the fewest words; ``ends`` are those of episodes since the last look."""

    def __init__(self) -> None:
        self.states: dict[Attachment, State] = {}
        self.acted: set[Attachment] = set()
        self.waited: dict[Attachment, float] = {}
        """Seconds that each has waited for others, without those for which deadlines stood."""
        self.ends: list[tuple[str, str]] = []

    def end(self, attachments: Iterable[Attachment], how: str, to: State = State.DONE) -> None:
        """Episodes of those who play are over; all of them are in that state then."""
        for attachment in attachments:
            if self.states[attachment] is State.PLAYING:
                self.ends.append((attachment.name, how))
            self.acted.discard(attachment)
            self.waited.pop(attachment, None)
            self.states[attachment] = to

    def of(self, *states: State) -> list[Attachment]:
        return [attachment for attachment, state in self.states.items() if state in states]

    def wait(self, attachments: Iterable[Attachment]) -> None:
        self.waited.update(dict.fromkeys(attachments, 0.0))


class World:
    """One history: what may happen is drawn, whatever is due then is done, and the model is compared."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.names = NAMES[: self.draw.randint(1, len(NAMES))]
        self.policy = self.draw.choice(list(ResetPolicy))
        self.model = Model()
        self.ends: list[tuple[str, str]] = []
        self.quorum = self.draw.randint(1, len(self.names))
        self.lockstep = LockStep(policy=self.policy, quorum=self.quorum, limits=LIMITS, on_episode=self.ended)
        self.now = 1000.0
        self.joined = True
        self.given_up = False
        self.held_until: dict[Driver, float] = {}
        self.quiet_since = 0.0
        """When somebody last asked, or ended an episode."""
        self.steps = 0
        processes = [Driver(f"process {at}", at + 1) for at in range(3)]
        self.drivers = [*processes, Driver("relay", 0), Driver("process 0 again", 1)]
        self.lockstep.take_agents(tasks(*map(agent, self.names)))

    def ended(self, attachment: Attachment, how: str, reason: str) -> None:
        self.ends.append((attachment.name, how))
        self.quiet_since = self.now
        assert attachment.state is State.DONE
        # Its own task's ends need no words, nor do those that its own process brought about.
        assert reason or how in {"terminated", "abandoned", "detached"}

    # --- what happens ----------------------------------------------------------------------------------------------

    def attach(self) -> None:
        try:
            found = self.lockstep.attach([self.draw.choice(self.names)], self.draw.choice(self.drivers))
        except (AgentNotFound, AgentTaken):
            return
        self.model.states.update(dict.fromkeys(found, State.ATTACHED))

    def some(self, *states: State) -> list[Attachment]:
        """One, or several of one driver and of different agents."""
        there = self.model.of(*states)
        if not there:
            return []
        first = self.draw.choice(there)
        others = [a for a in there if a.driver is first.driver and self.draw.random() < 0.5]
        return list({a.name: a for a in [*others, first]}.values())

    def ask(self) -> None:
        asking = [a for a in self.some(*State) if not a.held.missing]
        seed = self.draw.choice([0, 5, DrawnSeed(6)])
        abandoned = any(self.model.states[a] is State.PLAYING for a in asking)
        displaced = [d for a in asking if (d := a.held.driver) is not None and d is not a]
        self.lockstep.ask_reset(asking, seed, self.draw.randrange(3), self.now)
        self.model.end(asking, "abandoned", State.WAITING)
        if abandoned and self.policy is ResetPolicy.ANY:
            self.model.end(self.model.of(State.PLAYING), "truncated")
        self.model.end(displaced, "abandoned", State.ATTACHED)
        self.model.wait(asking)
        self.quiet_since = self.now

    def act(self) -> None:
        acting = [a for a in self.some(State.PLAYING) if not a.acted]
        self.lockstep.act(acting, [inputs(0.5)] * len(acting))
        self.model.acted |= set(acting)
        if not self.lockstep.step_due and acting:
            self.lockstep.await_step(self.now)
            self.model.wait(acting)

    def fail(self) -> None:
        for attachment in self.some(State.PLAYING)[:1]:
            self.lockstep.fail(attachment, TaskError("its task fails"), self.now)
            self.model.end([attachment], "failed")
            assert "its task fails" in str(attachment.not_playing())

    def leave(self) -> None:
        for attachment in self.some(*State):
            self.lockstep.leave(attachment, self.now, self.draw.choice(["", "its process died"]))
            self.model.end([attachment], "detached")
            del self.model.states[attachment]
            assert attachment.gone

    def rest(self) -> None:
        for attachment in self.some(State.PLAYING, State.DONE):
            self.lockstep.rest(attachment, self.now, "its upstream is away")
            self.model.end([attachment], "abandoned", State.ATTACHED)

    def suspend(self) -> None:
        driver = self.draw.choice(self.drivers)
        seconds = self.draw.choice([1.0, 20.0, 500.0])
        self.lockstep.deadlines.suspend(driver, self.now, seconds, "waits for weights")
        self.held_until[driver] = self.now + seconds

    def resume(self) -> None:
        for driver in list(self.held_until)[:1]:
            self.lockstep.deadlines.resume(driver, self.now)
            del self.held_until[driver]

    def lose(self) -> None:
        if self.joined:
            self.joined = False
            self.lockstep.cut_all(LOST, self.now)
            self.model.end(self.model.of(State.PLAYING), "truncated")

    def rejoin(self) -> None:
        """Some agents may be missing, or other ones."""
        if not self.joined:
            there = [name for name in self.names if self.draw.random() < 0.9]
            changed = [agent(name, low=self.draw.choice([-1.0] * 9 + [-5.0])) for name in there]
            self.lockstep.take_agents(tasks(*changed))
            self.model.end([a for a in self.model.of(State.WAITING) if a.held.missing], "", State.ATTACHED)
            self.joined = True

    def give_up(self) -> None:
        self.given_up = not self.joined and self.draw.random() < 0.3

    def pass_time(self) -> None:
        self.until(self.now + self.draw.choice([0.1, 1.5, 3.0, 29.0, 70.0]))

    # --- what is due -----------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """As whoever drives the machine does, with each wait that time ends."""
        lockstep = self.lockstep
        for _ in range(10):
            if self.joined and lockstep.step_due:
                self.step()
            elif self.joined and lockstep.reset_due(self.now):
                self.reset()
            elif not (self.take_late_steps() or self.refuse_late_resets()):
                break
        else:
            raise AssertionError("it never comes to rest")
        self.compare()

    def step(self) -> None:
        """The acts of all who play are one step, and nobody else's inputs are in it."""
        lockstep, model, playing = self.lockstep, self.model, tuple(self.lockstep.playing)
        self.steps += 1
        assert model.acted == set(playing)
        for name, held in lockstep.held.items():
            wanted = inputs(0.5) if any(a.name == name for a in playing) else held.task.neutral.tobytes()
            assert bytes(lockstep.actions[name]) == wanted
        kind = self.draw.random()
        if kind < 0.05:
            lockstep.fail_all(BarrierStuck("others do not vote"), self.now)
            model.end(playing, "failed")
        elif kind < 0.1:
            lockstep.repeating()
            lockstep.stepped(self.outcomes())
            self.lose()
            assert all(a.feedback is not None and a.feedback.reason == LOST for a in playing)
        else:
            ending = {name for name in self.names if self.draw.random() < 0.2}
            reason = self.draw.choice([DOUBTED, FOREIGN]) if kind < 0.15 else ""
            counts = [a.episode.steps + 1 for a in playing]
            ended = lockstep.stepped(self.outcomes(ending))
            lockstep.finish_action()
            if ended or reason:
                lockstep.end_episodes(self.now, reason=reason)
            assert counts == [a.episode.steps for a in playing]
            over = [a for a in playing if a.name in ending]
            for attachment in playing:
                model.acted.discard(attachment)
                model.waited.pop(attachment, None)
                if reason or (over and self.policy is ResetPolicy.ANY) or attachment in over:
                    model.end([attachment], "truncated" if reason or attachment not in over else "terminated")
            assert all(a.feedback is not None for a in playing)

    def outcomes(self, ending: Iterable[str] = ()) -> dict[str, StepOutcome]:
        return {
            name: StepOutcome(np.zeros(1, np.float32), np.array([1.0, name in ending], np.float32))
            for name in self.lockstep.held
        }

    def reset(self) -> None:
        waiting = self.model.of(State.WAITING)
        assert not self.model.of(State.PLAYING)
        if self.draw.random() < 0.1:
            self.lockstep.refuse(ValueRejected("it takes no start value"))
            self.model.end(waiting, "", State.ATTACHED)
            return
        assert len(waiting) >= self.quorum
        self.quorum = 1
        self.lockstep.begin(self.outcomes(), int(self.lockstep.next_reset.wanted_seed), self.now)
        self.model.end(self.model.of(State.DONE), "", State.ATTACHED)
        self.model.end(waiting, "", State.PLAYING)

    def take_late_steps(self) -> bool:
        waiting = [a for a in self.model.acted if a in self.model.waited]
        if not waiting or not self.lockstep.take_late_steps(self.now):
            return False
        assert abs(max(self.model.waited[a] for a in waiting) - LIMITS.step) < A_MOMENT
        late = [a for a in self.model.of(State.PLAYING) if a not in self.model.acted]
        assert late
        assert all("was not acted for within 30 s" in a.cut for a in late)
        self.model.end(late, "truncated")
        return True

    def refuse_late_resets(self) -> bool:
        away = "" if self.joined else LOST
        hint = "see its log" if self.given_up else ""
        before = self.lockstep.waiting
        if not self.lockstep.refuse_late_resets(self.now, away=away, given_up_hint=hint):
            return False
        for attachment in before:
            if attachment.state is not State.WAITING:
                in_time = self.model.waited[attachment] < LIMITS.reset - A_MOMENT
                assert self.model.waited[attachment] < LIMITS.reset + A_MOMENT
                assert isinstance(attachment.error, (BarrierStuck, AgentsInUse))
                assert isinstance(attachment.error, AgentsInUse) or not in_time or self.given_up
                self.model.end([attachment], "", State.ATTACHED)
        return True

    def until(self, end: float) -> None:
        """Time passes, and nothing else happens; whatever is due on the way is done in time."""
        for _ in range(200):
            self.settle()
            moments = [end]
            if self.lockstep.waiting:
                moments.append(self.lockstep.wakes_at(self.now))
            if self.model.acted:
                moments.append(self.lockstep.step_ends(self.now))
            then = min(moments)
            runs_from = min(max([self.now, *self.held_until.values()]), then)
            for attachment in self.model.waited:
                self.model.waited[attachment] += then - runs_from
            self.now = then
            if then == end:
                break
        else:
            raise AssertionError("time does not pass")
        self.settle()

    def compare(self) -> None:
        assert {a: a.state for a in self.lockstep.attachments} == self.model.states
        assert {a for a in self.lockstep.attachments if a.acted} == self.model.acted
        assert sorted(self.ends) == sorted(self.model.ends)
        assert set(self.lockstep.playing) == set(self.model.of(State.PLAYING))
        assert set(self.lockstep.waiting) == set(self.model.of(State.WAITING))
        assert self.lockstep.missing == len(self.lockstep.playing) - len(self.model.acted)
        waiting = self.model.of(State.WAITING)
        if waiting and not self.joined:
            assert not self.given_up
        elif len(waiting) >= self.quorum and not self.lockstep.playing:
            # Somebody is expected to ask too.
            grace = self.now < self.quiet_since + GRACE
            done = [a for a in self.model.of(State.DONE) if not a.held.missing]
            assert any(grace or self.now < self.held_until.get(a.driver, 0.0) for a in done)
        for attachment in self.model.of(State.ATTACHED, State.DONE):
            # Whoever steps all the same is told why not.
            assert str(attachment.not_playing())
        self.ends.clear()
        self.model.ends.clear()


HAPPENINGS: dict[Callable[[World], None], int] = {
    World.attach: 4,
    World.ask: 5,
    World.act: 20,
    World.fail: 1,
    World.leave: 1,
    World.rest: 1,
    World.suspend: 1,
    World.resume: 1,
    World.lose: 1,
    World.rejoin: 3,
    World.give_up: 1,
    World.pass_time: 4,
}


def test_nobody_waits_for_ever_or_steps_twice_whatever_happens_and_each_row_is_reached(
    sample: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = set()

    class Table(dict[Any, Any]):
        def __getitem__(self, row: tuple[State, Event]) -> Any:
            reached.add(row)
            return super().__getitem__(row)

    monkeypatch.setattr(machine, "TRANSITIONS", Table(TRANSITIONS))
    steps = 0
    for seed in sample(range(10_000), 300):
        world = World(seed)
        try:
            for happens in world.draw.choices(list(HAPPENINGS), list(HAPPENINGS.values()), k=120):
                happens(world)
                world.settle()
            # Nobody does anything any more.
            world.until(world.now + 700.0)
            assert not world.model.acted
            assert not world.model.waited
        except AssertionError as error:
            error.add_note(f"in the history of seed {seed}")
            raise
        steps += world.steps
    assert steps > 0
    assert reached == set(TRANSITIONS)
