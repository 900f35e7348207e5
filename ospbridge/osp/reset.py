"""The reset: one request for each agent, one completion for every client (OSP 1.1, section 4.6).

All rules for silence in a reset stand here, and in ``RESET_TABLE``. A reset zeroes the simulator's clock, which is
therefore brought above 0 before it: so the clock tells whether the reset is done.
"""

from __future__ import annotations

from functools import partial
from itertools import cycle, islice, pairwise
from typing import TYPE_CHECKING, Final

from ospbridge.errors import IncompleteListing, LocalProtocolError, QueryTimeout, StepUncertain, ValueRejected
from ospbridge.osp.agents import overview
from ospbridge.osp.client import RESET_COMPLETED
from ospbridge.osp.clock_reading import INTERRUPTED, SECOND_LOOK, drop_clock, read_clock, start_clock
from ospbridge.osp.codes import SEED
from ospbridge.osp.fast_path import FastPath, StepRequest
from ospbridge.osp.lists import find_value
from ospbridge.osp.messages import (
    NextSimulationStepAck,
    ResetSimulation,
    ResetSimulationAck,
    StepCompleted,
    StepCompletedAck,
    Truncated,
)
from ospbridge.osp.queries import get_value, pause, set_value
from ospbridge.osp.step import SENT_AGAIN_AT_MOST, SOME, Action, Pending, Row, decide, step
from ospbridge.osp.timing import SILENCE

if TYPE_CHECKING:
    from ospbridge.osp.client import ClientMachine, Exchange, Reply

__all__ = ["RESET_TABLE", "reset"]

OWN_SEEDS: Final = "/Simulation/RandomizeSeedAtReset"
YES: Final = ("T", "TRUE", "1")
FIRST_RESET: Final = 5.0
"""Seconds that a session's first reset may take before its completion is taken for lost."""
ABOVE_ZERO: Final = 1.0
"""Simulated seconds that a clock is set to which shows 0 before a reset."""
LOOKS: Final = 2
"""At a clock that is not at 0 behind a reset, beside the first one."""
SILENCES: Final = 20
"""For which old requests are waited to step the world at most, once each agent's request was sent."""


RESET_TABLE: Final = (
    Row(True, None, None, True, Action.RESTORE, "the completion is lost"),
    Row(None, None, None, False, Action.WAIT, "worlds take their time to begin anew"),
    Row(None, SOME, True, True, Action.SEND_AGAIN, "a request is lost"),
    Row(None, None, None, None, Action.WAIT, "the requests are counted, or other clients are missing"),
)
"""The first row that fits counts. RESTORE: the reset is done."""


class PendingReset(Pending):
    """A reset that is not completed yet. ``tells``: the clock is above 0, and shows 0 when it is done."""

    what = "reset"

    def __init__(self, m: ClientMachine, seed: int, *, tells: bool) -> None:
        super().__init__(m, m.now)
        self._request = ResetSimulation(seed)
        self.tells = tells
        self.wanted = len(m.controlled)
        self.sent = self.acked = 0
        self._completed = False
        self._send_more()

    def is_completed(self) -> bool:
        """The completion came. Acknowledgements may be missing still."""
        return self._completed

    def all_came(self) -> bool:
        """Nothing is missing any more."""
        return self._completed and self.acked >= self.wanted

    @property
    def overdue(self) -> bool:
        """What has not come by now is lost."""
        times = self.m.learned.reset_times
        usual = max(SILENCE, 2.0 * max(times)) if times else FIRST_RESET
        return self.m.now - self.sent_at > usual

    def _send_more(self) -> None:
        while self.sent < min(self.wanted, self.acked + self.at_once):
            self.sent += 1
            self.send()

    def send(self) -> None:
        """Acknowledgements carry no id: requests are counted, and go again one at a time."""
        self.sent_at = self.m.now
        self.m.send(self._request)

    def free_handler(self) -> None:
        """Acknowledge the completion that did not come."""
        self.m.acknowledge_reset(self.m.profile.reset_completed)

    def take(self, reply: Reply) -> None:
        """Something came. Raises SessionLost."""
        if isinstance(reply, ResetSimulationAck):
            self.acked += 1
            self._send_more()
        elif not isinstance(reply, Truncated) and reply.CODE in RESET_COMPLETED:
            # Two in a row are one.
            self._completed = True
            self.m.acknowledge_reset(reply.CODE)
        else:
            self.m.unexpected(reply)


def reset(m: ClientMachine, seed: int) -> Exchange[bool]:
    """Reset the world, one request for each agent of this session; True where the completion was seen.

    ``seed``: a 32-bit integer, 0 for "don't care". Raises BarrierStuck when others do not send their requests within
    the limit, StepUncertain, SessionLost.
    """
    if m.episode.request_outstanding:
        raise StepUncertain(f"{INTERRUPTED}: it would fire later", interrupted=True)
    if m.episode.reset_outstanding:
        raise StepUncertain(
            "an earlier reset was interrupted or given up, and may complete later", interrupted=True
        )
    if not m.controlled:
        raise LocalProtocolError(
            "a session that controls no agent has no part in a reset", hint="register first"
        )
    m.episode.shared = False
    yield from overview(m)
    if not m.episode.stepped and m.alone:
        # A NERD server under load loses 1 in 300 resets that follow a reset.
        yield from step(m, FastPath(_neutral_requests(m), pipelining=m.profile.pipelining))
    if seed and m.profile.seeds_by_variable:
        yield from seed_by_value(m, seed)
    seen = yield from _reset_once(m, seed)
    if m.episode.barrier_unknown and m.alone and len(m.controlled) > 1 and not m.clock.missing:
        yield from empty_barrier(m)
        seen = yield from _reset_once(m, seed)
    m.episode.barrier_unknown = False
    # Whoever came meanwhile has taken part in the reset.
    yield from overview(m)
    return seen


def _neutral_requests(m: ClientMachine) -> list[StepRequest]:
    requests = [StepRequest(agent, m.profile) for agent in m.controlled.values()]
    for request in requests:
        request.rest()
    return requests


def _reset_once(m: ClientMachine, seed: int) -> Exchange[bool]:
    """One reset. Raises as ``reset`` does."""
    episode = m.episode
    before = yield from _clock_above_zero(m)
    episode.doubt = ""
    episode.reset_outstanding = True
    episode.stepped = False
    r = PendingReset(m, seed, tells=bool(before) and m.learned.resets_zero_clock)
    with m.limited(m.limits.reset) as limit, m.stray_to(r.take):
        done = yield from r.run(limit, partial(_on_silence, m, r))
    if not done:
        raise (yield from r.stuck(m.limits.reset))
    episode.reset_outstanding = False
    if r.is_completed() and not r.sent_again and m.alone:
        m.learned.reset_times.append(m.now - r.began)
    if r.sent_again:
        yield from pause(m, SILENCE)
    yield from _start_clock_behind(m, r, before)
    return r.is_completed()


def _on_silence(m: ClientMachine, r: PendingReset, patience: float) -> Exchange[bool]:
    """Find out what became of the reset, and do what the table says; True: it is done."""
    if r.is_completed():
        # Acknowledgements that are missing now are lost.
        return True
    if (yield from r.free_waiting_handler()):
        return r.is_completed()
    try:
        time = yield from r.query_clock(patience)
        if r.is_completed():
            return True
        if r.sent < r.wanted:
            r.sent += 1
            r.send()
            return False
        row = _decide(m, r, time)
        if row.action is Action.SEND_AGAIN:
            yield from overview(m)
            row = _decide(m, r, time)
    except QueryTimeout:
        # A server of one thread answers nothing while it works.
        r.unanswered += 1
        return r.is_completed()
    if row.action is Action.SEND_AGAIN and r.sent_again < SENT_AGAIN_AT_MOST:
        r.sent_again += 1
        r.send()
    return r.is_completed() or row.action is Action.RESTORE


def _decide(m: ClientMachine, r: PendingReset, time: float | None) -> Row:
    zeroed = r.tells and time == 0.0
    return decide(RESET_TABLE, zeroed, r.wanted - r.acked, alone=m.alone, overdue=r.overdue)


# --- the clock around a reset ----------------------------------------------------------------------------------------


def _clock_above_zero(m: ClientMachine) -> Exchange[float | None]:
    """What the clock shows before the reset; None where there is none."""
    if m.clock.value_id is None:
        yield from start_clock(m)
    time = yield from read_clock(m)
    if time == 0.0 and m.alone and m.learned.clock_can_be_set and m.clock.value_id is not None:
        try:
            yield from set_value(m, m.clock.value_id, f"{ABOVE_ZERO:g}")
        except ValueRejected:
            m.learned.clock_can_be_set = False
        time = yield from read_clock(m)
        m.learned.clock_can_be_set = time == ABOVE_ZERO
    return time


def _start_clock_behind(m: ClientMachine, r: PendingReset, before: float | None) -> Exchange[None]:
    """Learn where the clock stands behind the reset. Raises StepUncertain where a step has run since."""
    yield from start_clock(m)
    time = m.clock.base
    if not time or not before or not m.alone:
        return
    shown = [time]
    for _ in range(LOOKS):
        yield from pause(m, SECOND_LOOK)
        again = yield from read_clock(m)
        if again is None:
            return
        shown.append(again)
    if all(earlier < later for earlier, later in pairwise(shown)):
        # It runs by itself.
        drop_clock(m)
    elif shown == [before] * len(shown) and r.is_completed():
        m.learned.resets_zero_clock = False
    elif m.learned.resets_zero_clock:
        raise m.uncertain(
            f"the clock shows {time:.9g} s behind a reset: a request of before it stepped the world"
        )


# --- requests of an earlier session ----------------------------------------------------------------------------------


def empty_barrier(m: ClientMachine) -> Exchange[None]:
    """Have requests that outlived an earlier session step the world: with neutral inputs, one request at a time.

    On a NERD server they would make this session's steps run early with all counts right. When the clock moves, none is
    counted any more. Raises StepUncertain where it does not.
    """
    requests = _neutral_requests(m)

    def take(reply: Reply) -> None:
        if isinstance(reply, StepCompleted):
            m.send(StepCompletedAck(reply.agent_id))
        elif not isinstance(reply, NextSimulationStepAck):
            m.unexpected(reply)

    m.episode.request_outstanding = True
    # A request that is lost is sent again behind all others: that none is left over is all that counts here.
    with m.stray_to(take):
        for request in islice(cycle(requests), len(requests) + SILENCES):
            m.outgoing.append(request.datagram)
            yield from pause(m, SILENCE)
            if (yield from read_clock(m)) != m.clock.base:
                break
        else:
            raise m.uncertain("requests of an earlier session may still be counted")
    m.episode.request_outstanding = False
    m.episode.stepped = True


# --- seeds -----------------------------------------------------------------------------------------------------------


def seed_by_value(m: ClientMachine, seed: int) -> Exchange[None]:
    """Write the seed of the next reset, for servers that ignore the one in RESET_SIMULATION (deviation D10).

    What hinders that is told, and does not hinder the reset.
    """
    if SEED in m.values.without or m.values.silent:
        return
    try:
        entry = yield from find_value(m, SEED)
        if entry is None:
            m.values.without.add(SEED)
            m.notices.remark(f"{m.peer} has no variable {SEED}: seeds have no effect")
            return
        taken = yield from set_value(m, entry.id, str(seed), name=SEED)
    except (QueryTimeout, IncompleteListing):
        m.notices.remark(f"{m.peer} did not answer about {SEED}: it has not got the seed {seed}", about=SEED)
        return
    except ValueRejected:
        taken = False
    if not taken:
        m.notices.remark(f"{m.peer} refused the seed {seed}", about=SEED)
    elif OWN_SEEDS not in m.values.without:
        m.values.without.add(OWN_SEEDS)
        yield from _look_for_own_seeds(m)


def _look_for_own_seeds(m: ClientMachine) -> Exchange[None]:
    """Tell where the simulator is set to draw a seed at each reset, in place of the one that it was given."""
    try:
        entry = yield from find_value(m, OWN_SEEDS)
        content = None if entry is None else (yield from get_value(m, entry.id))
    except (QueryTimeout, IncompleteListing):
        # It is there to be told of, and nothing depends on it.
        return
    if content is not None and content.strip().upper() in YES:
        m.notices.remark(
            f"{m.peer} draws a seed of its own at each reset: given seeds have no effect ({OWN_SEEDS} is {content}; "
            "false under [values] of a scenario mends that)"
        )
