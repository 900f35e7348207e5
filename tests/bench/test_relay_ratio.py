"""What relaying may cost the loop of steps, as a ratio to the same loop without an upstream. Never times.

Both are measured in turn, many times, and the quickest moments of each count, until the promise is kept: machines are
shared.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from ospbridge.bench.relaying import STEPS, WHILE_IT_SLEEPS, relaying_runs
from ospbridge.bench.stage import Stage
from ospbridge.bench.subjects import IN_EPISODES, RELAYED, SUBJECTS
from ospbridge.session.hub_client import HubClient
from tests.bench.patience import best_until

if TYPE_CHECKING:
    from ospbridge.bench.report import Values

pytestmark = pytest.mark.loopback

PER_STEP = 1.05
"""Of the median of single steps: what each step waits for."""
IN_ALL = 1.10
"""Of the time for all steps and resets, with the work behind each end of an episode, which the daemon, the spool's
thread and the sink do on the same few cores, where the simulator sleeps between steps; ..."""
WITHOUT_A_CORE = 1.25
"""... and where it does not, so that two cores have none for that work."""
LONGEST = 150.0
"""Seconds in which a quiet moment must come."""


def costs_little(best: dict[str, Values], in_all: float) -> bool:
    plain, relayed = best[IN_EPISODES], best[RELAYED]
    return (
        relayed["quiet_p50_us"] <= PER_STEP * plain["quiet_p50_us"]
        and plain["quiet_steps_per_second"] <= in_all * relayed["quiet_steps_per_second"]
    )


@pytest.mark.timed
@pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="the daemon needs a core beside the environment's"
)
@pytest.mark.timeout(240)
def test_relaying_costs_a_loop_of_steps_and_resets_at_most_what_was_promised() -> None:
    def kept(best: dict[str, Values]) -> bool:
        asleep = {name: best[other] for name, other in WHILE_IT_SLEEPS.items()}
        return costs_little(best, WITHOUT_A_CORE) and costs_little(asleep, IN_ALL)

    broken = best_until(relaying_runs(steps=STEPS), kept, longest=LONGEST)
    assert not broken, broken


def test_what_is_relayed_arrives() -> None:
    with Stage(inputs=2, outputs=3) as stage:
        SUBJECTS[RELAYED](stage, 250, 50)
        client = HubClient.connect(stage.relayed_hub)
        try:
            give_up = time.monotonic() + 30.0
            while (upstream := client.status().upstreams[0]).delivered < 300 and time.monotonic() < give_up:
                time.sleep(0.05)
        finally:
            client.close()
    assert upstream.trouble == ""
    assert upstream.delivered == 300
