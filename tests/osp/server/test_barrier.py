"""The server machine's barrier: what counts as a request, when a step or reset runs, and what it runs with."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import pytest

from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from tests.osp.served import Client, Completion, EchoWorld, Server, echoing
from tests.osp.stage import BOTH

# --- the barrier ------------------------------------------------------------------------------------------------------


@BOTH
def test_a_step_waits_for_the_agents_of_all_clients(profile: Profile) -> None:
    server = echoing(profile)
    first, second = server.player(1), server.player(2, port=2)
    first.step(1, 0.5)
    server.wait(10.0)
    assert first.codes() == [81]
    second.step(2, 0.25)
    assert second.codes() == [81, 85]
    assert first.codes() == [85]
    assert server.machine.steps == 1


@BOTH
def test_a_reset_waits_for_one_request_for_each_agent_and_is_told_to_observers_too_d9(
    profile: Profile,
) -> None:
    server = echoing(profile)
    player, observer = server.player(1, 2), server.join(2)
    told = int(profile.reset_completed)
    assert told == (75 if profile is NERD else 76), "D8"
    player.reset()
    assert player.codes() == [71]
    player.reset()
    assert player.codes() == [71, told]
    assert observer.codes() == [told]
    assert server.machine.resets == 1


@BOTH
def test_a_repeated_step_is_counted_again_and_fires_without_the_others_f8(profile: Profile) -> None:
    server = echoing(profile)
    first, second = server.player(1), server.player(2, port=2)
    first.step(1, 0.5)
    first.step(1, 0.5)
    assert first.codes() == [81, 81, 85]
    assert second.codes() == [85]
    assert server.ledger[-1]["clients"] == ["127.0.0.1:1", "127.0.0.1:1"]
    assert server.ledger[-1]["agents"]["A2"]["votes"] == []


def test_nerd_counts_an_observer_s_reset_d11() -> None:
    server = Server(NERD)
    player, observer = server.player(1), server.join(2)
    observer.reset()
    assert (observer.codes(), player.codes()) == ([71, 75], [75])


def test_document_answers_an_observer_s_reset_without_counting_it() -> None:
    server = Server(DOCUMENT)
    player, observer = server.player(1), server.join(2)
    observer.reset(99)
    assert (observer.codes(), player.codes()) == ([71], [])
    player.reset()
    assert server.world.seeds == [0], "nor does its seed count"


# --- leaving in the middle --------------------------------------------------------------------------------------------


@BOTH
def test_deregistering_the_missing_agent_completes_the_step_f17(profile: Profile) -> None:
    server = echoing(profile)
    client = server.player(1, 2)
    client.step(1, 0.5)
    answers = client.deregister(2)
    server.wait(profile.barrier_poll)
    assert [data[0] for data in answers + client.read_all()] == [81, 106, 85]


def test_document_drops_the_votes_of_a_client_that_ends() -> None:
    server = echoing(DOCUMENT)
    first, second = server.player(1), server.player(2, port=2)
    first.step(1, 0.5)
    first.reset()
    first.send(b"\x07")
    assert second.codes() == []
    second.step(2, 0.5)
    assert second.codes() == [81, 85]
    assert (server.machine.steps, server.machine.resets) == (1, 0)


# --- resets and steps -------------------------------------------------------------------------------------------------


def test_under_nerd_step_requests_survive_a_reset_d22() -> None:
    server = echoing(NERD)
    client = server.player(1, 2)
    client.step(1, 0.5)
    client.reset()
    client.reset()
    client.ack_reset()
    assert client.codes() == [81, 71, 71, 75]
    client.step(2, 0.5)
    assert client.codes() == [81, 85]


def test_nerd_s_first_step_without_a_reset_loses_its_inputs_and_zeroes_time_d21() -> None:
    server = Server(NERD)
    client = server.player(1)
    heard = client.listen("/Control/ResetSimulation")
    assert heard == 1
    client.step(1, 0.5, 0.25)
    assert client.read()[0] == 81
    first = Completion(client.read())
    assert first.outputs == [0.0, 0.0]
    assert first.events == [], "no reset event fires"
    assert server.world.seeds == [0], "the world reset itself"
    client.ack()
    assert client.value("/Simulation/SimulationTime") == "0.01"
    client.step(1, 0.5, 0.25)
    assert Completion(client.read_all()[1]).outputs == [0.5, 0.25]


# --- requests that outlive who sent them ------------------------------------------------------------------------------


def leave_by_end(client: Client) -> None:
    assert client.ask(b"\x07")[-1][0] == 8


def leave_agent_by_agent(client: Client) -> None:
    for agent in list(client.server.machine.controls):
        client.deregister(agent.id)
    assert client.ask(b"\x07")[-1][0] == 8


@pytest.mark.parametrize("leave", [leave_by_end, leave_agent_by_agent])
@pytest.mark.parametrize("asked", [(1,), (2,), (3,), (1, 2), (1, 3), (2, 3)])
def test_a_nerd_session_steps_early_by_the_requests_of_the_session_before(
    leave: Callable[[Client], None], asked: tuple[int, ...]
) -> None:
    server = echoing(NERD, 3)
    first = server.player(1, 2, 3)
    for agent in asked:
        first.step(agent, 0.5)
    leave(first)
    server.wait(1.0)
    assert server.machine.steps == 0
    second = server.player(1, 2, 3, port=2)
    server.wait(1.0)
    for _ in range(3):
        second.reset()
    second.ack_reset()
    assert second.codes() == [71, 71, 71, 75]
    missing = 3 - len(asked)
    for agent in range(1, missing + 1):
        second.step(agent, 0.25)
    assert second.codes() == [81] * missing + [85], "before all have asked"
    assert server.machine.steps == 1


def test_one_agent_of_the_next_nerd_session_steps_by_itself() -> None:
    server = echoing(NERD)
    first = server.player(1, 2)
    first.step(1, 0.5)
    leave_by_end(first)
    second = server.player(2, port=2)
    assert second.codes() == []
    server.wait(NERD.barrier_poll)
    assert second.codes() == [85]
    assert server.ledger[-1]["clients"] == ["127.0.0.1:1"]


def test_a_document_session_owes_nothing_to_the_one_before() -> None:
    server = echoing(DOCUMENT, 3)
    first = server.player(1, 2, 3)
    first.step(1, 0.5)
    first.reset()
    leave_by_end(first)
    second = server.player(1, 2, 3, port=2)
    for agent in (1, 2):
        second.step(agent, 0.25)
        second.reset()
    assert second.codes() == [81, 71, 81, 71]


def test_a_nerd_reset_that_nobody_s_agent_asked_for_runs_once_somebody_has_one() -> None:
    server = Server(NERD)
    client = server.join()
    client.overview()
    client.reset()
    assert client.codes() == [71]
    assert client.register(1) == 1
    server.wait(NERD.barrier_poll)
    assert client.codes() == [75]
    assert server.machine.resets == 1


def test_resets_without_an_agent_are_counted_in_bounded_memory() -> None:
    server = Server(NERD)
    client = server.join()
    for _ in range(1000):
        client.reset()
    assert len(server.machine.reset_requests) == 1


# --- the clock --------------------------------------------------------------------------------------------------------


def get_time(client: Client) -> bytes:
    value_id = client.find("/Simulation/SimulationTime")["/Simulation/SimulationTime"][0]
    client.inbox.clear()
    return struct.pack("<Bi", 50, value_id)


@BOTH
def test_a_question_that_waits_behind_a_request_is_answered_before_the_step_runs(profile: Profile) -> None:
    server = Server(profile)
    client = server.player(1)
    question = get_time(client)
    client.step(1, 0.5, 0.5, settle=False)
    client.send(question, settle=False)
    assert [data[5:].partition(b"\0")[0] for data in client.read_all()[1:]] == [b"0"]
    server.settle()
    assert client.codes() == [85]
    client.ack()
    assert client.ask(question)[0][5:].partition(b"\0")[0] == b"0.01"


def test_a_nerd_server_whose_barrier_is_late_tells_the_old_time_until_the_step_runs() -> None:
    server = Server(NERD, late=lambda: True)
    client = server.player(1)
    question = get_time(client)
    client.step(1, 0.5, 0.5)
    assert client.codes() == [81]
    assert client.ask(question)[0][5:].startswith(b"0\0")
    server.wait(NERD.barrier_poll)
    assert client.codes() == [85]


@BOTH
def test_time_that_was_set_goes_on_from_there_and_a_reset_zeroes_it(profile: Profile) -> None:
    server = Server(profile)
    client = server.player(1)
    time = client.find("/Simulation/SimulationTime")["/Simulation/SimulationTime"][0]
    assert client.set(time, "1") == 1
    assert client.get(time) == "1"
    client.begin()
    assert client.get(time) == "0"
    assert client.set(time, "1") == 1
    client.steps(1, 0.5, 0.5)
    assert client.get(time) == "1.01"


# --- resets that are lost ---------------------------------------------------------------------------------------------


def test_a_reset_behind_a_reset_may_be_lost_and_another_one_then_runs() -> None:
    fate = iter([True, False])
    server = Server(NERD, lose_reset=lambda: next(fate))
    client = server.player(1)
    for told in ([71, 75], [71], [71, 75]):
        client.reset()
        server.wait(1.0)
        assert client.codes() == told
        client.ack_reset()
    assert server.machine.resets == 2


def test_a_reset_behind_a_step_is_never_lost() -> None:
    server = Server(NERD, lose_reset=lambda: True)
    client = server.player(1)
    for _ in range(3):
        client.begin()
        client.steps(1, 0.5, 0.5)
    assert server.machine.resets == 3


# --- seeds ------------------------------------------------------------------------------------------------------------


def test_nerd_ignores_the_seed_of_a_reset_and_takes_the_variable_d10() -> None:
    server = Server(NERD)
    client = server.player(1)
    (seed,) = client.find("/Simulation/Seed").values()
    client.begin(7)
    assert client.set(seed[0], "12345") == 1
    client.reset(7)
    assert server.world.seeds == [0, 12345]


def test_document_takes_the_last_seed_that_is_not_0() -> None:
    server = echoing(DOCUMENT)
    client = server.player(1, 2)
    for seeds in ((7, 9), (5, 0), (0, 0)):
        for seed in seeds:
            client.reset(seed)
    assert server.world.seeds == [9, 5, 0]


# --- inputs -----------------------------------------------------------------------------------------------------------


def outputs_for(profile: Profile, data: bytes) -> list[float]:
    """What three inputs of 0.5 become by a further request."""
    server = Server(profile, EchoWorld((3, 3, 0)))
    client = server.player(1)
    client.reset()
    client.ack_reset()
    client.step(1, 0.5, 0.5, 0.5)
    client.ack()
    client.read_all()
    client.send(data)
    answers = client.read_all()
    assert [answer[0] for answer in answers] == [81, 85]
    return Completion(answers[1]).outputs


HEAD = struct.Struct("<Bii")


@BOTH
@pytest.mark.parametrize(
    "data, expected",
    [
        (HEAD.pack(80, 1, 1) + struct.pack("<f", 0.25), [0.25, 0.5, 0.5]),
        (HEAD.pack(80, 1, 0), [0.5, 0.5, 0.5]),
        (HEAD.pack(80, 1, -1), [0.5, 0.5, 0.5]),
        (struct.pack("<Bi", 80, 1), [0.5, 0.5, 0.5]),
        (HEAD.pack(80, 1, 5) + struct.pack("<5f", 0.1, 0.2, 0.3, 0.4, 0.5), [0.1, 0.2, 0.3]),
        (HEAD.pack(80, 1, 3) + struct.pack("<f", 0.25) + b"x", [0.25, 0.0, 0.0]),
        (HEAD.pack(80, 1, 2**31 - 1) + struct.pack("<f", 0.25), [0.25, 0.0, 0.0]),
        (HEAD.pack(80, 1, 3) + struct.pack("<f", 0.25) + b"\0\0\0", [0.25, 0.0, 0.0]),
    ],
    ids=["fewer", "none", "negative", "no count", "more", "missing floats", "huge count", "half a float"],
)
def test_a_wrong_number_of_inputs_is_accepted_f11(
    profile: Profile, data: bytes, expected: list[float]
) -> None:
    assert outputs_for(profile, data) == pytest.approx(expected)


@BOTH
def test_inputs_are_clamped_and_nan_passes_f13(profile: Profile) -> None:
    outputs = outputs_for(profile, HEAD.pack(80, 1, 3) + struct.pack("<3f", 1e30, -math.inf, math.nan))
    assert outputs[:2] == [1.0, -1.0]
    assert math.isnan(outputs[2])


# --- the ledger -------------------------------------------------------------------------------------------------------


def test_the_ledger_tells_what_ran_with_which_inputs_and_who_asked() -> None:
    server = echoing(DOCUMENT)
    first, second = server.player(1), server.player(2, port=2)
    first.reset(3)
    second.reset(0)
    first.step(1, 0.5)
    second.step(2, 2.0)
    reset, step = server.ledger
    assert (reset["kind"], reset["n"], reset["time"], reset["seed"]) == ("reset", 1, 0.0, 3)
    assert step == {
        "kind": "step",
        "n": 1,
        "time": 0.01,
        "agents": {
            "A1": {"inputs": [0.5], "client": "127.0.0.1:1", "votes": ["127.0.0.1:1"]},
            "A2": {"inputs": [1.0], "client": "127.0.0.1:2", "votes": ["127.0.0.1:2"]},
        },
        "clients": ["127.0.0.1:1", "127.0.0.1:2"],
    }
