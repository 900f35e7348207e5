"""A question for a list that is given up in the midst: by Ctrl-C, a cancelled task, or its limit.

The handler of a NERD server awaits an acknowledgement then, and takes whatever comes next for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.errors import QueryTimeout
from ospbridge.osp.codes import Code
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.timing import Limits
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from tests.osp.pair import Datagram, Pair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.osp.pair import Client

NAMES = ["agent", "other", "third"]
GIVEN = np.array([0.25], np.float32)
LISTS: dict[str, Callable[[Any], Any]] = {
    "overview": lambda talk: talk.overview(),
    "interface": lambda talk: talk.describe("other"),
    "values": lambda talk: talk.values(),
}


def joined(profile: Profile) -> tuple[Pair, Client, Any]:
    """A client in mid-episode."""
    pair = Pair(SyntheticWorld(1, 2, names=NAMES), profile)
    client = pair.client(profile, limits=Limits(query=2.0)).connect()
    talk: Any = client.conversation
    client.do(talk.register(["agent"]))
    client.do(talk.reset(7))
    for _ in range(2):
        client.do(talk.step({"agent": GIVEN}))
    return pair, client, talk


def interrupt(pair: Pair, client: Client, question: Any, *, datagrams: int) -> None:
    """Begin it, and give it up when so many datagrams were sent."""
    until = len(pair.sent) + datagrams
    client.begin(question)
    while len(pair.sent) < until:
        pair.advance(until=pair.now + 1.0)
    assert not client.finished, "it was not over yet"
    client.conversation.machine.interrupt(KeyboardInterrupt())


@pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
@pytest.mark.parametrize("which", LISTS)
@pytest.mark.parametrize("datagrams", [1, 2, 3])
def test_a_step_behind_an_interrupted_list_runs_at_once(profile: Profile, which: str, datagrams: int) -> None:
    pair, client, talk = joined(profile)
    interrupt(pair, client, LISTS[which](talk), datagrams=datagrams)
    began = pair.now
    for step in range(3, 6):
        outcome = client.do(talk.step({"agent": GIVEN}))["agent"]
        np.testing.assert_array_equal(outcome.outputs, expected(GIVEN, step, 2, 7))
    assert pair.now - began < profile.patience
    assert client.do(talk.audit()) == ""


@pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
def test_a_reset_behind_an_interrupted_list_runs_at_once(profile: Profile) -> None:
    pair, client, talk = joined(profile)
    interrupt(pair, client, talk.overview(), datagrams=2)
    began = pair.now
    assert client.do(talk.reset(8))
    assert pair.now - began < profile.patience
    outcome = client.do(talk.step({"agent": GIVEN}))["agent"]
    np.testing.assert_array_equal(outcome.outputs, expected(GIVEN, 1, 2, 8))


def test_a_step_behind_a_list_that_met_its_limit_runs_at_once() -> None:
    pair, client, talk = joined(NERD)

    def loses(datagram: Datagram) -> Iterable[float]:
        return () if datagram.data[0] in (Code.AGENT_OVERVIEW, Code.AGENT_OVERVIEW_NEXT) else (0.0,)

    pair.fault = loses
    with pytest.raises(QueryTimeout):
        client.do(talk.overview())
    pair.fault = lambda _: (0.0,)
    began = pair.now
    outcome = client.do(talk.step({"agent": GIVEN}))["agent"]
    np.testing.assert_array_equal(outcome.outputs, expected(GIVEN, 3, 2, 7))
    assert pair.now - began < NERD.patience


@pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
def test_a_list_is_not_answered_with_that_of_an_interrupted_question(profile: Profile) -> None:
    pair, client, talk = joined(profile)
    interrupt(pair, client, talk.values(), datagrams=1)
    wanted = "/Simulation/.*"
    found = client.do(talk.values(wanted))
    pair.settle()
    assert found == client.do(talk.values(wanted))
    assert all(entry.name.startswith("/Simulation/") for entry in found)
