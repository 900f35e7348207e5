"""Whether a simulator of this host stalls because of how its threads are scheduled, and how fast it steps."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.diagnosis.checks import Check, advice, skipped, well
from ospbridge.diagnosis.stage import neutral
from ospbridge.errors import OspBridgeError
from ospbridge.launch.scheduling import owner_of, threads_of
from ospbridge.osp.notices import STALLED
from ospbridge.text import listed, pluralize
from ospbridge.transport.addresses import is_of_this_host, resolve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.interface import Endpoint
    from ospbridge.launch.scheduling import Thread
    from ospbridge.osp.profile import Profile
    from ospbridge.session.blocking import BlockingSession

__all__ = ["Pace", "check_scheduling", "measured_pace", "policies_told"]

STEPS: Final = 1000
LONGEST: Final = 15.0
"""Seconds of measuring, at most."""
ORDINARY: Final = "SCHED_OTHER"


def check_scheduling(simulator: Endpoint, profile: Profile) -> Check | None:
    """Of a simulator that answered: whether its threads may be what makes its steps stall.

    None where it is not a kind that stalls, runs on another host, or on a platform without SCHED_BATCH.
    """
    if not (
        profile.loses_wakeups and hasattr(os, "SCHED_BATCH") and is_of_this_host(resolve(simulator).host)
    ):
        return None
    subject = f"scheduling of {simulator}"
    try:
        process = owner_of(simulator)
        threads = threads_of(process)
    except OspBridgeError as error:
        return skipped(subject, error.message)
    told = f"pid {process.pid}: {policies_told(threads)}"
    if any(thread.policy == ORDINARY for thread in threads):
        return advice(
            subject,
            f"{told}: simulators of the {profile.name} profile lose wake-ups between such threads, and steps stall for "
            "50 ms",
            f"ospbridge tune {simulator}",
        )
    return well(subject, told)


def policies_told(threads: Sequence[Thread]) -> str:
    """How many threads there are under each policy."""
    counts = Counter(thread.policy for thread in threads)
    return ", ".join(
        f"{pluralize(count, 'thread')} under {policy}" for policy, count in sorted(counts.items())
    )


@dataclass(frozen=True, slots=True)
class Pace:
    """Steps of a free agent: how many there were, the share that was later than 45 ms, and steps a second."""

    steps: int
    stalled: float
    steps_per_second: float


def measured_pace(session: BlockingSession) -> Pace | str:
    """Step an agent with its neutral action, ``STEPS`` times or for ``LONGEST`` seconds; it is given back in the end.

    A text says why nothing was measured: no agent is free, or another client steps this world. Raises what steps raise.
    """
    agents = session.agents()
    taken = [agent.name for agent in agents if not agent.available]
    if not agents:
        return "the simulator offers no agents"
    if taken:
        return f"another client steps this world: {listed(taken)} taken"
    (agent,) = session.register(agents[0].name)
    action = neutral(agent)
    took: list[float] = []
    try:
        session.step_one(action)  # the first one also asks for the clock
        began = now = monotonic()
        while len(took) < STEPS and now - began < LONGEST:
            session.step_one(action)
            before, now = now, monotonic()
            took.append(now - before)
    finally:
        session.deregister(agent.name)
    seconds = np.array(took)
    return Pace(len(took), float((seconds > STALLED).mean()), len(took) / float(seconds.sum()))
