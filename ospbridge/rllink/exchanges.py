"""What a client asks of an RLlink server, in the order in which it happens on the wire. Without I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from ospbridge.errors import LocalProtocolError, UpstreamLost
from ospbridge.rllink.connecting import POLL
from ospbridge.rllink.messages import (
    Episodes,
    EpisodesAndGetState,
    GetConfig,
    GetState,
    Message,
    Ping,
    Pong,
    SetConfig,
    SetState,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ospbridge.rllink.client import ClientMachine, Exchange
    from ospbridge.rllink.messages import Weights

__all__ = ["deliver", "get_config", "get_state", "greet", "learn", "newer_state"]

M = TypeVar("M", bound=Message)
WEIGHTS: Final = "SET_STATE, with the weights that it has,"
"""What is awaited of a server that was only asked."""
SETTINGS: Final = "SET_CONFIG"


def greet(machine: ClientMachine) -> Exchange[None]:
    """PING until PONG: the only proof of a connection. Raises UpstreamLost for silence, as all of these do."""
    machine.send(Ping())
    yield from _reply(machine, Pong, machine.limits.pong, "PONG")


def get_config(machine: ClientMachine) -> Exchange[SetConfig]:
    """What the server needs."""
    machine.send(GetConfig())
    return (yield from _reply(machine, SetConfig, machine.limits.config, SETTINGS))


def get_state(machine: ClientMachine, *, limit: float | None = None) -> Exchange[Weights]:
    """The current weights, within ``limit`` seconds (the answer limit)."""
    machine.send(GetState())
    reply = yield from _reply(machine, SetState, limit or machine.limits.answer, WEIGHTS)
    return reply.weights


def newer_state(machine: ClientMachine, than: int | None, *, until: float | None = None) -> Exchange[Weights]:
    """Weights of another number than ``than``, asked for every 20 ms until ``until`` (the state limit).

    A lower one is as new: a learner that was restored from a checkpoint goes on from the number that it had then.
    """
    give_up = machine.now + machine.limits.state if until is None else until
    asked = 0
    while True:
        # A server that pushed weights before it learned is silent until it has.
        weights = yield from get_state(machine, limit=max(machine.limits.answer, give_up - machine.now))
        asked += 1
        if weights.seq_no != than:
            return weights
        if machine.now >= give_up:
            raise UpstreamLost(
                f"{machine.peer} still has the weights number {weights.seq_no} after {asked} questions, newer ones "
                f"than {than} were awaited",
                hint="nothing was learned from the last batch: see the learner's log, for instance for a batch size "
                "larger than what was sent",
            )
        wake = machine.now + POLL
        while machine.now < wake:
            yield wake


def deliver(machine: ClientMachine, messages: Sequence[Episodes]) -> Exchange[None]:
    """Send experience that nothing answers, and a PING whose PONG proves that it was read.

    Where that does not come, whether the experience arrived is not known.
    """
    if any(isinstance(message, EpisodesAndGetState) for message in messages):
        raise LocalProtocolError(
            "experience that asks for weights cannot be delivered without waiting for them"
        )
    machine.send(*messages, Ping())
    yield from _reply(machine, Pong, machine.limits.proof, "PONG behind the episodes")


def learn(
    machine: ClientMachine,
    messages: Sequence[Episodes],
    *,
    on_read: Callable[[], None] = lambda: None,
) -> Exchange[Weights]:
    """Send a batch, as ``split`` made it, and wait for the weights that were learned from it.

    A real server may answer at once with the old weights and learn afterwards (its driver sets the weights twice); so
    where the number is still the same it is asked until it is not. ``on_read`` is called with the first answer, which
    proves that the batch was read.
    """
    *before, last = messages
    if not isinstance(last, EpisodesAndGetState) or any(isinstance(m, EpisodesAndGetState) for m in before):
        raise LocalProtocolError("the last message of a batch, and only that one, must ask for weights")
    known, began = machine.seq_no, machine.now
    machine.send(*messages)
    reply = yield from _reply(machine, SetState, machine.limits.state, "SET_STATE with new weights")
    on_read()
    if reply.weights.seq_no != known:
        return reply.weights
    return (yield from newer_state(machine, known, until=max(began, machine.sent_at) + machine.limits.state))


def _reply(machine: ClientMachine, kind: type[M], limit: float, awaited: str) -> Exchange[M]:
    """The reply to what is being sent; the limit counts from when the latest of it was.

    A server that learns weights for an exchange before this one reads nothing meanwhile, so the limit counts from
    when they have come.
    """
    began = since = machine.now
    held_up = machine.held_up
    patience = limit + (machine.limits.state if held_up else 0.0)
    while True:
        since = max(since, machine.sent_at)
        reply = yield since + patience
        if isinstance(reply, kind):
            return reply
        if held_up and not machine.held_up:
            held_up = False
            since, patience = machine.now, limit
        if machine.now >= max(since, machine.sent_at) + patience:
            raise UpstreamLost(
                f"{machine.peer} did not send {awaited} within {machine.now - began:.1f} s",
                hint=_why(machine, awaited),
            )


def _why(machine: ClientMachine, awaited: str) -> str:
    if not machine.connected:
        return (
            "it may serve another client: it takes one at a time; or it speaks another dialect than "
            f"{machine.dialect.name}; or it answers nobody any more, and its log says why"
        )
    if "new weights" in awaited:
        return (
            "a server that was sent fewer steps than its batch never answers, and Ray 2.47 tells its batch wrongly "
            "where a fragment's length or the environments of a runner are set: say it (rllink env_steps); "
            "nor does one that learns by IMPALA or APPO, so use PPO; else raise the limit (rllink timeout), or see the "
            "learner's log"
        )
    if machine.experienced:
        return "a server that met a bad episode never answers again: see the learner's log, and start it anew"
    if awaited == SETTINGS and machine.dialect.why_no_settings:
        return machine.dialect.why_no_settings
    if awaited != WEIGHTS:
        return "see the learner's log, and start it anew"
    return (
        "it was sent no episode over this connection, and only asked for its weights: "
        f"{machine.dialect.why_no_weights}see the learner's log, and start it anew; where it is "
        "sent what others live through, --rllink-unannotated does without the question"
    )
