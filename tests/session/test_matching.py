"""Agents by name, where a simulator has several of one name."""

from __future__ import annotations

import pytest

from ospbridge.errors import AgentNotFound, AgentTaken
from ospbridge.interface import AgentEntry, Endpoint, Match
from ospbridge.osp.client.notices import told_by
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.session.matching import NO_SCENE, choose
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


@pytest.mark.parametrize("patterns", [(), ("twin",), ("*",)])
def test_where_there_are_none_at_all_a_scene_is_missing(patterns: tuple[str, ...]) -> None:
    with pytest.raises(AgentNotFound, match="offers no agents at all") as caught:
        choose((), patterns, server=SERVER, mine=(), available=True)
    assert caught.value.hint == NO_SCENE


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


@pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
def test_whoever_leaves_agents_of_one_name_to_others_is_told_so_once(profile: Profile) -> None:
    pair = Pair(SyntheticWorld(1, 1, names=["twin", "twin", "twin", "other", "other2"]), profile)
    first, second, third = joined(pair), joined(pair), joined(pair)
    told = []
    for client in (first, second, third):
        talk = client.conversation
        client.do(talk.register(client.do(talk.matching(("twin",)))))
        client.do(talk.register(client.do(talk.matching(("twin",)))))
        told.append([remark.partition(" of ")[2] for remark in told_by(talk.take_notices()).remarks])
    ending = "are called 'twin'", "is called 'twin'"
    assert [len(remarks) for remarks in told] == [1, 1, 0]
    assert [remarks[0].endswith(end) for remarks, end in zip(told, ending, strict=False)] == [True, True]


@pytest.mark.parametrize(
    "patterns, meant, names",
    [
        ((), [Match(type="Arm")], ("a", "b")),
        (("*",), [Match(type="Arm")], ("a", "b")),
        (("*",), [Match(name="b"), Match(type="Le?")], ("leg", "b")),
        (("leg", "a"), [Match(type="Arm")], ("leg", "a")),
        (("*",), [Match(type="Wing")], ("a", "leg", "b")),
        ((), [Match(type="Wing")], ("a", "leg", "b")),
        (("[al]*",), (), ("a", "leg")),
    ],
)
def test_of_those_that_fit_what_is_meant_counts_and_all_where_that_is_none(
    patterns: tuple[str, ...], meant: list[Match], names: tuple[str, ...]
) -> None:
    agents = [
        AgentEntry(number, name, kind, True)
        for number, (name, kind) in enumerate([("a", "Arm"), ("leg", "Leg"), ("b", "Arm")], 1)
    ]
    assert choose(agents, patterns, server=SERVER, mine=(), available=True, meant=meant) == names


@pytest.mark.parametrize("patterns", [(), ("*",)])
def test_what_is_meant_and_taken_is_not_replaced_by_what_is_not_meant(patterns: tuple[str, ...]) -> None:
    agents = [AgentEntry(1, "arm", "Arm", False), AgentEntry(2, "leg", "Leg", True)]
    with pytest.raises(AgentTaken, match="arm"):
        choose(agents, patterns, server=SERVER, mine=(), available=True, meant=[Match(type="Arm")])


@pytest.mark.parametrize(
    "patterns, meant, names",
    [
        (("robot[1]",), (), ("robot[1]",)),
        (("a*", "robot?"), (), ("a*", "robot1")),
        (("a?",), (), ("ab", "a*")),
        (("robot*",), [Match(name="robot[1]")], ("robot[1]",)),
        ((), [Match(name="a*")], ("a*",)),
        ((), [Match(name="a*", type="Leg")], ("ab", "robot1", "robot[1]", "a*")),
    ],
)
def test_a_name_that_looks_like_a_glob_means_the_agent_that_is_called_so(
    patterns: tuple[str, ...], meant: list[Match], names: tuple[str, ...]
) -> None:
    agents = [
        AgentEntry(number, name, "Arm", True)
        for number, name in enumerate(["ab", "robot1", "robot[1]", "a*"], 1)
    ]
    assert choose(agents, patterns, server=SERVER, mine=(), available=True, meant=meant) == names
