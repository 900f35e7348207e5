"""Probes of the value repository: D12, D13, D15 (by its longest answer), D16, D17, D19, D23."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ospbridge.diagnosis.findings import Finding, not_seen, not_tried, seen
from ospbridge.diagnosis.reading import MANY, mostly
from ospbridge.errors import OspBridgeError, RemoteProtocolError
from ospbridge.osp.lists import Listed, collect
from ospbridge.osp.messages import (
    DeregisterFromValue,
    DeregisterFromValueAck,
    GetValueIds,
    RegisterForValue,
    RegisterForValueAck,
    SetValue,
    SetValueAck,
    ValueContent,
    ValueIds,
    ValueInfo,
    ValueInfoAck,
)
from ospbridge.text import listed, pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.diagnosis.line import Reply
    from ospbridge.diagnosis.stage import Stage
    from ospbridge.interface import ValueEntry
    from ospbridge.osp.client import Exchange
    from ospbridge.osp.messages import Message

__all__ = [
    "cut_list",
    "expression_anchored",
    "listing_ack",
    "no_ascii",
    "observe_confirmed",
    "observe_count",
    "observing",
    "type_names",
]

MOST_TRIED: Final = 500
"""Variables that are registered for one by one, at most."""
LONG: Final = 300
"""Ids of a request whose answer is longer than a NERD server sends."""
ENOUGH: Final = 256
"""Ids whose answer, with its 5 bytes in front, does not fit into 1024 bytes."""
TEXT_VALUE: Final = "/CommandLineArguments/help"
"""A text that a NERD server reads once, when it starts: writing it changes nothing."""
DOCUMENT_TYPES: Final = {"Integer", "NormalizedDouble", "Point3D"}
SERVER_TYPES: Final = {"Int", "Vector3D", "FileName"}
_PLAIN: Final = re.compile(r"[A-Za-z0-9]{4,}")


def observing(stage: Stage, values: Sequence[ValueEntry]) -> list[ValueEntry]:
    """Register for variables one by one; those that were confirmed.

    One id at a time, of a variable that was listed: more ids than were listed kill a NERD server.
    """
    confirmed = []
    for value in values[:MOST_TRIED]:
        reply = _observe(stage, value)
        assert isinstance(reply.message, RegisterForValueAck)
        if value.id in reply.message.answered(1):
            confirmed.append(value)
    return confirmed


def _observe(stage: Stage, value: ValueEntry) -> Reply:
    def fits(reply: Message) -> bool:
        assert isinstance(reply, RegisterForValueAck)
        return set(reply.answered(1)) <= {0, 1, value.id}

    return stage.line.ask(RegisterForValue((value.id,)), RegisterForValueAck, fits=fits)


def forget(stage: Stage, values: Sequence[ValueEntry]) -> None:
    """Register no more for these."""
    for value in values:
        stage.line.ask(DeregisterFromValue((value.id,)), DeregisterFromValueAck)


def observe_confirmed(stage: Stage) -> Finding:
    """D12: whether a registration for a variable is confirmed with its id."""
    values = stage.values()[:MOST_TRIED]
    if len(values) < 2:
        return not_tried(f"it takes two variables, and there are {len(values)}")
    confirmed = observing(stage, values)
    forget(stage, confirmed)
    detail = f"{len(confirmed)} of {len(values)} registrations, one variable each, were confirmed"
    return not_seen(detail) if len(confirmed) == len(values) else seen(detail)


def observe_count(stage: Stage) -> Finding:
    """D13: whether REGISTER_FOR_VALUE_ACK has a count."""
    values = stage.values()
    if not values:
        return not_tried("there are no variables")
    data = _observe(stage, values[0]).data
    forget(stage, values[:1])
    integers = (len(data) - 1) // 4
    detail = f"one registration is answered with {pluralize(integers, 'integer')}: {data.hex(' ')}"
    if integers not in (1, 2):
        return not_tried(f"neither an id nor a count and an id: {detail}")
    return seen(detail) if integers == 2 else not_seen(detail)


def cut_list(stage: Stage) -> Finding | None:
    """D15, by the answer to registering for many variables at once; None where there are not enough."""
    ids = tuple(value.id for value in stage.values()[:LONG])
    if len(ids) < ENOUGH:
        return None
    line = stage.line
    try:
        data = line.ask(RegisterForValue(ids), RegisterForValueAck).data
    finally:
        with suppress(OspBridgeError):
            line.ask(DeregisterFromValue(ids), DeregisterFromValueAck)
    whole = 1 + 4 * len(ids)
    detail = f"the answer to {len(ids)} registrations has {len(data)} bytes"
    if len(data) < whole:
        return seen(f"{detail} of at least {whole}: the rest is missing without a word")
    return not_seen(detail)


def type_names(stage: Stage) -> Finding:
    """D16: what the types of variables are called."""
    values = stage.values()
    types = {value.type for value in values}
    theirs = sorted(types & SERVER_TYPES)
    by_interface = next((v for v in values if v.type.startswith("/") and v.name.endswith(v.type)), None)
    if by_interface is not None:
        theirs.append(f"{by_interface.type} for {by_interface.name}")
    if theirs:
        return seen(f"types are called {listed(theirs)}")
    known = sorted(types & DOCUMENT_TYPES)
    if known:
        return not_seen(f"types are called {listed(known)}")
    return not_tried(f"the types {listed(sorted(types)) or '(none)'} are in no doubt")


def expression_anchored(stage: Stage) -> Finding:
    """D17: whether an expression must fit a whole name."""
    for value in stage.values():
        found = _PLAIN.search(value.name)
        if found is None or len(found[0]) == len(value.name):
            continue
        part = found[0]
        if not stage.find(f".*{part}.*"):
            return not_tried(f"nothing fits {f'.*{part}.*'!r}, although there is {value.name}")
        if stage.find(part):
            return not_seen(f"{part!r} finds {value.name}")
        return seen(f"{part!r} finds nothing, {f'.*{part}.*'!r} does: an expression must fit the whole name")
    return not_tried("no variable has a name with a plain part")


def listing_ack(stage: Stage) -> Finding:
    """D19: whether a listing of variables awaits VALUE_INFO_ACK."""
    values = stage.values()
    if not values:
        return not_tried("there are no variables")
    line = stage.line

    def listing(expression: str, tries: int) -> Exchange[Listed[ValueInfo]]:
        return collect(
            line.lists,
            GetValueIds(expression),
            ValueInfo,
            count=lambda x: x.found if isinstance(x, ValueIds) else None,
            ack=None,
            what=f"values {expression!r}",
            tries=tries,
        )

    def stops() -> bool:
        found = line.listed(listing(".*", 1))
        if found.complete:
            line.send(ValueInfoAck())
            return False
        stage.find(".*")
        return len(found.pieces) == 1

    def unacknowledged() -> bool:
        line.listed(listing(f".*{re.escape(values[0].name[1:])}", MANY))
        return line.eats()

    if len(values) > 1 and mostly(stops):
        return not_seen("each datagram of a listing waits for an acknowledgement of its own")
    if mostly(unacknowledged):
        return not_seen("a listing that is not acknowledged costs the next datagram")
    return seen("a listing awaits no VALUE_INFO_ACK")


def no_ascii(stage: Stage) -> Finding:
    """D23: what becomes of bytes above 127, written to a text that means nothing and read back."""
    value = stage.value_named(TEXT_VALUE)
    if value is None:
        return not_tried(f"there is no variable {TEXT_VALUE}, the one text that may be written without harm")
    before = stage.content(value)
    sent = "a\xe9b"
    try:
        reply = stage.line.ask(SetValue(value.id, sent), SetValueAck).message
        assert isinstance(reply, SetValueAck)
        if reply.status != 1:
            return not_tried(f"{TEXT_VALUE} refuses {sent!r} with status {reply.status}")
        got = stage.content(value)
    except RemoteProtocolError as error:
        # What a server writes that has 00 for each such byte: the text seems to end there, and more follows.
        if not error.data.startswith(ValueContent.pack(value.id, b"a\0")):
            raise
        return seen(f"{sent!r}, written to {TEXT_VALUE}, reads as the bytes {error.data[5:].hex(' ')}")
    finally:
        with suppress(OspBridgeError):
            stage.line.ask(SetValue(value.id, before), SetValueAck)
    if got == sent:
        return not_seen(f"{sent!r}, written to {TEXT_VALUE}, reads the same")
    return seen(f"{sent!r}, written to {TEXT_VALUE}, reads {got!r}")
