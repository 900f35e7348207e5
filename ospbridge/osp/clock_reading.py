"""Reading the simulator's clock, and what it says of an episode (see ``clock``)."""

from __future__ import annotations

from math import inf, isfinite, nan
from typing import TYPE_CHECKING, Final

from ospbridge.errors import IncompleteListing, QueryTimeout
from ospbridge.osp.codes import ITERATIONS, SIMULATION_TIME, TIME_STEP_SIZE
from ospbridge.osp.lists import find_value, forget_ids
from ospbridge.osp.queries import get_value, pause, set_value
from ospbridge.osp.wire import number
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from ospbridge.osp.client import ClientMachine, Exchange

__all__ = [
    "INTERRUPTED",
    "SECOND_LOOK",
    "audit",
    "confirm_size",
    "drop_clock",
    "read_clock",
    "start_clock",
    "write_value",
]

INTERRUPTED: Final = "an earlier step was interrupted or given up, and its request may be outstanding"
SECOND_LOOK: Final = 0.1
"""Seconds after which a clock that shows too few steps is read again: a server that was just woken answers before it
steps, and an answer may be a late one."""


def start_clock(m: ClientMachine) -> Exchange[None]:
    """Learn what the clock shows while no step is pending, and how long a step takes by the simulator's own word."""
    clock = m.clock
    if clock.missing:
        return
    if clock.value_id is None:
        clock.value_id = yield from _id_of(m, SIMULATION_TIME)
        if clock.value_id is None:
            # A server that has not answered is asked once more, by the next reset: it may have been stopped.
            clock.missing = not m.values.silent or SIMULATION_TIME in m.values.without
            m.values.without.add(SIMULATION_TIME)
            return
    if clock.size is None and clock.announced is None:
        clock.announced = yield from _announced(m)
    clock.start((yield from read_clock(m)))


def _id_of(m: ClientMachine, name: str) -> Exchange[int | None]:
    """The local id of a variable; None where there is none, or no answer."""
    try:
        entry = yield from find_value(m, name)
    except (QueryTimeout, IncompleteListing) as error:
        m.notices.anomaly(error.message)
        m.values.silent = True
        return None
    return entry.id if entry else None


def _number(text: str | None) -> float:
    """NaN for what is no finite number."""
    try:
        value = number(text or "")
    except ValueError:
        return nan
    return value if isfinite(value) else nan


def _announced(m: ClientMachine) -> Exchange[float | None]:
    """TimeStepSize x IterationsPerStep; the latter is 1 where the simulator has no such variable."""
    size = 1.0
    for name in (TIME_STEP_SIZE, ITERATIONS):
        value_id = yield from _id_of(m, name)
        if value_id is not None:
            size *= _number((yield from get_value(m, value_id)))
        if not 0 < size < inf or (value_id is None and name == TIME_STEP_SIZE):
            return None
    return size


def read_clock(m: ClientMachine) -> Exchange[float | None]:
    """The simulated time in seconds; None where there is no clock to read. Raises QueryTimeout."""
    if m.clock.value_id is None or m.clock.missing:
        return None
    text = yield from get_value(m, m.clock.value_id)
    if not text:
        # The world that a reset built anew has numbered its variables anew.
        forget_ids(m)
        m.clock.value_id = yield from _id_of(m, SIMULATION_TIME)
        if m.clock.value_id is not None:
            text = yield from get_value(m, m.clock.value_id)
    time = _number(text)
    if isfinite(time):
        return time
    m.notices.anomaly(f"{SIMULATION_TIME} reads {text!r}, expected a number")
    drop_clock(m)
    return None


def drop_clock(m: ClientMachine) -> None:
    """The clock does not count steps: said once, and done without."""
    m.clock.missing = True
    m.clock.size = None
    m.clock.start(None)
    m.notices.remark(
        f"{SIMULATION_TIME} of {m.peer} does not advance evenly with the steps: none can be repaired or audited by it"
    )


def confirm_size(m: ClientMachine) -> Exchange[None]:
    """Behind one of a session's first steps: learn from the clock how long a step takes."""
    for look in range(2):
        if look:
            yield from pause(m, SECOND_LOOK)
        time = yield from read_clock(m)
        if time is None or m.clock.confirm(time):
            return
    drop_clock(m)


def audit(m: ClientMachine) -> Exchange[str]:
    """Compare the clock with the steps given since the reset; why they cannot be trusted, or nothing."""
    clock, episode = m.clock, m.episode
    if episode.request_outstanding:
        return INTERRUPTED
    if episode.doubt or not clock.count or clock.base is None:
        return episode.doubt
    shown: int | None = None
    for look in range(2):
        if look:
            yield from pause(m, SECOND_LOOK)
        time = yield from read_clock(m)
        if time is None or clock.size is None:
            return episode.doubt
        shown = clock.steps_shown(time)
        if shown == clock.count:
            # These steps need no audit any more.
            clock.start(time)
            return episode.doubt
    if shown is None:
        drop_clock(m)
    elif not episode.doubt:
        given = f"{pluralize(clock.count, 'step')} {'was' if clock.count == 1 else 'were'} given"
        m.notices.anomaly(m.uncertain(f"{given}, the clock shows {shown}").message)
    return episode.doubt


def write_value(m: ClientMachine, name: str, content: str) -> Exchange[bool | None]:
    """Write the variable of that name; None where there is none, False where the simulator does not know its id.

    Setting the size of a step, or the clock, audits the steps so far and learns the size anew. Raises ValueRejected.
    """
    for _ in range(2):
        entry = yield from find_value(m, name)
        if entry is None:
            return None
        if name in (SIMULATION_TIME, TIME_STEP_SIZE, ITERATIONS):
            yield from audit(m)
            m.clock.size = m.clock.announced = None
            m.clock.start(None)
        if (yield from set_value(m, entry.id, content, name=name)):
            return True
        forget_ids(m)
    return False
