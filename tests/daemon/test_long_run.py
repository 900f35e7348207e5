"""Most of a minute of a whole bridge: nothing grows. `.ci/long hours` has an hour of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.daemon.hours import Bridge, grown, samples

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.loopback
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_playing_recording_and_relaying_for_a_while_leaves_nothing_behind(runtime_directory: Path) -> None:
    with Bridge(runtime_directory) as bridge:
        found = list(samples(bridge, seconds=45.0, every=3.0))
    assert found[-1].steps > found[0].steps
    assert max(sample.waiting for sample in found) < 100
    assert grown(found) == []
