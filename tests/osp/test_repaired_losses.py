"""What losses cost: steps a second of virtual time, episodes that end, and what the next session finds.

At a server of the profile `nerd` that stalls in 2 of 100 steps. ``python -m tests.storm.losses`` plays longer, and
through real sockets too.
"""

from __future__ import annotations

import struct
from itertools import chain, combinations
from typing import TYPE_CHECKING, Final

import pytest

from ospbridge.osp.codes import Code
from ospbridge.osp.profile import NERD
from tests.osp.environment import TOLD, Environment
from tests.osp.playing import COUNTED, DONE, REQUEST, SEEN
from tests.osp.stage import BOTH
from tests.storm.explaining import judge
from tests.storm.lives import INPUTS, Storm, Weather
from tests.storm.losses import Figures, together

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ospbridge.osp.profile import Profile
    from tests.osp.pair import Datagram

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


def test_the_judge_sees_what_did_not_run() -> None:
    storm = Storm(1, "nerd", 1, 1, Weather(0.0, 0.0, 0.0, 0.0), steps=30)
    assert not judge(storm).broken
    assert judge(storm, forged=lambda ledger: ledger.pop(5)).broken


# --- the step behind a loss ------------------------------------------------------------------------------------------


def asked(came: Iterable[Datagram]) -> set[Code]:
    """What the client sent."""
    return {Code(datagram.data[0]) for datagram in came if datagram.to_server}


@BOTH
@CREWS
@pytest.mark.parametrize("lost", [REQUEST, COUNTED, DONE, SEEN], ids=lambda code: code.name)
def test_the_step_behind_a_repaired_loss_asks_nothing(profile: Profile, agents: int, lost: Code) -> None:
    env = Environment(profile, agents)
    env.begin()
    for _ in range(2):
        env.step()
    lose = [True]

    def fault(datagram: Datagram) -> Iterable[float]:
        return () if datagram.data[0] == lost and lose and lose.pop() else (0.0,)

    env.pair.fault = fault
    env.step()
    # That a server still waits for an acknowledgement shows in the next step.
    if lost == SEEN:
        env.step()
    assert not lose
    came = env.meets(lambda _: (0.0,))
    env.step()
    assert asked(came) == {REQUEST, SEEN}
    env.calm()
    env.play(2)
    env.verify()
    assert env.ends == []


# --- requests that outlive their session -----------------------------------------------------------------------------

OUTSTANDING: Final = list(chain.from_iterable(combinations((1, 2, 3), count) for count in (1, 2)))


@pytest.mark.parametrize("agents", OUTSTANDING, ids=lambda of: "".join(map(str, of)))
def test_requests_outstanding_when_a_session_ends_do_not_step_the_next_ones(agents: tuple[int, ...]) -> None:
    env = Environment(NERD, 3)
    env.begin()
    env.step()
    with env.honest():
        # No request of a step arrives until its limit, nor what the clock shows ...
        env.pair.fault = lambda datagram: () if datagram.data[0] in {REQUEST, Code.VALUE} else (0.0,)
        with pytest.raises(TOLD) as told:
            env.step()
        env.calm()
        # ... and then some of its requests do.
        for agent in agents:
            request = struct.pack(f"<Bii{INPUTS}f", REQUEST, agent, INPUTS, *[0.75] * INPUTS) + NERD.end
            env.pair.to_handler(request, env.talk.handler.port, env.client.address)
        env.pair.settle(0.1)
        outstanding = list(env.pair.server.step_requests)
        assert len(outstanding) == len(agents)
        raise told.value
    assert len(env.ends) == 1
    env.ready()
    # A real server keeps them, in whatever way a session leaves, and whoever registers then.
    env.pair.server.step_requests = outstanding
    for _ in range(2):
        env.play(6)
        env.verify()
    assert len(env.ends) == 1
