"""A server that loses wake-ups hardly stalls under SCHED_BATCH. Shares and ratios within a run, never times."""

from __future__ import annotations

import os

import pytest

from ospbridge.bench.stalling import NO_COMPILER, compiler
from ospbridge.bench.stalls import conclusive, measure_stalls, shortcomings

pytestmark = pytest.mark.loopback

SITTINGS = 4
"""Each of five runs. Whether wake-ups are lost at all depends on where the kernel puts the threads."""


@pytest.mark.skipif(compiler() is None, reason=NO_COMPILER)
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a client and a server need a core each")
@pytest.mark.timeout(600)
def test_under_the_policy_hardly_a_step_stalls_and_many_more_are_made() -> None:
    found = []
    for _ in range(SITTINGS):
        rows = measure_stalls().rows
        if conclusive(rows):
            missed = shortcomings(rows)
            if not missed:
                return
            found.append(missed)
    if not found:
        pytest.skip("under the default policy too few steps stalled to see a cure")
    raise AssertionError(found)
