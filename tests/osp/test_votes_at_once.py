"""More agents than a server's receive buffer holds votes: the rest go out when others were acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from ospbridge.osp.codes import Code
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.pair import Datagram, Pair

if TYPE_CHECKING:
    from collections.abc import Iterable

HOLDS: Final = 250
"""Datagrams that fit into a receive buffer of the usual size."""
AGENTS: Final = 600
VOTES: Final = (Code.RESET_SIMULATION, Code.NEXT_SIMULATION_STEP)
ACKNOWLEDGED: Final = (Code.RESET_SIMULATION_ACK, Code.NEXT_SIMULATION_STEP_ACK)


@pytest.mark.exhaustive
@pytest.mark.parametrize("guarded", [False, True], ids=["", "guarded"])
@pytest.mark.parametrize(
    "profile, repeated",
    [(DOCUMENT, False), (DOCUMENT, True), (NERD, False)],
    ids=["document", "document, and the reset is voted for twice", "nerd"],
)
def test_a_server_is_sent_no_more_votes_at_once_than_its_buffer_holds(
    profile: Profile, *, guarded: bool, repeated: bool
) -> None:
    under_way = 0
    lost = not repeated

    def fault(datagram: Datagram) -> Iterable[float]:
        nonlocal under_way, lost
        code = datagram.data[0]
        if datagram.to_server and code in VOTES:
            if not lost:
                lost = True
                return ()
            if under_way >= HOLDS:
                return ()
            under_way += 1
        elif not datagram.to_server and code in ACKNOWLEDGED:
            under_way -= 1
        return (0.0,)

    names = [f"agent{number}" for number in range(AGENTS)]
    pair = Pair(SyntheticWorld(1, 1, names=names), profile, fault=fault)
    client = pair.client(profile).connect()
    client.do(client.conversation.register(names))
    assert client.do(client.conversation.reset(1))
    client.conversation.machine.guarded = guarded
    began = pair.now
    for step in range(3):
        client.do(client.conversation.step({name: [step / 10] for name in names}))
    assert pair.now - began < 3.0
    assert sum(entry["kind"] == "step" for entry in pair.ledger) == 3
