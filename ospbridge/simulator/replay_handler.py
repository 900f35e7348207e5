"""One client's side of a replay: how far it is in the recorded conversation, and what it is answered.

Votes are taken in the recorded order, those of one step in any order among the agents; questions are answered as at
the same place of the recording, or at the nearest one before it. A client that does something else than the recorded
one is told of, and answered as far as the recording goes: a reset goes on with the next recorded reset, a step beyond
the recorded episode is acknowledged and never runs, and what nobody asked for is answered as by a simulator that has
no such thing.
"""

from __future__ import annotations

import heapq
import struct
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from ospbridge.errors import RemoteProtocolError
from ospbridge.observe.trace import Direction, describe
from ospbridge.observe.trace_round_trips import ACKNOWLEDGEMENTS
from ospbridge.osp import messages as osp
from ospbridge.osp.codes import Code
from ospbridge.osp.profile import PROFILES
from ospbridge.simulator.replay_script import Question, Script, agent_of, meaning
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from ospbridge.simulator.replay_script import Answer
    from ospbridge.simulator.replaying import ReplayMachine

__all__ = ["ReplayHandler", "Told", "What"]

REMIND_AFTER: Final = 1.0
"""Seconds that a step may lack votes before it is said whose."""
MOST_QUEUED: Final = 100_000
"""Answers of one client that wait for their time; a client that asks faster than recorded loses what is beyond it."""
_LEAVING: Final = frozenset({Code.END_COMMUNICATION, Code.RESET_COMMUNICATION})


class What(Enum):
    """What is worth knowing of a replay."""

    JOINED = "joined"
    LEFT = "left"
    DIFFERS = "differs"
    """The client did something else than the recorded one."""
    WAITS = "waits"
    """The recorded step had more votes."""
    OVER = "over"
    """The recording has no more steps and resets."""
    STANDS_STILL = "stands still"
    """A step or reset that cannot run, because the recording has none."""


@dataclass(frozen=True, slots=True)
class Told:
    """Something worth knowing. ``conversation`` from 1, ``time`` where in the trace, in seconds since it began."""

    what: What
    conversation: int
    time: float
    text: str


class ReplayHandler:
    """The server's end of one connection."""

    def __init__(self, machine: ReplayMachine, handler_id: int, peer: Hashable, script: Script) -> None:
        self.id = handler_id
        self.peer = peer
        self.script = script
        self.machine = machine
        self.last_heard = 0.0
        self.heard = False
        """Whether the client sent anything after its INIT."""
        profile = next(each for each in PROFILES.values() if each.init_form is script.form)
        self._end = profile.end_marker
        self._one_by_one = profile.completions_one_by_one
        self._at = 0
        """The first vote of the step, or reset, that comes next."""
        self._given: set[int] = set()
        """Those of its votes that came."""
        self._reset_last: int | None = None
        """The last vote of a reset that was just given, until a step is voted for."""
        self._uses: Counter[tuple[bytes, int]] = Counter()
        self._held: deque[Answer] = deque()
        """Completions that wait for an acknowledgement."""
        self._queue: list[tuple[float, int, bytes]] = []
        self._queued = 0
        self._remind_at: float | None = None
        self._leaving = False

    # --- time ------------------------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """When ``handle_timer`` wants to be called."""
        times = [self._queue[0][0]] if self._queue else []
        if self._remind_at is not None:
            times.append(self._remind_at)
        return min(times, default=None)

    def handle_timer(self, now: float) -> None:
        """Send what is due."""
        while self._queue and self._queue[0][0] <= now:
            self.machine.send(self.id, heapq.heappop(self._queue)[2])
        if self._remind_at is not None and self._remind_at <= now:
            self._remind_at = None
            self._tell_who_is_missing()
        if self._leaving and not self._queue:
            self.machine.close(self)

    def _play(self, answers: Iterable[Answer], now: float) -> None:
        speed = self.machine.speed
        for answer in answers:
            if speed is None:
                self.machine.send(self.id, answer.data)
            elif len(self._queue) >= MOST_QUEUED:
                self.machine.problem("answer beyond the limit of those that wait")
            else:
                self._queued += 1
                heapq.heappush(self._queue, (now + answer.delay / speed, self._queued, answer.data))

    # --- datagrams -------------------------------------------------------------------------------------------------

    def greet(self, now: float) -> None:
        """Answer the INIT, as the recorded simulator did."""
        self.last_heard = now
        self._play([self.script.greeting, *self.script.opening], now)

    def receive(self, data: bytes, now: float) -> None:
        """A datagram of the client."""
        self.heard = True
        self.last_heard = now
        if self._held:
            self._release(now)
        code = data[0] if data else -1
        if code in ACKNOWLEDGEMENTS:
            return
        data = meaning(data)
        if code in {Code.NEXT_SIMULATION_STEP, Code.RESET_SIMULATION}:
            self._vote(data, now)
        else:
            self._answer(data, code, now)

    def _release(self, now: float) -> None:
        """Send completions until one that waited for an acknowledgement, where this kind of server does."""
        batch = [self._held.popleft()]
        while self._held and not (self._one_by_one and self._held[0].after_ack):
            batch.append(self._held.popleft())
        self._play(batch, now)

    def give_way(self) -> None:
        """Close, for another client's sake."""
        self._tell(
            What.LEFT, f"its client, silent for longest, gives way to another after {self._progress()}"
        )
        self.machine.close(self)

    # --- questions -------------------------------------------------------------------------------------------------

    def _answer(self, data: bytes, code: int, now: float) -> None:
        found = self._recorded(data, code)
        if found is not None:
            self._play(found.answers, now)
        elif (refusal := _refusal(data, end=self._end)) is not None:
            self.machine.send(self.id, refusal)
        else:
            self.machine.problem("unknown command")
        if code in _LEAVING and (
            found is None or found.answers
        ):  # a real server may miss it, and hear the next one
            self._leaving = True
            self._tell(What.LEFT, f"its client left after {self._progress()}")
            if not self._queue:
                self.machine.close(self)

    def _recorded(self, data: bytes, code: int) -> Question | None:
        """The question as it stands in the recording: at this place, else before it, else behind it."""
        asked = self.script.questions.get(data)
        if asked is None:
            if code not in _LEAVING:
                self._differs(f"the recording has no {_words(data)}")
            if code != Code.SET_VALUE:
                return None
            # What else was written there was accepted as well, or refused.
            key = next((key for key in self.script.questions if key[:5] == data[:5]), None)
            if key is None:
                return None
            data, asked = key, self.script.questions[key]
        place = self._at + len(self._given)
        first, behind = bisect_left(asked, place, key=_after), bisect_right(asked, place, key=_after)
        use = self._uses[data, place]
        self._uses[data, place] += 1
        if first + use < behind:
            return asked[first + use]
        before = (asked[at] for at in reversed(range(behind)) if asked[at].answers)
        return next(before, None) or next((question for question in asked if question.answers), asked[0])

    # --- votes -----------------------------------------------------------------------------------------------------

    def _window(self) -> range:
        """The votes of what runs next: up to the one with which it ran, or to the end of the recording."""
        votes = self.script.votes
        end = next((at for at in range(self._at, len(votes)) if votes[at].complete), len(votes) - 1)
        return range(self._at, end + 1)

    def _vote(self, data: bytes, now: float) -> None:
        agent, step = agent_of(data), data[0] == Code.NEXT_SIMULATION_STEP
        at = self._expected_step(agent) if step else self._expected_reset(data, now)
        if at is None:
            return
        if at < 0:
            self._stand_still(data)
            return
        vote = self.script.votes[at]
        if vote.data != data:
            self._differs(f"expected {_words(vote.data)}, got {_words(data)}", at)
        self._given.add(at)
        self._play(vote.acks, now)
        if step:
            self._reset_last = None
        if not vote.complete and vote.completions:
            self._play(vote.completions, now)
        self._run_if_complete(now)

    def _expected_step(self, agent: bytes) -> int:
        """Which vote it is, -1 for none."""
        votes = self.script.votes
        return next(
            (
                at
                for at in self._window()
                if at not in self._given and votes[at].is_step and votes[at].agent == agent
            ),
            -1,
        )

    def _expected_reset(self, data: bytes, now: float) -> int | None:
        """Which vote it is, -1 for none, None where it was seen to."""
        votes = self.script.votes
        window = self._window()
        coming = [at for at in window if at not in self._given]
        resets = [at for at in coming if not votes[at].is_step]
        # Behind steps that ran it comes too early; a step that was under way and never ran is left out.
        if resets and (resets[0] == coming[0] or not votes[window[-1]].is_step):
            return resets[0]
        if self._reset_last is not None and window:
            self._differs(f"{_words(data)} once more than recorded")
            again = votes[self._reset_last]
            self._play([*again.acks, *again.completions], now)
            return None
        at = self.script.next_reset(self._at)
        if at is not None:
            skipped = sum(vote.complete and vote.is_step for vote in votes[self._at : at])
            self._differs(f"{_words(data)} comes {pluralize(skipped, 'step')} before the recorded one")
        elif self.machine.loop:
            at = self.script.next_reset(0)
            self._uses.clear()
            if at is not None and window:
                self._differs(f"{_words(data)}, where the recorded client made {len(window)} steps more")
        if at is None:
            return -1
        self._at = at
        self._given.clear()
        return at

    def _run_if_complete(self, now: float) -> None:
        votes = self.script.votes
        window = self._window()
        last = votes[window[-1]]
        missing = [at for at in window if votes[at].is_step == last.is_step and at not in self._given]
        self._remind_at = None
        if not last.complete or missing:
            if any(votes[at].agent not in {votes[given].agent for given in self._given} for at in missing):
                self._remind_at = now + REMIND_AFTER
            return
        if not last.is_step:
            self._reset_last = window[-1]
        self.machine.count(last)
        self._at = window[-1] + 1
        self._given.clear()
        self._held = deque(last.completions)
        self._release(now)
        if self._at >= len(votes):
            way_on = "a reset begins it again" if self.machine.loop else "from here on the world stands still"
            self._tell(What.OVER, f"the recording ends after {self._progress()}; {way_on}", len(votes) - 1)

    def _stand_still(self, data: bytes) -> None:
        """Acknowledge what will never run: to a client it looks as if another one were missing."""
        step = data[0] == Code.NEXT_SIMULATION_STEP
        votes = self.script.votes
        if self._at >= len(votes):
            why = "the recording is over"
        elif step and not votes[self._window()[-1]].is_step:
            why = "the recorded client reset the world here"
        elif step:
            why = "no such vote is among those of the recorded step"
        else:
            why = "no reset is recorded from here on"
        self._tell(What.STANDS_STILL, f"{_words(data)} never runs: {why}")
        ack = bytes((data[0] + 1,)) + agent_of(data)
        self.machine.send(self.id, ack + (b"\x78" if self._end else b""))

    # --- telling ---------------------------------------------------------------------------------------------------

    def _progress(self) -> str:
        done = [vote for vote in self.script.votes[: self._at] if vote.complete]
        steps = sum(vote.is_step for vote in done)
        return f"{steps} of its steps and {len(done) - steps} of its resets"

    def _tell_who_is_missing(self) -> None:
        votes = self.script.votes
        missing = {votes[at].agent for at in self._window() if at not in self._given and votes[at].is_step}
        ids = sorted(struct.unpack("<i", agent)[0] for agent in missing if len(agent) == 4)
        if ids:
            whose = "agents" if len(ids) > 1 else "agent"
            self._tell(What.WAITS, f"it waits for votes for {whose} {', '.join(map(str, ids))}, as recorded")

    def _differs(self, text: str, at: int | None = None) -> None:
        self._tell(What.DIFFERS, text, at)

    def _tell(self, what: What, text: str, at: int | None = None) -> None:
        votes = self.script.votes
        at = min(self._at if at is None else at, len(votes) - 1)
        time = votes[at].time if votes else 0.0
        if votes and what not in {What.LEFT, What.OVER}:
            kind = "step" if votes[at].is_step else "reset"
            text = f"{kind} {votes[at].number}: {text}"
        self.machine.tell(Told(what, self.script.number, time, text))


def _after(question: Question) -> int:
    return question.after


def _words(data: bytes) -> str:
    return describe(data, Direction.CLIENT_TO_SERVER)


def _refusal(data: bytes, *, end: bool) -> bytes | None:
    """How a simulator answers that has no such agent, event or value; None for what is no request."""
    try:
        request = osp.decode_request(data)
    except RemoteProtocolError:
        return None
    answer: osp.Message | None = None
    match request:
        case osp.GetAgentOverview():
            answer = osp.AgentOverview(0)
        case osp.GetAgentInfo():
            answer = osp.AgentInfo(0, 0, 0, 0, "")
        case osp.RegisterForAgent(agent_id):
            answer = osp.RegisterForAgentAck(agent_id, 0)
        case osp.DeregisterFromAgent(agent_id):
            answer = osp.DeregisterFromAgentAck(agent_id, 1)
        case osp.RegisterForEvent():
            answer = osp.RegisterForEventAck(0)
        case osp.DeregisterFromEvent(event_id):
            answer = osp.DeregisterFromEventAck(event_id)
        case osp.GetValueIds():
            answer = osp.ValueIds(0)
        case osp.GetValue():
            answer = osp.ValueContent(-1, "")
        case osp.SetValue(value_id):
            answer = osp.SetValueAck(value_id, 2)
        case osp.RegisterForValue(ids):
            answer = osp.RegisterForValueAck((0,) * len(ids))
        case osp.DeregisterFromValue(ids):
            answer = osp.DeregisterFromValueAck((0,) * len(ids))
        case osp.End():
            answer = osp.EndAck()
        case osp.ResetCommunication():
            answer = osp.ResetCommunicationAck()
    return None if answer is None else answer.encode(end=end)
