"""One step that is under way: what was sent, acknowledged and completed so far, message by message.

A completion says which agent it is of, but not which step. So it may be

- this step's: all our votes are acknowledged (``done``);
- too early, since a vote of ours is not acknowledged yet (``strange``): datagrams overtook each other, or it is a late
  one, or the step ran by the copy of a vote, without ours;
- the same as an earlier step brought (``familiar``): a late one, or an agent at rest;
- the second one of its agent, and unlike the first (``disputed``);
- contradicted by the clock, which shows that this step has not run (``disowned``).

``barrier`` drives the step, and asks the repository where a completion is in doubt.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from ospbridge.osp.messages import NextSimulationStepAck, StepCompleted, Truncated, ValueContent
from ospbridge.osp.step.early import acknowledged_last, behind_rule, believe_rule
from ospbridge.osp.step.overcounting import (
    can_hold_back,
    counted_twice,
    holds_back,
    votes_alone,
)
from ospbridge.osp.step.straight import VOTES_AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.errors import OutputsIncomplete
    from ospbridge.osp.client.machine import ClientMachine, Reply
    from ospbridge.osp.step.straight import StraightWay
    from ospbridge.osp.step.votes import Vote

__all__ = ["StepUnderWay"]

TOO_SOON: Final = 0.5
"""Of the time that a vote and its acknowledgement take at least: nothing comes of a vote in less."""
STRANGE_KEPT: Final = 256
"""Completions of one step that came too early to be its own; of more nothing new is learnt."""
RESENT: Final = 1.5
"""Seconds that a server has to send a completion again by itself."""


class StepUnderWay:
    """``way``: the straight way on which the step began, as far as that was walked; None: nothing was sent yet."""

    __slots__ = (
        "began",
        "behind",
        "changed",
        "cut",
        "disowned",
        "disowned_at",
        "disputed",
        "done",
        "doubled",
        "early",
        "familiar",
        "followed",
        "heard",
        "holding",
        "last",
        "late",
        "m",
        "moved_at",
        "owed",
        "owing",
        "resent",
        "resent_at",
        "seen_moved",
        "sequential",
        "shown",
        "silent",
        "strange",
        "unacked",
        "unreadable",
        "unseen",
        "unsent",
        "values",
        "voted",
        "votes",
        "waited",
    )

    def __init__(self, m: ClientMachine, votes: Sequence[Vote], way: StraightWay | None = None) -> None:
        self.m = m
        self.began = self.moved_at = m.now if way is None else way.began
        """``moved_at``: when the clock was last not known to have moved by one step."""
        self.behind = m.lateness.behind
        """How late completions were known to come when it began."""
        self.seen_moved = False
        """The clock was seen to have moved by one step while completions were missing."""
        self.shown: dict[int, StepCompleted] = {}
        """What the repository showed of the missing ones when it was last looked at."""
        self.changed = False
        """It changed between two looks."""
        self.unseen = False
        """It was not seen to be new: it may be what the step before brought."""
        self.unreadable: OutputsIncomplete | None = None
        """Why missing completions cannot be read back."""
        self.disowned: dict[int, StepCompleted] = {}
        """Completions that the clock has disowned."""
        self.disowned_at = 0.0
        self.heard = m.now
        """When the latest acknowledgement or completion of this step came: silence begins behind that."""
        self.voted = self.began
        """When the latest vote was sent."""
        self.votes = {vote.agent_id: vote for vote in votes}
        self.last = votes[-1].agent_id
        """The agent whose vote is sent behind all others ..."""
        self.sequential = not m.profile.pipelining
        """... and only when these are acknowledged."""
        self.unsent = deque(votes if way is None else way.unsent)
        self.unacked = set() if way is None else way.unacknowledged
        """Agents whose vote was sent, and not acknowledged."""
        self.done = {} if way is None else way.completions
        """Completions that are taken for this step's, by agent."""
        self.cut: dict[int, Truncated] = {}
        """Those of them that the server cut at its datagram limit."""
        self.disputed: set[int] = set()
        """Agents of whom two completions came: which is this step's?"""
        self.followed: set[int] = set()
        """Those of them of whose completions no earlier step brought either."""
        self.late: dict[int, float] = {}
        """When a completion came that seems to be the one of the step before, which was taken for lost."""
        self.familiar: set[int] = set()
        """Agents whose completion is one that an earlier step brought too: late, or an agent at rest."""
        self.early = False
        """A completion came too early, and is none that an earlier step brought."""
        self.holding = False
        """``holding`` sees right now whether the world waits: no acknowledgement that comes sends the last vote."""
        self.strange: list[StepCompleted] = []
        """Completions that came too early to be this step's."""
        self.doubled = m.overcounted and m.shares_the_barrier and not can_hold_back(m)
        """A vote may have been counted for another one of ours, and nothing will tell."""
        self.resent = False
        """A vote was given again, since the first one seemed to be lost ..."""
        self.resent_at = 0.0
        """... at that time."""
        self.silent = False
        """The simulator did not answer the latest question."""
        self.waited = False
        """The world was seen to wait when all our votes were in."""
        self.values: dict[int, str] = {}
        """Observed variables that were pushed, by local value id."""
        self.owed = 0
        """So many more of them are announced; the completion is acknowledged behind the last one."""
        self.owing: Vote | None = None
        """The vote of the agent whose completion has announced them."""

    @property
    def finished(self) -> bool:
        return len(self.done) == len(self.votes) and not self.owed

    @property
    def mixed_up(self) -> bool:
        """A vote of ours or of somebody else's may have been counted for another one."""
        m = self.m
        if m.foreign and (self.early or self.unacked or self.unsent):
            # The step ran without our vote, which then counts for the next one or was taken for an acknowledgement;
            # or else only the vote's acknowledgement was slow or got lost: that looks the same.
            return True
        if not m.shares_the_barrier:
            return False
        # A vote that is not acknowledged may have been lost on a step that ran without it: then none is left over.
        lost = m.overcounted and bool(self.unacked)
        return self.doubled or (self.early and m.doubles) or lost or bool(self.unsent)

    @property
    def overtaken(self) -> bool:
        """The step whose completion is lost may have run before our votes came in.

        Where others vote and the network repeats datagrams, two votes of somebody else can run a step without ours.
        """
        m = self.m
        return bool(m.foreign) and not self.waited and (m.doubles or not m.punctual)

    @property
    def held(self) -> bool:
        """Only the last vote is missing, or the only one, and is held back (see ``holding``)."""
        return len(self.unsent) == 1 and not self.unacked and (self.holding or holds_back(self.m))

    @property
    def hasty(self) -> bool:
        """It is too early to believe that the completion is lost: others came behind what the clock showed."""
        return self.m.now - self.moved_at < min(2.0 * self.m.lateness.behind, self.m.limits.step / 4.0)

    @property
    def may_ask_first(self) -> bool:
        """A question is answered, or lost, but never taken for the acknowledgement that the server waits for."""
        return not (self.m.profile.eats_awaited_acks or self.unsent)

    @property
    def may_be_resent(self) -> bool:
        """The server may be about to send the missing completion again, unless that is acknowledged before."""
        if self.silent or not (self.seen_moved or not self.m.clock.available):
            return False
        return self.m.now - (self.moved_at if self.seen_moved else self.began) < RESENT

    @property
    def disowned_for_long(self) -> bool:
        """The clock has disowned what came, and stood still since: but all votes are in, and nothing else came."""
        m = self.m
        return (
            len(self.disowned) == len(self.votes)
            and not self.done
            and not (self.unacked or self.unsent or self.doubled or self.early or self.cut)
            and m.now - self.disowned_at >= m.limits.step / 2.0
            and not any(m.recalls(reply) for reply in self.disowned.values())
        )

    @property
    def missing(self) -> list[int]:
        return [agent_id for agent_id in self.votes if agent_id not in self.done]

    def send(self) -> None:
        """The first vote, or as many as may be under way."""
        self.send_next()
        if holds_back(self.m):
            self.sequential = True
        while not self.sequential and self.unsent and len(self.unacked) < VOTES_AT_ONCE:
            self.send_next()

    def send_next(self) -> None:
        vote = self.unsent.popleft()
        self.unacked.add(vote.agent_id)
        self.voted = self.m.now
        self.m.send_bytes(vote.datagram)

    def take(self, reply: Reply) -> None:
        if type(reply) is StepCompleted:
            self._completion(reply, None)
        elif type(reply) is NextSimulationStepAck:
            self._acknowledgement(reply.agent_id)
        elif type(reply) is ValueContent and self.owed and reply.value_id in self.m.observed:
            self._value(reply)
        elif type(reply) is Truncated and type(reply.message) is StepCompleted:
            self._completion(reply.message, reply)
        else:
            self.m.unexpected(reply)

    def _may_be_lost_one(self, reply: StepCompleted) -> bool:
        """Whether it may be that of the step before, which was taken for lost and read back."""
        lateness = self.m.lateness
        return lateness.awaits(reply.agent_id) and (
            lateness.doubts(reply.agent_id) or not self.m.remembered().differs(reply)
        )

    def _acknowledgement(self, agent_id: int) -> None:
        if agent_id in self.unacked:
            self.unacked.discard(agent_id)
            self.heard = self.m.now
            if self.sequential and not (self.resent or self.early):
                # One that comes behind completions says nothing of how quick they may be.
                self.m.lateness.acknowledged(self.m.now - self.voted)
            if self.resent and self.early:
                # The step ran by the repetition, whose acknowledgement is lost: this one is for the first request,
                # which was only late, and counts for a step that is still to come.
                self.doubled = self.m.doubles = self.m.doubled = True
            if self.unsent and not (self.unacked and self.sequential):
                if not self.held:
                    self.send_next()
            elif not self.unacked and not self.early:
                self.m.lateness.acknowledged_behind = 0
            elif not self.unacked and acknowledged_last(self, agent_id):
                believe_rule(self)
            return
        if agent_id in self.m.owed_acks:
            self.m.owed_acks.discard(agent_id)
        elif agent_id in self.votes:
            # The copy of a last vote counts for the next step, if at all: without that vote this one does not run.
            too_late = self.sequential and not self.unsent and agent_id == self.last
            counted_twice(self.m, agent_id, too_late=too_late)
            self.doubled = self.doubled or votes_alone(self.m) or not can_hold_back(self.m)
        self.m.anomaly(f"a vote of agent {agent_id} was acknowledged twice", astray=True)

    def _completion(self, reply: StepCompleted, cut: Truncated | None) -> None:
        vote = self.votes.get(reply.agent_id)
        if vote is None:
            self.m.unexpected(reply)
            return
        early = bool(self.unacked or self.unsent)
        known = (early or self.m.disturbed) and self.m.recalls(reply)
        if behind_rule(self, reply.agent_id) and cut is None:
            self._completed_first(reply, vote)
            return
        if early or not reply.observed:
            self.m.send_bytes(vote.done)
        if early:
            self._too_early(reply, known=known)
            return
        if reply.agent_id in self.done:
            if self.done[reply.agent_id] != reply:
                self.disputed.add(reply.agent_id)
                if not known and reply.agent_id not in self.familiar:
                    self.followed.add(reply.agent_id)
            self.m.anomaly(f"completion of agent {reply.agent_id} came twice in one step", astray=True)
            return
        if known and reply.agent_id not in self.late and self._may_be_lost_one(reply):
            self.late[reply.agent_id] = self.m.now
            self.m.anomaly(f"completion of agent {reply.agent_id} came late", astray=True)
            return
        self.done[reply.agent_id] = reply
        self.heard = self.m.now
        if reply.agent_id in self.late:
            self.m.lateness.came_behind(reply.agent_id, self.late[reply.agent_id])
        if known:
            self.familiar.add(reply.agent_id)
        if cut is not None:
            self.cut[reply.agent_id] = cut
        if reply.observed:
            self.owed, self.owing = reply.observed, vote

    def _completed_first(self, reply: StepCompleted, vote: Vote) -> None:
        """It came before the last acknowledgement, as this simulator's do: believed when that comes."""
        self.early = True
        self._keep_aside(reply)
        if reply.observed:
            self.owed, self.owing = reply.observed, vote
        else:
            self.m.send_bytes(vote.done)

    def _too_early(self, reply: StepCompleted, *, known: bool) -> None:
        if known:
            self.m.anomaly(f"completion of agent {reply.agent_id} came late or twice", astray=True)
            return
        # Acknowledgements precede completions on nearly every server: this one is late or doubled, or the barrier
        # counted a vote twice. The clock will tell; what it carries is not believed.
        self.early = True
        self.m.lateness.came_early(reply.agent_id, self.m.now)
        self._keep_aside(reply)
        # Before all votes are even sent, or arrived, it can only be that one of them was counted twice.
        if self.unsent or (self.sequential and self.m.now - self.voted < TOO_SOON * self.m.lateness.quickest):
            self.doubled = self.m.doubled = True
        self.m.anomaly(
            f"a completion of agent {reply.agent_id} came before its vote was acknowledged", astray=True
        )

    def _keep_aside(self, reply: StepCompleted) -> None:
        if len(self.strange) < STRANGE_KEPT:
            self.strange.append(reply)

    def _value(self, reply: ValueContent) -> None:
        self.values[reply.value_id] = reply.content
        self.owed -= 1
        if not self.owed and self.owing is not None:
            self.m.send_bytes(self.owing.done)

    def forgo_values(self) -> None:
        """Pushed values are lost; they can be read at any time, unlike the step."""
        if self.owed:
            self.owed = 0
            assert self.owing is not None
            self.m.send_bytes(self.owing.done)

    def distrust(self) -> None:
        """What was believed to be this step's completion was an older one."""
        for agent_id in self.done:
            self.m.lateness.came_behind(agent_id, self.m.now)
        self.disowned, self.done = (self.done if not self.disputed and not self.cut else {}), {}
        self.disowned_at = self.m.now
        self.cut.clear()
        self.disputed.clear()
        self.followed.clear()
        self.familiar.clear()
        self.m.anomaly("a completion of an earlier step was taken for this one", astray=True)
