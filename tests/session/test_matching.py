"""Agents by name, where a simulator has several of one name."""

from __future__ import annotations

import pytest

from ospbridge.errors import AgentTaken
from ospbridge.interface import AgentEntry, Endpoint
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.session.matching import choose
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.pair import Pair
from tests.osp.test_client import joined

SERVER = Endpoint("127.0.0.1", 45454)


def twins(*available: bool) -> list[AgentEntry]:
    return [AgentEntry(number, "twin", "Agent", free) for number, free in enumerate(available, 1)]


@pytest.mark.parametrize("patterns", [(), ("twin",), ("tw*",), ("twin", "*")])
@pytest.mark.parametrize("available", [(True, True), (False, True), (True, False)])
def test_of_several_agents_of_one_name_one_is_meant(
    patterns: tuple[str, ...], available: tuple[bool, ...]
) -> None:
    assert choose(twins(*available), patterns, server=SERVER, mine=(), available=True) == ("twin",)


def test_where_all_of_them_are_taken_that_is_an_error() -> None:
    with pytest.raises(AgentTaken):
        choose(twins(False, False), ("twin",), server=SERVER, mine=(), available=True)


@pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
def test_each_client_gets_another_one_until_none_is_left(profile: Profile) -> None:
    pair = Pair(SyntheticWorld(1, 1, names=["twin", "twin"]), profile)
    clients = [joined(pair), joined(pair)]
    for number, client in enumerate(clients, 1):
        names = client.do(client.conversation.matching(("twin",)))
        (interface,) = client.do(client.conversation.register(names))
        assert interface.id == number
    third = joined(pair)
    with pytest.raises(AgentTaken):
        third.do(third.conversation.matching(("twin",)))
