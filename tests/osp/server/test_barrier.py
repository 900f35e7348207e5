"""The server machine's barrier: what counts as a request, when a step or reset runs, and what it runs with."""

from __future__ import annotations

import math
import struct

import pytest

from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from tests.osp.served import Completion, EchoWorld, Server
from tests.osp.stage import BOTH


def two_agents(profile: Profile) -> Server:
    return Server(profile, EchoWorld((1, 1, 0), (1, 1, 0)))


def steps_and_resets(server: Server) -> tuple[int, int]:
    return server.machine.steps, server.machine.resets


# --- the barrier ---------------------------------------------------------------------------------------------------


@BOTH
def test_a_step_waits_for_the_agents_of_all_clients(profile: Profile) -> None:
    server = two_agents(profile)
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
    server = two_agents(profile)
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
    server = two_agents(profile)
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
    assert observer.codes() == [71, 75]
    assert player.codes() == [75]


def test_document_answers_an_observer_s_reset_without_counting_it() -> None:
    server = Server(DOCUMENT)
    player, observer = server.player(1), server.join(2)
    observer.reset(99)
    assert observer.codes() == [71]
    assert player.codes() == []
    player.reset()
    assert server.world.seeds == [0], "nor does its seed count"


# --- leaving in the middle -----------------------------------------------------------------------------------------


@BOTH
def test_deregistering_the_missing_agent_completes_the_step_f17(profile: Profile) -> None:
    server = two_agents(profile)
    client = server.player(1, 2)
    client.step(1, 0.5)
    assert [data[0] for data in client.deregister(2)] == [81, 106, 85]


def test_document_drops_the_votes_of_a_client_that_ends() -> None:
    server = two_agents(DOCUMENT)
    first, second = server.player(1), server.player(2, port=2)
    first.step(1, 0.5)
    first.reset()
    first.send(b"\x07")
    assert second.codes() == []
    second.step(2, 0.5)
    assert second.codes() == [81, 85]
    assert steps_and_resets(server) == (1, 0)


# --- resets and steps ----------------------------------------------------------------------------------------------


def test_under_nerd_step_votes_survive_a_reset_d22() -> None:
    server = two_agents(NERD)
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


# --- seeds ---------------------------------------------------------------------------------------------------------


def test_nerd_ignores_the_seed_of_a_reset_and_takes_the_variable_d10() -> None:
    server = Server(NERD)
    client = server.player(1)
    (seed,) = client.find("/Simulation/Seed").values()
    client.reset(7)
    client.ack_reset()
    client.read_all()
    assert client.set(seed[0], "12345") == 1
    client.reset(7)
    assert server.world.seeds == [0, 12345]


def test_document_takes_the_last_seed_that_is_not_0() -> None:
    server = two_agents(DOCUMENT)
    client = server.player(1, 2)
    for seeds in ((7, 9), (5, 0), (0, 0)):
        for seed in seeds:
            client.reset(seed)
    assert server.world.seeds == [9, 5, 0]


# --- inputs --------------------------------------------------------------------------------------------------------


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
    data = HEAD.pack(80, 1, 3) + struct.pack("<3f", 1e30, -math.inf, math.nan)
    outputs = outputs_for(profile, data)
    assert outputs[:2] == [1.0, -1.0]
    assert math.isnan(outputs[2])


# --- the ledger ----------------------------------------------------------------------------------------------------


def test_the_ledger_tells_what_ran_with_which_inputs_and_who_asked() -> None:
    server = two_agents(DOCUMENT)
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
