"""What an environment, an observer or ``ospbridge status`` asks of the daemon.

Every request has one reply. Arrays travel as raw little-endian numbers, and one message may speak for many agents. The
first request of a connection is ``Hello``; its layout up to ``version`` never changes, so that two releases can at
least tell each other that they do not fit.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec

__all__ = [
    "LONGEST_WAIT",
    "MOST_NAMED",
    "VERSION",
    "Again",
    "AnnotatedStep",
    "Attach",
    "Detach",
    "Hello",
    "HubRequest",
    "MomentsSince",
    "Note",
    "Observe",
    "Reset",
    "Status",
    "Step",
]

VERSION: Final = 5
"""Of the requests and replies, as ``Hello`` and ``Welcome`` tell it."""
LONGEST_WAIT: Final = 10.0
"""Seconds for which an observer's question may stay open."""
MOST_NAMED: Final = 2**16
"""Agents that one request may name or act for: of the smallest ones a message could hold twenty millions."""

T = TypeVar("T")
Few: TypeAlias = Annotated[list[T], msgspec.Meta(max_length=MOST_NAMED)]
Seed: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
WeightsNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """The first request: which version of these messages, and who asks."""

    version: int
    client: str = ""
    """A name for people: the program that attaches."""
    pid: int = 0
    process: str = ""
    """What tells it from processes of other hosts and containers that have its ``pid``; empty: nothing does."""


class Attach(msgspec.Struct, frozen=True, array_like=True, tag="attach"):
    """Take agents by name or shell glob, one attachment each, all or none; none named: the only free one."""

    agents: Few[str] = []
    annotates: bool = False
    """Every step will be an ``AnnotatedStep``."""
    meant: Few[tuple[str, str]] = []
    """Where several agents fit, those of one of these names and types, or globs; daemons before these take all."""


class Reset(msgspec.Struct, frozen=True, array_like=True, tag="reset"):
    """Wait for the next reset of all agents of this connection, with ``seed``, 0: don't care.

    ``thread`` identifies the caller's thread within its process.

    ``drawn``: nobody gave that seed; one that another client was given counts.
    """

    seed: Seed = 0
    thread: int = 0
    drawn: bool = False


class Step(msgspec.Struct, frozen=True, array_like=True, tag="step"):
    """One step: (agent, action as float32 bytes). The action is last, so that a sender can fill it in place."""

    moves: Few[tuple[str, bytes]]


class Again(msgspec.Struct, frozen=True, array_like=True, tag="again"):
    """One step more of the agents of the latest ``Step`` of this connection: their actions behind one another.

    As float32 bytes, in the order and sizes of that step. No reset, and nothing that takes agents or gives them back,
    may lie in between.
    """

    actions: bytes


class Note(msgspec.Struct, frozen=True, array_like=True):
    """What an action was drawn from: float32 bytes, the logarithm of its probability, which weights acted.

    ``drawn``: the action as it was drawn, float32 bytes, where the one that is given was made of it; else empty.
    """

    dist_inputs: bytes
    logp: float
    weights_seq_no: WeightsNumber | None = None
    drawn: bytes = b""


class AnnotatedStep(msgspec.Struct, frozen=True, array_like=True, tag="noted"):
    """One step of environments that annotate: (agent, action as float32 bytes, what it was drawn from)."""

    moves: Few[tuple[str, bytes, Note]]


class Detach(msgspec.Struct, frozen=True, array_like=True, tag="detach"):
    """Give all agents of this connection back."""


class Observe(msgspec.Struct, frozen=True, array_like=True, tag="observe"):
    """Look on at an agent from now on, without a vote, whoever drives it."""

    agent: str


class MomentsSince(msgspec.Struct, frozen=True, array_like=True, tag="since"):
    """What happened to an observed agent after the moment of that number? Asks for ``wait`` seconds if nothing did."""

    agent: str
    after: Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    wait: Annotated[float, msgspec.Meta(ge=0.0, le=LONGEST_WAIT)] = 0.0


class Status(msgspec.Struct, frozen=True, array_like=True, tag="status"):
    """What does the daemon do?"""


HubRequest: TypeAlias = (
    Again | Step | AnnotatedStep | Reset | Hello | Attach | Detach | Observe | MomentsSince | Status
)
