"""Lists of agents and variables: complete, true to the question, also of servers that read the document otherwise."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ospbridge.errors import AgentNotFound, IncompleteListing, QueryTimeout, RemoteProtocolError, UsageError
from ospbridge.osp import agents
from ospbridge.osp.client import ClientMachine, Exchange
from ospbridge.osp.codes import SIMULATION_TIME, TIME_STEP_SIZE, Code
from ospbridge.osp.lists import find_value, list_values, literal
from ospbridge.osp.messages import (
    AgentInfo,
    AgentInfoNext,
    AgentOverview,
    AgentOverviewNext,
    GetAgentInfo,
    GetAgentOverview,
    GetValueIds,
    Message,
    ValueIds,
    ValueInfo,
    decode_request,
)
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.repository import compile_expression
from ospbridge.osp.step import FIRST_STEP
from ospbridge.osp.timing import SILENCE, Limits
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from tests.osp.pair import Pair
from tests.osp.stage import BOTH, SHORT, give, next_timer, on_stage, sent, silence

AT_MOST: Final = 20_000
LATENCY: Final = 1e-4


class Lister:
    """Answers questions for lists. ``one_by_one``: it sends each piece when anything has come behind the one before.

    ``by_kind``: inputs, outputs and infos have an index each. ``holds``: so many datagrams of a burst arrive.
    ``whole``: an expression must fit the whole name.
    """

    def __init__(
        self,
        agents: int = 2,
        *,
        first: int = 0,
        one_by_one: bool = False,
        by_kind: bool = False,
        names: Iterable[str] = (),
        holds: int = AT_MOST,
        whole: bool = False,
    ) -> None:
        self.agents = agents
        self.first = first
        self.by_kind = by_kind
        self.one_by_one = one_by_one
        self.names = list(names)
        self.holds = holds
        self.whole = whole
        self.asked: list[Message] = []
        self._left: list[Message] = []

    def answers(self, data: bytes) -> list[Message]:
        if self._left:
            return [self._left.pop(0)]
        request = decode_request(data)
        if isinstance(request, GetAgentOverview):
            pieces: list[Message] = [
                AgentOverviewNext(self.first + i, i + 1, "Agent", 1, f"agent{i}") for i in range(self.agents)
            ]
            head: Message = AgentOverview(self.agents)
        elif isinstance(request, GetAgentInfo):
            order = [0, 1, 2, 3, 0, 1, 2, 0, 1] if self.by_kind else range(9)
            pieces = [AgentInfoNext(self.first + i, -1.0, 1.0, f"/value{at}") for at, i in enumerate(order)]
            head = AgentInfo(request.agent_id, 4, 3, 2, "agent0")
        elif isinstance(request, GetValueIds):
            fits = re.fullmatch if self.whole else re.search
            found = [(at, name) for at, name in enumerate(self.names) if fits(request.expression, name)]
            pieces = [ValueInfo(self.first + i, at, "Double", name) for i, (at, name) in enumerate(found)]
            head = ValueIds(len(pieces))
        else:
            return []
        self.asked.append(request)
        if not self.one_by_one:
            return [head, *pieces][: self.holds]
        self._left = pieces
        return [head, *([self._left.pop(0)] if pieces else [])]


def run(machine: ClientMachine, exchange: Exchange[Any], answers: Callable[[bytes], list[Message]]) -> Any:
    machine.begin(exchange, machine.now)
    for _ in range(AT_MOST):
        if machine.finished:
            return machine.result()
        outgoing = [bytes(data) for data in machine.outgoing]
        machine.outgoing.clear()
        replies = [reply for data in outgoing for reply in answers(data)]
        for reply in replies:
            machine.receive(reply.encode(end=True), machine.now + LATENCY)
        if not replies and not machine.outgoing and machine.deadline is not None:
            machine.handle_timer(machine.deadline)
    raise AssertionError("it does not end")


# --- agents --------------------------------------------------------------------------------------------------------


def test_an_overview_tells_who_is_free_and_who_is_with_others() -> None:
    machine, _ = on_stage(NERD)
    machine.begin(agents.overview(machine), 0.0)
    give(
        machine,
        AgentOverview(3),
        *(AgentOverviewNext(at, at + 1, "Agent", at % 2, f"a{at}") for at in (2, 0, 1)),
    )
    entries = machine.result()
    assert [(entry.id, entry.name, entry.available) for entry in entries] == [
        (1, "a0", False),
        (2, "a1", True),
        (3, "a2", False),
    ]
    assert machine.foreign == {"a2"}, "the first is ours"
    assert machine.agent_names == {1: "a0", 2: "a1", 3: "a2"}
    assert not machine.alone
    assert sent(machine) == [Code.GET_AGENT_OVERVIEW, Code.AGENT_OVERVIEW_ACK]
    machine.begin(agents.overview(machine), 0.0)
    give(machine, AgentOverview(3), *(AgentOverviewNext(at, at + 1, "Agent", 1, f"a{at}") for at in range(3)))
    assert not machine.foreign
    assert not machine.alone, "nobody is, until the next reset"


@pytest.mark.parametrize("count", [1, 40])
def test_pieces_that_wait_for_an_acknowledgement_each_are_acknowledged_each(count: int) -> None:
    machine, server = ClientMachine(DOCUMENT), Lister(count, one_by_one=True, names=["/a", "/b", "/c"])
    for _ in range(2):
        found = run(machine, agents.overview(machine), server.answers)
        assert [entry.name for entry in found] == [f"agent{i}" for i in range(count)]
    interface = run(machine, agents.agent_info(machine, 1), server.answers)
    assert [len(values) for values in (interface.inputs, interface.outputs, interface.infos)] == [4, 3, 2]
    values = run(machine, list_values(machine, ".*"), server.answers)
    assert [entry.name for entry in values] == ["/a", "/b", "/c"]
    assert len(server.asked) == 4, "each list was asked for once"
    assert machine.learned.lists_one_by_one
    assert machine.now < 1.0
    successor = ClientMachine(DOCUMENT, learned=machine.learned)
    run(successor, agents.overview(successor), Lister(count, one_by_one=True).answers)
    assert successor.now < 0.1


@pytest.mark.parametrize("count", [1, 40])
def test_pieces_may_count_from_1(count: int) -> None:
    machine, server = ClientMachine(DOCUMENT), Lister(count, first=1, names=["/a", "/b"])
    found = run(machine, agents.overview(machine), server.answers)
    assert [entry.name for entry in found] == [f"agent{i}" for i in range(count)]
    interface = run(machine, agents.agent_info(machine, 1), server.answers)
    assert [value.name for value in interface.infos] == ["/value7", "/value8"]
    assert len(run(machine, list_values(machine, ".*"), server.answers)) == 2
    assert len(server.asked) == 3
    assert machine.now < 0.1


@pytest.mark.parametrize("first", [0, 1])
def test_values_of_an_interface_may_count_anew_with_each_kind(first: int) -> None:
    machine, server = ClientMachine(DOCUMENT), Lister(2, by_kind=True, first=first)
    for _ in range(2):
        interface = run(machine, agents.agent_info(machine, 1), server.answers)
        assert [
            [v.name[-1] for v in of] for of in (interface.inputs, interface.outputs, interface.infos)
        ] == [
            ["0", "1", "2", "3"],
            ["4", "5", "6"],
            ["7", "8"],
        ]
    assert len(server.asked) == 2
    assert machine.now < SILENCE


@BOTH
@pytest.mark.parametrize("lost", [0, 1, 2, 3])
def test_a_list_of_which_a_datagram_is_lost_is_asked_for_again_and_merged(
    profile: Profile, lost: int
) -> None:
    machine, server = ClientMachine(profile), Lister(3)

    def answers(data: bytes) -> list[Message]:
        found = server.answers(data)
        return found[:lost] + found[lost + 1 :] if found and len(server.asked) == 1 else found

    found = run(machine, agents.overview(machine), answers)
    assert [entry.name for entry in found] == ["agent0", "agent1", "agent2"]
    assert len(server.asked) == 2
    assert machine.retries == 1
    assert not machine.learned.lists_one_by_one


def test_pieces_in_two_versions_and_heads_that_change_begin_the_list_anew() -> None:
    machine = ClientMachine(NERD, limits=SHORT)
    machine.begin(agents.overview(machine), 0.0)
    a, b, other = (
        AgentOverviewNext(0, 1, "Agent", 1, "a"),
        AgentOverviewNext(1, 2, "Agent", 1, "b"),
        AgentOverviewNext(0, 3, "Agent", 1, "c"),
    )
    give(machine, AgentOverview(2), a, other, b)
    assert not machine.finished
    give(machine, AgentOverview(1), other)
    assert [entry.name for entry in machine.result()] == ["c"]


def test_a_server_that_numbers_agents_anew_in_each_overview_is_refused() -> None:
    machine, overviews = ClientMachine(DOCUMENT), itertools.count()

    def answers(data: bytes) -> list[Message]:
        if data[0] != Code.GET_AGENT_OVERVIEW:
            return []
        first = 10 * next(overviews)
        return [
            AgentOverview(2),
            *(AgentOverviewNext(i, first + i, "Agent", 1, f"agent{i}") for i in range(2)),
        ]

    assert len(run(machine, agents.overview(machine), answers)) == 2
    with pytest.raises(RemoteProtocolError, match="'agent0' another id in each overview"):
        run(machine, agents.overview(machine), answers)


@pytest.mark.parametrize(
    "exchange, head, count",
    [
        *((agents.overview, AgentOverview(count), count) for count in (-1, 1_000_001, 2**31 - 1)),
        *(
            (lambda m: agents.agent_info(m, 1), AgentInfo(1, *counts, "agent"), -1)
            for counts in ((-1, 2, 1), (1, -2, 1), (1, 1, -1))
        ),
    ],
)
def test_a_count_that_no_list_can_have_is_an_error_of_the_server(
    exchange: Callable[[ClientMachine], Exchange[Any]], head: Message, count: int
) -> None:
    machine = ClientMachine(NERD, limits=SHORT)
    machine.begin(exchange(machine), 0.0)
    give(machine, head)
    with pytest.raises(RemoteProtocolError, match=f"a count of {count} pieces"):
        machine.result()


def test_the_info_of_an_unknown_agent_is_told_and_not_acknowledged() -> None:
    machine, _ = on_stage(NERD)
    machine.begin(agents.agent_info(machine, 9), 0.0)
    give(machine, AgentInfo(0, 0, 0, 0, ""))
    with pytest.raises(AgentNotFound, match="no agent with id 9"):
        machine.result()
    assert sent(machine) == [Code.GET_AGENT_INFO]


def test_lists_that_never_arrive_completely_say_how_much_did() -> None:
    machine, _ = on_stage(NERD)
    for exchange, replies, told in (
        (
            agents.overview(machine),
            (AgentOverview(3), AgentOverviewNext(0, 1, "Agent", 1, "a")),
            "only 1 agent of",
        ),
        (
            agents.agent_info(machine, 1),
            (AgentInfo(1, 2, 2, 1, "a"), AgentInfoNext(0, 0, 1, "/a")),
            "only 1 .* 5 were",
        ),
    ):
        machine.begin(exchange, machine.now)
        give(machine, *replies)
        assert SHORT.query <= silence(machine) < SHORT.query + 0.5
        with pytest.raises(IncompleteListing, match=told):
            machine.result()


def test_what_a_simulator_may_have_this_session_keep_is_limited_over_all_lists() -> None:
    """A datagram may be full of one name, and a million of them may be announced."""
    machine = ClientMachine(DOCUMENT, limits=Limits(memory=10_000))
    run(machine, list_values(machine, ".*"), Lister(names=[f"/{at:0128d}" for at in range(10)]).answers)
    machine.begin(agents.overview(machine), machine.now)
    give(machine, AgentOverview(1_000_000))
    count = 0
    while not machine.finished and count < 1000:
        give(machine, AgentOverviewNext(count, count + 1, "Agent", 1, "n" * 123))
        count += 1
    # Each has 256 bytes, and 10 variables of 263 are kept already.
    assert count == (10_000 - 10 * (128 + 129 + 6)) // 256 + 1
    with pytest.raises(
        RemoteProtocolError, match="names and types of more than 10,000 bytes, the latest of agent"
    ):
        machine.result()


# --- variables -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["-G", "-E", None], ids=["basic", "extended", "python"])
@pytest.mark.parametrize("name", ["/Base (1)/x+y", "/a.b|c?d*e", "/{2}[3]$^", "/back\\slash"])
def test_a_name_is_found_in_every_dialect_of_regular_expressions(name: str, dialect: str | None) -> None:
    for text, found in ((name, True), (name.replace("/", "/x"), False)):
        if dialect is None:
            assert bool(compile_expression(literal(name)).search(text)) is found
        else:
            grep = ["grep", dialect, "-q", "-e", literal(name)]
            assert (subprocess.run(grep, input=text, text=True, check=False).returncode == 0) is found


@BOTH
def test_a_server_that_numbers_each_list_anew_is_refused_before_one_value_is_taken_for_another(
    profile: Profile,
) -> None:
    pair = Pair(SyntheticWorld(1, 1), profile)
    client = pair.client(profile).connect()
    client.do(client.conversation.get(SIMULATION_TIME))
    (handler,) = pair.server._handlers.values()
    handler.values.clear()
    handler.value_ids.clear()
    with pytest.raises(
        RemoteProtocolError, match=f"the id of value '{SIMULATION_TIME}' to '/Simulation/TimeStepSize"
    ) as caught:
        client.do(client.conversation.get(TIME_STEP_SIZE))
    assert "throughout the session" in caught.value.hint


def test_a_variable_is_found_by_its_exact_name_once() -> None:
    machine, server = ClientMachine(NERD), Lister(names=["/Aa", "/aA", "/aa", "/x/aa"])
    for _ in range(2):
        assert run(machine, find_value(machine, "/aa"), server.answers).id == 2
    assert run(machine, find_value(machine, "/AA"), server.answers) is None
    assert len(server.asked) == 2


@BOTH
@given(
    names=st.sets(st.text("ab/.", min_size=1, max_size=4), min_size=1, max_size=60), holds=st.integers(19, 40)
)
def test_a_repository_that_does_not_fit_into_a_burst_is_listed_in_parts(
    profile: Profile, names: set[str], holds: int
) -> None:
    whole = profile.matches_whole_names
    machine, server = ClientMachine(profile), Lister(names=sorted(names), holds=holds, whole=whole)
    found = run(machine, list_values(machine, "a.*"), server.answers)
    wanted = {name for name in names if (name.startswith("a") if whole else "a" in name)}
    assert [entry.name for entry in found] == sorted(wanted)
    assert all(server.names[entry.id] == entry.name for entry in found)


NAMES: Final = sorted(
    {f"{'/a'[:at]}{number}" for at in range(3) for number in range(20)} | {"/", "/a", "/ab-^]"}
)


@BOTH
@pytest.mark.parametrize("lost, asked", [(0, 1), (6, 2), (17, None), (44, None)])
def test_a_few_lost_pieces_are_asked_for_again_and_more_mean_that_the_burst_is_too_large(
    profile: Profile, lost: int, asked: int | None
) -> None:
    machine = ClientMachine(profile)
    server = Lister(names=NAMES, holds=1 + len(NAMES) - lost, whole=profile.matches_whole_names)

    def answers(data: bytes) -> list[Message]:
        found = server.answers(data)
        if asked is not None and server.asked:
            server.holds = AT_MOST
        return found

    assert [entry.name for entry in run(machine, list_values(machine, ".*"), answers)] == NAMES
    assert len(server.asked) == asked or (asked is None and len(server.asked) > 3)


def test_an_expression_that_python_does_not_know_cannot_be_listed_in_parts() -> None:
    machine = ClientMachine(NERD, limits=SHORT)
    machine.begin(list_values(machine, "*["), 0.0)
    give(machine, ValueIds(400), ValueInfo(0, 1, "Double", "/a"))
    silence(machine)
    with pytest.raises(UsageError, match=r"cannot list '\*\[' in parts"):
        machine.result()


@pytest.mark.parametrize("pieces", [0, 2])
def test_a_listing_in_parts_ends_with_its_limit_where_the_numbers_never_agree(pieces: int) -> None:
    machine = ClientMachine(NERD, limits=SHORT)

    def answers(data: bytes) -> list[Message]:
        request = decode_request(data)
        if not isinstance(request, GetValueIds):
            return []
        machine.now += 0.01
        first = len(server) < 3
        server.append(request)
        infos = [ValueInfo(at, at + 1, "Double", name) for at, name in enumerate(("/a", "/b"))]
        return [ValueIds(400), *infos[: 2 if first else pieces]]

    server: list[Message] = []
    with pytest.raises((IncompleteListing, QueryTimeout)):
        run(machine, list_values(machine, "/.*"), answers)
    assert machine.now <= 2 * SHORT.listing + SHORT.query


# --- lists that are given up in the midst --------------------------------------------------------------------------

GIVEN: Final = np.array([0.25], np.float32)
LISTS: dict[str, Callable[[Any], Any]] = {
    "overview": lambda talk: talk.overview(),
    "interface": lambda talk: talk.describe("other"),
    "values": lambda talk: talk.values(),
}


@BOTH
@pytest.mark.parametrize("which", LISTS)
@pytest.mark.parametrize("datagrams", [1, 3])
def test_a_step_behind_an_interrupted_list_is_a_step_of_the_episode(
    profile: Profile, which: str, datagrams: int
) -> None:
    pair = Pair(SyntheticWorld(1, 2, names=["agent", "other", "third"]), profile)
    client = pair.client(profile).connect()
    talk: Any = client.conversation
    client.do(talk.register(["agent"]))
    client.do(talk.reset(7))
    until = len(pair.sent) + datagrams
    client.begin(LISTS[which](talk))
    while len(pair.sent) < until:
        pair.advance(until=pair.now + 1.0)
    assert not client.finished, "it was not over yet"
    talk.machine.interrupt(KeyboardInterrupt())
    began = pair.now
    for step in range(1, 4):
        outcome = client.do(talk.step({"agent": GIVEN}))["agent"]
        np.testing.assert_array_equal(outcome.outputs, expected(GIVEN, step, 2, 7))
    assert pair.now - began < FIRST_STEP + 3.0
    assert client.do(talk.audit()) == ""
    found = client.do(talk.values("/Simulation/.*"))
    assert found
    assert all(entry.name.startswith("/Simulation/") for entry in found)


def test_listing_again_goes_on_where_nothing_came() -> None:
    machine = ClientMachine(NERD, limits=SHORT)
    machine.begin(agents.overview(machine), 0.0)
    sent(machine)
    next_timer(machine)
    assert machine.now == 0.25
    assert sent(machine) == [Code.NEXT_SIMULATION_STEP_COMPLETED_ACK, Code.GET_AGENT_OVERVIEW]
    next_timer(machine)
    assert machine.now == 0.75
