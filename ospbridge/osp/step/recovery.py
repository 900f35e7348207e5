"""What to do when a step or a reset meets silence: the decision table, as data.

A step must run exactly once, but its two confirmations can be lost. The evidence is: which of our votes were
acknowledged, what the simulator's clock shows, whether somebody else holds agents, and whether this session has ever
seen a datagram arrive later than its patience. ``STEP_TABLE`` and ``RESET_TABLE`` map evidence to an action; the
first row that fits counts. The exchanges in ``barrier`` consult them and decide nothing by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from ospbridge.osp.client.clock import Moved

__all__ = ["RESET_TABLE", "STEP_TABLE", "Acknowledged", "Action", "Evidence", "Row", "decide"]


class Acknowledged(Enum):
    """How many of our votes were acknowledged."""

    ALL = "all votes"
    ALL_BUT_ONE = "all votes but one"
    FEWER = "fewer"


class Action(Enum):
    """What the table can say."""

    WAIT = "the votes are counted: wait for the completions, if need be until the limit, and never resend"
    RESTORE = "it ran and its completion is lost: read the results back from the repository"
    BELIEVE = "the clock does not count steps: accept the completions that it contradicted, and do without it"
    RESEND = "the vote is lost: send it again, once"
    REPEAT = (
        "nobody else controls this world: vote again for all agents, and await the completions of both resets"
    )
    POLL = "undecided: keep reading the clock until the limit, and never resend"
    GIVE_UP = "undecidable, and waiting will not help: truncate the episode with the reason, and rebuild the session"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known after a silence."""

    acknowledged: Acknowledged
    moved: Moved
    sole: bool
    """No other client controls an agent."""
    punctual: bool
    """No datagram ever arrived later than the patience in this session."""
    resent: bool = False
    """The request was sent again already."""
    hasty: bool = False
    """Completions of this simulator came later than now, although the clock had moved."""
    disowned: bool = False
    """Completions came that the clock has disowned, long ago, and no others since."""
    doubled: bool = False
    """A vote may have been counted for another one: it was acknowledged twice, or a completion came before its vote
    was acknowledged, while several agents or clients vote."""
    trusted: bool = False
    """Before this nothing was ever lost, late or doubled in this session: what was acknowledged are these votes."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: the action, the reason, and what the evidence must be (None: anything)."""

    action: Action
    reason: str
    acknowledged: frozenset[Acknowledged] | None = None
    moved: Moved | None = None
    sole: bool | None = None
    punctual: bool | None = None
    resent: bool | None = None
    hasty: bool | None = None
    disowned: bool | None = None
    doubled: bool | None = None
    trusted: bool | None = None

    def fits(self, evidence: Evidence) -> bool:
        return (
            (self.acknowledged is None or evidence.acknowledged in self.acknowledged)
            and (self.moved is None or evidence.moved is self.moved)
            and (self.sole is None or evidence.sole is self.sole)
            and (self.punctual is None or evidence.punctual is self.punctual)
            and (self.resent is None or evidence.resent is self.resent)
            and (self.hasty is None or evidence.hasty is self.hasty)
            and (self.disowned is None or evidence.disowned is self.disowned)
            and (self.doubled is None or evidence.doubled is self.doubled)
            and (self.trusted is None or evidence.trusted is self.trusted)
        )


_ALL: Final = frozenset({Acknowledged.ALL})
_ONE: Final = frozenset({Acknowledged.ALL_BUT_ONE})
_SOME: Final = frozenset({Acknowledged.ALL_BUT_ONE, Acknowledged.FEWER})
_FEWER: Final = frozenset({Acknowledged.FEWER})

STEP_TABLE: Final = (
    Row(Action.GIVE_UP, "the clock shows something other than one step", moved=Moved.OTHERWISE),
    Row(
        Action.GIVE_UP,
        "a vote was counted twice and the step ran before all votes were in",
        moved=Moved.ONCE,
        doubled=True,
    ),
    Row(
        Action.WAIT, "this simulator completes steps later than its clock shows", moved=Moved.ONCE, hasty=True
    ),
    Row(Action.RESTORE, "the step ran, its completion is lost", moved=Moved.ONCE),
    Row(
        Action.BELIEVE,
        "completions came for all votes, and nothing follows them",
        acknowledged=_ALL,
        moved=Moved.NO,
        sole=True,
        disowned=True,
        doubled=False,
    ),
    Row(
        Action.WAIT,
        "our votes are counted: the world takes long, or other clients have not voted",
        acknowledged=_ALL,
    ),
    Row(Action.POLL, "other clients control agents: never vote twice", sole=False),
    Row(Action.POLL, "no clock can tell whether the vote was lost", moved=Moved.UNKNOWN),
    Row(Action.GIVE_UP, "the vote was sent again and is still not acknowledged", resent=True),
    Row(Action.POLL, "datagrams of this session come late: the vote may still arrive", punctual=False),
    Row(Action.RESEND, "the vote is lost", acknowledged=_ONE, moved=Moved.NO),
    Row(Action.GIVE_UP, "several votes are in doubt", acknowledged=_FEWER),
)

RESET_TABLE: Final = (
    Row(Action.WAIT, "a reset may take long", acknowledged=_ALL, hasty=True),
    Row(Action.RESTORE, "the reset ran, its completion is lost", moved=Moved.ONCE),
    Row(Action.RESTORE, "the reset ran, its completion is lost", moved=Moved.OTHERWISE),
    Row(
        Action.POLL,
        "other clients control agents: never vote twice",
        acknowledged=_SOME,
        sole=False,
    ),
    Row(Action.WAIT, "our votes are counted, those of others are missing", sole=False),
    Row(
        Action.WAIT,
        "the votes are counted, and the reset is not done yet",
        acknowledged=_ALL,
        moved=Moved.NO,
        trusted=True,
    ),
    Row(Action.REPEAT, "nobody else controls an agent", sole=True),
)


def decide(table: tuple[Row, ...], evidence: Evidence) -> Row:
    """The first row of ``table`` that fits. Both tables are complete: a test walks all evidence there is."""
    return next(row for row in table if row.fits(evidence))
