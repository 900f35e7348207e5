"""What losses cost: steps a second of virtual time, and episodes that end.

At a server of the profile `nerd` that stalls in 2 of 100 steps. ``python -m tests.storm.losses`` plays longer, and
through real sockets too.
"""

from __future__ import annotations

from typing import Final

import pytest

from ospbridge.osp.profile import NERD, Profile
from tests.osp.stage import BOTH
from tests.storm.losses import Figures, together

CREWS: Final = pytest.mark.parametrize("agents", [1, 3])

# --- figures -------------------------------------------------------------------------------------------------------


def found(network: str, agents: int, profile: Profile = NERD) -> Figures:
    """Several agents take longer, in this process too."""
    return together(network, agents, steps=1000 if agents == 1 else 200, profile=profile.name)


@CREWS
@pytest.mark.parametrize("network", ["no loss", "no loss, stopped now and then"])
def test_without_loss_no_episode_ends_and_nothing_is_stepped_twice(network: str, agents: int) -> None:
    figures = found(network, agents)
    assert (figures.ends, figures.wrong) == (0, 0)


@BOTH
@pytest.mark.parametrize("agents, steps_a_second, ends", [(1, 18.0, 5), (3, 0.0, 15)])
def test_what_a_loss_of_2_percent_costs(
    profile: Profile, agents: int, steps_a_second: float, ends: int
) -> None:
    """Of 1,000 steps at most so many end an episode."""
    figures = together("loses 2 %", agents, steps=1000 if agents == 1 else 400, profile=profile.name)
    assert figures.wrong == 0
    assert figures.steps_a_second >= steps_a_second
    assert figures.ends <= ends * figures.steps / 1000


@pytest.mark.parametrize("agents, steps_a_second", [(1, 5.0), (3, 0.0)])
@pytest.mark.parametrize("network", ["loses 2 %, stopped now and then", "loses, doubles, delays 2 %"])
def test_what_is_wrong_on_a_bad_network_is_told(network: str, agents: int, steps_a_second: float) -> None:
    figures = found(network, agents)
    assert figures.wrong == 0
    assert figures.steps_a_second >= steps_a_second * ("doubles" in network)
