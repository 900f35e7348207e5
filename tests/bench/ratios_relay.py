"""What relaying may cost the loop of steps, as a ratio to the same loop without an upstream. Never times.

Both are measured in turn, several times, until the medians of the ratios kept what was promised: machines are shared.
"""

from __future__ import annotations

import os

import pytest

from ospbridge.bench.relaying import STEPS, WHILE_IT_SLEEPS, relaying_runs
from ospbridge.bench.report import Values
from ospbridge.bench.subjects import IN_EPISODES, RELAYED
from tests.bench.patience import usual_until

pytestmark = pytest.mark.loopback

A_STEP, IN_ALL = "a step", "all steps and resets"
ASLEEP = ", simulator sleeps between steps"
LIMITS = {A_STEP: 1.08, IN_ALL: 1.25, A_STEP + ASLEEP: 1.08, IN_ALL + ASLEEP: 1.12}
"""Of the median of single steps, what each step waits for; and of the time for all steps and resets, with the work
behind each end of an episode, which the daemon, the spool's thread and the sink do on the same few cores. A simulator
that does not sleep leaves two cores no time for that work. A step costs 1.00 to 1.03, all of them 1.03 to 1.08 (the
medians of 30 and 40 runs); a single run is up to a fifth off, since a process may be so much faster than its twin."""
LONGEST = 60.0
"""Seconds in which medians must come to be that low."""


def costs(run: dict[str, Values]) -> dict[str, float]:
    found = {}
    for what, (plain, relayed) in {
        "": (IN_EPISODES, RELAYED),
        ASLEEP: (WHILE_IT_SLEEPS[IN_EPISODES], WHILE_IT_SLEEPS[RELAYED]),
    }.items():
        found[A_STEP + what] = run[relayed]["p50_us"] / run[plain]["p50_us"]
        found[IN_ALL + what] = run[plain]["steps_per_second"] / run[relayed]["steps_per_second"]
    return found


@pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="the daemon needs a core beside the environment's"
)
@pytest.mark.timeout(240)
def test_relaying_costs_a_loop_of_steps_and_resets_at_most_what_was_promised() -> None:
    broken = usual_until(relaying_runs(steps=STEPS), costs, LIMITS, least=5, longest=LONGEST)
    assert not broken, broken
