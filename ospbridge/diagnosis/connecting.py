"""Probes of connecting and of restarting the communication: D1, D2, D3, D7, D20."""

from __future__ import annotations

from time import sleep
from typing import TYPE_CHECKING, Final

from ospbridge.diagnosis.findings import Finding, not_seen, not_tried, seen
from ospbridge.diagnosis.greeting import TRIES, answer_to, throw_away
from ospbridge.diagnosis.line import SILENCE
from ospbridge.errors import SessionLost
from ospbridge.osp.codes import DATAGRAM_END
from ospbridge.osp.messages import (
    GetValueIds,
    Init,
    ResetCommunication,
    ResetCommunicationAck,
    ResetSimulationAck,
    ValueIds,
)
from ospbridge.osp.profile import InitForm

if TYPE_CHECKING:
    from ospbridge.diagnosis.stage import Stage

__all__ = ["SETTLING", "end_marker", "init_form", "other_version", "restart", "restart_at_main_port"]

SETTLING: Final = 0.5
"""Seconds between a goodbye or an INIT and a restart: closer together they can kill a NERD server."""
RESTARTS: Final = 3
"""A NERD server tells the requester of a restart in three of four cases only."""


def init_form(stage: Stage) -> Finding:
    """D1: 4-byte version numbers, or single bytes."""
    if stage.profile.init_form is InitForm.INTS:
        return not_seen("an INIT with 4-byte version numbers is answered likewise")
    shown = stage.line.greeting.hex(" ")
    if stage.taken_by_others():
        return seen(f"an INIT with single bytes is answered likewise: {shown}")
    answer = answer_to(stage.place, Init(form=InitForm.INTS).encode(), stage.line)
    if answer is not None:
        return not_seen("INITs of both forms are answered")
    return seen(
        f"an INIT with 4-byte version numbers meets silence ({TRIES} tries); one with single bytes is answered: "
        f"{shown}"
    )


def other_version(stage: Stage) -> Finding:
    """D2: what an INIT of another version meets."""
    init = Init(minor=2, form=stage.profile.init_form).encode(end=stage.profile.end_marker)
    answer = answer_to(stage.place, init, stage.line)
    if answer is not None:
        return not_seen(f"an INIT of version 1.2 is answered with {answer.hex(' ')}")
    return seen(f"an INIT of version 1.2 meets silence ({TRIES} tries)")


def end_marker(stage: Stage) -> Finding:
    """D3: whether datagrams of the server end with byte 120."""
    answers = [
        stage.line.greeting,
        stage.line.ask(GetValueIds("/no/such/value"), ValueIds).data,
    ]
    # The bytes of INIT_ACK's version numbers and of VALUE_IDS' count.
    plain = [9 if stage.profile.init_form is InitForm.INTS else 3, 5]
    marked = [
        len(data) == size + 1 and data[-1] == DATAGRAM_END for data, size in zip(answers, plain, strict=True)
    ]
    shown = ", ".join(data.hex(" ") for data in answers)
    if all(marked):
        return seen(f"byte 120 ends {shown}")
    if any(marked):
        return not_tried(f"byte 120 ends some datagrams and not others: {shown}")
    return not_seen(f"nothing stands behind the last field of {shown}")


def restart(stage: Stage) -> Finding:
    """D7: what follows the confirmation of RESET_COMMUNICATION. Ends the session of every client."""
    confirmed = 0
    for _ in range(RESTARTS):
        sleep(SETTLING)
        line = stage.line
        line.drain()
        line.send(ResetCommunication())
        followed = False
        try:
            told = line.heard(ResetCommunicationAck, wait=SILENCE)
            followed = line.heard(ResetSimulationAck) is not None
        except SessionLost:
            told = None
        sleep(SETTLING)
        stage.rejoin()
        if told is not None and followed:
            return seen("RESET_COMMUNICATION_ACK is followed by a RESET_SIMULATION_ACK that nobody asked for")
        confirmed += told is not None
    if confirmed:
        return not_seen(
            f"RESET_COMMUNICATION_ACK came alone ({confirmed} of {RESTARTS} tries were confirmed)"
        )
    return not_tried(f"RESET_COMMUNICATION was not confirmed in {RESTARTS} tries")


def restart_at_main_port(stage: Stage) -> Finding:
    """D20: whether RESET_COMMUNICATION works at the main port, without a connection."""
    sleep(SETTLING)
    throw_away(stage.place, ResetCommunication().encode(end=stage.profile.end_marker))
    sleep(SILENCE)
    try:
        stage.line.ask(GetValueIds("/no/such/value"), ValueIds)
    except SessionLost:
        sleep(SETTLING)
        stage.rejoin()
        return not_seen("RESET_COMMUNICATION at the main port, without a connection, ends all sessions")
    return seen("RESET_COMMUNICATION at the main port does nothing: connected clients stay connected")
