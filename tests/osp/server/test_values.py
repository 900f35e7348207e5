"""The server machine's variable repository: listing, reading, setting, observing."""

from __future__ import annotations

import struct

import pytest

from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.repository import LONGEST_EXPRESSION, parse_double
from tests.osp.served import Client, Completion, EchoWorld, Server, echoing
from tests.osp.stage import BOTH


def idents(data: bytes, offset: int) -> list[int]:
    return list(struct.unpack_from(f"<{(len(data) - offset) // 4}i", data, offset))


@BOTH
def test_the_repository_has_time_seed_step_size_and_every_interface_value(profile: Profile) -> None:
    found = Server(profile, EchoWorld((1, 2, 1), names=["cart"])).join().find(".*")
    settings = [
        "SimulationTime",
        "RealTime",
        "TimeStepSize",
        "IterationsPerStep",
        "Seed",
        "RandomizeSeedAtReset",
    ]
    values = ["cart/in/0", "cart/out/0", "cart/out/1", "cart/info/0", "Gravity"]
    own = [*(f"/Simulation/{name}" for name in settings), *(f"/Sim/{name}" for name in values)]
    assert found.keys() == {*own, "/CommandLineArguments/help"}


def test_types_are_named_as_each_kind_of_server_names_them_d16() -> None:
    nerd, document = Server(NERD).join().find(".*"), Server(DOCUMENT).join().find(".*")
    assert nerd["/Sim/A1/out/0"][1] == "/out/0"
    assert document["/Sim/A1/out/0"][1] == "NormalizedDouble"
    assert (nerd["/Simulation/Seed"][1], document["/Simulation/Seed"][1]) == ("Int", "Integer")
    assert (nerd["/Simulation/TimeStepSize"][1], document["/Simulation/TimeStepSize"][1]) == (
        "Double",
        "Double",
    )
    assert nerd["/Simulation/RandomizeSeedAtReset"][1] == "Bool"


def test_nerd_matches_whole_names_d17() -> None:
    client = Server(NERD).join()
    assert not client.find("StepSize")
    assert list(client.find(".*StepSize.*")) == ["/Simulation/TimeStepSize"]
    assert not client.find("")


@BOTH
@pytest.mark.parametrize(
    "expression", ["[", "(", "*", "a{9999999999}", "(" * 1000, "." * (LONGEST_EXPRESSION + 1)]
)
def test_a_bad_or_overlong_expression_finds_nothing(profile: Profile, expression: str) -> None:
    assert Server(profile).join().find(expression) == {}


@pytest.mark.parametrize("profile, read", [(DOCUMENT, b"a\xc3\xa9b\0"), (NERD, b"a\0\0b\0x")])
def test_a_text_reads_as_it_was_set_on_nerd_with_a_zero_for_each_byte_that_is_not_ascii_d23(
    profile: Profile, read: bytes
) -> None:
    client = Server(profile).join()
    ident, kind = client.find(".*")["/CommandLineArguments/help"]
    assert (kind, client.get(ident)) == ("String", "")
    assert client.ask(struct.pack("<Bi", 52, ident) + b"a\xc3\xa9b\0")[0][5] == 1
    assert client.ask(struct.pack("<Bi", 50, ident))[0][5:] == read


@BOTH
def test_an_unknown_value_reads_as_id_minus_1_and_sets_with_status_2(profile: Profile) -> None:
    client = Server(profile).join()
    end = b"x" if profile.end_marker else b""
    for ident in (0, -1, 9999):
        assert client.ask(struct.pack("<Bi", 50, ident)) == [struct.pack("<Bi", 51, -1) + b"\0" + end]
    assert client.ask(struct.pack("<Bi", 52, 9999) + b"1\0") == [struct.pack("<BiB", 53, 9999, 2) + end]
    assert client.ask(b"\x32")[0][1:5] == b"\xff\xff\xff\xff"


@BOTH
@pytest.mark.parametrize(
    "name, good, bad",
    [
        ("/Simulation/TimeStepSize", ["0.02", "1e-3"], ["abc", "", "0", "-1", "nan", "inf", "1_0", " 1"]),
        ("/Simulation/IterationsPerStep", ["2", "10"], ["0", "-1", "1.5", "x", "99999999999"]),
        ("/Simulation/Seed", ["7", "-7", "2147483647"], ["2147483648", "1.0", ""]),
        ("/Simulation/RandomizeSeedAtReset", ["T", "F"], ["true", "1", ""]),
        ("/Sim/Gravity", ["9.5", "inf", "nan", "-1E5"], ["x", "1,5", "\u0661"]),
        ("/Sim/A1/in/0", ["0.5", "-1"], ["x", ""]),
        ("/Simulation/SimulationTime", ["1", "0.25"], ["x", "", "nan", "inf"]),
        ("/Simulation/RealTime", [], ["0"]),
        ("/Sim/A1/out/0", [], ["0.5"]),
        ("/Sim/A1/info/0", [], ["0.5"]),
    ],
)
def test_set_takes_what_parses_and_refuses_the_rest_with_status_0(
    profile: Profile, name: str, good: list[str], bad: list[str]
) -> None:
    client = Server(profile).join()
    ident = client.find(".*")[name][0]
    for text in good:
        assert client.set(ident, text) == 1, text
        assert (
            parse_double(client.get(ident)) == pytest.approx(parse_double(text), nan_ok=True) or text in "TF"
        )
    kept = client.get(ident)
    for text in bad:
        assert client.set(ident, text) == 0, text
        assert client.get(ident) == kept


# --- simulated time ------------------------------------------------------------------------------------------------


@BOTH
def test_time_advances_by_step_size_without_drift_and_is_zeroed_by_a_reset(profile: Profile) -> None:
    server = Server(profile)
    client = server.player(1)
    client.begin()
    assert client.value("/Simulation/SimulationTime") == "0"
    client.steps(1001, 0.0, 0.0)
    assert client.value("/Simulation/SimulationTime") == "10.01"
    client.begin()
    assert client.value("/Simulation/SimulationTime") == "0"


@BOTH
def test_time_goes_on_from_where_it_is_when_the_step_size_changes(profile: Profile) -> None:
    server = Server(profile)
    client = server.player(1)
    found = client.find(".*")
    client.steps(10, 0.0, 0.0)
    assert client.set(found["/Simulation/TimeStepSize"][0], "0.5") == 1
    assert client.get(found["/Simulation/SimulationTime"][0]) == "0.1"
    assert client.set(found["/Simulation/IterationsPerStep"][0], "4") == 1
    client.steps(1, 0.0, 0.0)
    assert client.get(found["/Simulation/SimulationTime"][0]) == "2.1"
    assert server.world.steps == 14
    assert server.machine.steps == 11


# --- observing -----------------------------------------------------------------------------------------------------


def observe(client: Client, code: int, count: int, *ids: int) -> bytes:
    (answer,) = client.ask(struct.pack(f"<Bi{len(ids)}i", code, count, *ids))
    return answer


def test_document_confirms_observed_values_without_a_count_and_pushes_them_d12_d13_d14() -> None:
    server = echoing(DOCUMENT)
    client = server.player(1, 2)
    found = client.find(".*")
    time, gravity = found["/Simulation/SimulationTime"][0], found["/Sim/Gravity"][0]
    assert idents(observe(client, 54, 3, time, 9999, gravity), 1) == [time, 0, gravity]
    client.step(1, 0.5)
    client.step(2, 0.5)
    answers = client.read_all()
    assert [data[0] for data in answers] == [81, 81, 85, 51, 51, 85]
    assert Completion(answers[2]).n_values == 2
    assert answers[3] == struct.pack("<Bi", 51, time) + b"0.01\0"
    assert answers[4] == struct.pack("<Bi", 51, gravity) + b"9.81\0"
    assert Completion(answers[5]).n_values == 0
    assert idents(observe(client, 56, 2, time, 9999), 1) == [2, time, 0], "with a count"
    client.step(1, 0.5)
    client.step(2, 0.5)
    assert client.codes() == [81, 81, 85, 51, 85]


def test_nerd_answers_with_the_count_confirms_by_position_and_pushes_nothing_d12_d13_d14() -> None:
    server = Server(NERD)
    client = server.player(1)
    count = len(client.find(".*"))
    confirmed = [
        ident for ident in range(1, count + 1) if idents(observe(client, 54, 1, ident)[:-1], 1) == [1, ident]
    ]
    assert len(confirmed) == 1, "one of all single registrations"
    client.step(1, 0.5, 0.5)
    answers = client.read_all()
    assert [data[0] for data in answers] == [81, 85]
    assert Completion(answers[1]).n_values == 0
