"""Reading the simulator's clock, and what it says of an episode (see ``clock``)."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Final

from ospbridge.counts import numbered
from ospbridge.errors import IncompleteListing, QueryTimeout
from ospbridge.osp.client.asking import get_value, settled_value
from ospbridge.osp.client.clock import ITERATIONS, SIMULATION_TIME, TIME_STEP_SIZE
from ospbridge.osp.client.listing import find_value
from ospbridge.osp.client.renumbering import forget_ids
from ospbridge.osp.client.unasked import reset_by_others
from ospbridge.osp.number_text import number

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.osp.client.machine import ClientMachine, Exchange, Reply

__all__ = [
    "VOTE_OUTSTANDING",
    "as_announced",
    "audit",
    "does_not_count_steps",
    "fresh_clock",
    "learned_clock",
    "must_settle",
    "read_clock",
    "runs_on",
    "seconds",
    "settled_clock",
    "start_clock",
]


VOTE_OUTSTANDING: Final = "an earlier step was interrupted or given up, and its vote may be outstanding"
RUNS_ON: Final = 3
"""So often must a clock be seen to have moved by itself, beside the first time."""
LOOKS: Final = 20
"""More looks than this are not taken: on such a network they prove nothing."""


def start_clock(m: ClientMachine) -> Exchange[None]:
    """Learn what the clock shows while nothing is under way."""
    if not m.clock.known:
        yield from _find_clock(m)
    if m.clock.value_id is None:
        return
    text = yield from settled_value(m, m.clock.value_id)
    if not text:
        # A server may say its unknown id with nothing behind it.
        forget_ids(m)
        yield from _find_clock(m)
        if m.clock.value_id is None:
            return
        text = yield from settled_value(m, m.clock.value_id)
    time = seconds(m, text)
    if time is not None:
        m.clock.start(time)


def _find_clock(m: ClientMachine) -> Exchange[None]:
    try:
        entry = yield from find_value(m, SIMULATION_TIME)
    except QueryTimeout as error:
        # A server may do without the repository; then nothing tells whether a step ran, and we go on with care.
        m.anomaly(error.message)
        m.mute_questions += 1
        m.clock.value_id = None
        # One that was only stopped, or busy, is asked once more.
        m.clock.known = m.repository_mute
        return
    m.clock.value_id = entry.id if entry else None
    m.clock.known = True


def settled_clock(m: ClientMachine, stray: Callable[[Reply], None] | None = None) -> Exchange[float | None]:
    """As ``read_clock``, where nothing else would show that the answer is a late one to an earlier question."""
    if m.clock.value_id is None:
        return None
    return seconds(m, (yield from settled_value(m, m.clock.value_id, stray=stray)))


def runs_on(m: ClientMachine, time: float | None) -> Exchange[bool]:
    """Whether the clock, which shows ``time``, has moved and goes on, though no step or reset is under way.

    Answers that come late may look so, of as many questions as were asked again.
    """
    before = m.clock.base
    looks = RUNS_ON + m.retries
    if m.clock.count or m.clock.size is not None or m.foreign or looks > LOOKS:
        return False
    while time is not None and before is not None and time > before:
        if not looks:
            return True
        looks -= 1
        before, time = time, (yield from read_clock(m))
    return False


def fresh_clock(m: ClientMachine, stray: Callable[[Reply], None] | None = None) -> Exchange[float | None]:
    """As ``read_clock``, where an episode ends by what it shows."""
    time = yield from read_clock(m, stray)
    return time if time is None else (yield from _looked_again(m, time, stray))


def learned_clock(m: ClientMachine, stray: Callable[[Reply], None] | None = None) -> Exchange[float | None]:
    """As ``fresh_clock``, where a first step's also tells how long steps take: one of before the reset would not."""
    time = yield from fresh_clock(m, stray)
    if time is None or not must_settle(m, time):
        return time
    settled = yield from settled_clock(m, stray)
    if settled is None:
        return time
    if settled != time:
        _came_late(m, f"{SIMULATION_TIME} showed {time:.9g} s after the first step, and then {settled:.9g} s")
    return settled


def must_settle(m: ClientMachine, time: float) -> bool:
    """Whether ``time`` would tell how long steps take, on a network that disturbs."""
    return m.disturbed and m.clock.would_learn(time)


def _looked_again(
    m: ClientMachine, time: float, stray: Callable[[Reply], None] | None = None
) -> Exchange[float]:
    """What the clock shows after all, where ``time`` may be the answer to a question of long ago.

    Where it is less than it has shown already, or, on a network that disturbs, more than it can show.
    """
    back = m.clock.went_back(time)
    if not back and not (m.disturbed and m.clock.ran_ahead(time)):
        return time
    if back and not m.reset_told:
        _came_late(m, f"{SIMULATION_TIME} went back to {time:.9g} s, or an answer came late")
    settled = yield from settled_clock(m, stray)
    return time if settled is None else settled


def _came_late(m: ClientMachine, told: str) -> None:
    """Where an answer comes so late, a vote may too."""
    m.punctual = False
    m.anomaly(told)


def as_announced(m: ClientMachine, time: float) -> Exchange[bool]:
    """Whether a first step that brought the clock to ``time`` took as long as the simulator says that steps take."""
    size = 1.0
    for name, needed in ((TIME_STEP_SIZE, True), (ITERATIONS, False)):
        if m.repository_mute:
            return False
        try:
            entry = yield from find_value(m, name)
            text = (yield from settled_value(m, entry.id)) if entry else None
        except IncompleteListing:
            return False
        except QueryTimeout:
            m.mute_questions += 1
            return False
        if entry is None and not needed:
            continue
        try:
            size *= number(text or "")
        except ValueError:
            return False
    return isfinite(size) and m.clock.took(time, size)


def read_clock(m: ClientMachine, stray: Callable[[Reply], None] | None = None) -> Exchange[float | None]:
    """The simulated time in seconds; None where this simulator has no such variable, or no number in it."""
    if m.clock.value_id is None:
        return None
    text = yield from get_value(m, m.clock.value_id, stray=stray)
    return seconds(m, text)


def seconds(m: ClientMachine, text: str | None) -> float | None:
    """What the clock's text says; None where it is no finite number."""
    time = m.clock.read(text or "")
    if isfinite(time):
        return time
    m.anomaly(f"{SIMULATION_TIME} reads {text!r}, expected a number")
    return None


def does_not_count_steps(m: ClientMachine) -> None:
    """The clock was seen to go its own way, and nothing else can explain what it shows: do without it."""
    m.clock.give_up()
    m.notices.remark(
        f"{SIMULATION_TIME} of {m.peer} does not advance evenly with the steps: it cannot tell their number"
    )


def audit(m: ClientMachine, *, behind: bool = False) -> Exchange[str]:
    """Compare the clock with the steps given since the reset; why they differ, or nothing.

    ``behind``: their episode was left a while ago. That others reset the world since, which takes the clock back where
    no answer is late, says nothing against it.
    """
    m.clock.audited = m.clock.count
    if m.suspect:
        return m.suspect
    if m.vote_outstanding:
        return VOTE_OUTSTANDING
    if m.latest_in_doubt:
        m.suspect = (
            "a vote of the latest step was acknowledged twice: it may have run before all votes were in"
        )
        return m.suspect
    if m.reset_told and not behind:
        yield from _look_for_the_reset(m)
    time = yield from read_clock(m)
    clock = m.clock
    if time is None or (behind and (time == clock.base or (clock.went_back(time) and not m.disturbed))):
        return ""
    shown = clock.steps_shown(time)
    if shown is None or shown == clock.count:
        return m.suspect
    if not m.disturbed and not m.foreign and clock.goes_its_own_way(time):
        # Nothing was ever lost, late or doubled, and nobody else votes.
        does_not_count_steps(m)
        return m.suspect
    shown = clock.steps_shown((yield from _looked_again(m, time)))
    if shown is not None and shown != clock.count:
        m.suspect = (
            f"{numbered(m.clock.count, 'step')} {'was' if m.clock.count == 1 else 'were'} given, "
            f"the clock shows {shown}"
        )
        m.anomaly(m.suspect)
    return m.suspect


def _look_for_the_reset(m: ClientMachine) -> Exchange[None]:
    """At the end of an episode: the reset that was told of happened, unless the clock shows that it did not.

    An answer of before it may have come late, so one does not do.
    """
    time = (yield from settled_clock(m)) if m.clock.tells_resets else None
    if time is None or m.clock.steps_shown(time) != m.clock.count:
        reset_by_others(m)
    else:
        m.reset_told = False
