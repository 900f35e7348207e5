"""The probe of events: D24."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.diagnosis.findings import Finding, not_seen, not_tried, seen
from ospbridge.osp.messages import (
    DeregisterFromEvent,
    DeregisterFromEventAck,
    RegisterForEvent,
    RegisterForEventAck,
    StepCompleted,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.diagnosis.stage import Stage
    from ospbridge.interface import AgentInterface

__all__ = ["deregistered_event"]

EVENTS: Final = ("/Control/StepCompleted", "/Control/NextStep")
"""Occur in every step, where a server has them."""
STEPS: Final = 3


def deregistered_event(stage: Stage) -> Finding:
    """D24: whether an event is told of after its deregistration."""
    if not stage.profile.end_after_events_is_safe:
        return not_tried("a client that ever registered for an event can kill this kind of server")
    with stage.controlling(1) as agents:
        stage.reset(1)
        for name in EVENTS:
            stage.line.listen()
            reply = stage.line.ask(RegisterForEvent(name), RegisterForEventAck).message
            assert isinstance(reply, RegisterForEventAck)
            if reply.event_id == 0:
                continue
            told = _told(stage, agents)
            stage.line.ask(DeregisterFromEvent(reply.event_id), DeregisterFromEventAck)
            if reply.event_id not in told:
                continue
            # What occurred before the deregistration may still be told once.
            _told(stage, agents)
            after = [event for _ in range(STEPS) for event in _told(stage, agents)]
            if reply.event_id in after:
                return seen(f"{name} is told of after its deregistration")
            return not_seen(f"{name} is told of no more in {STEPS} steps after its deregistration")
    return not_tried(f"the simulator tells of none of {', '.join(EVENTS)} in a step")


def _told(stage: Stage, agents: Sequence[AgentInterface]) -> tuple[int, ...]:
    (reply,) = stage.step(agents)
    assert isinstance(reply.message, StepCompleted)
    return reply.message.events
