"""Probing a simulator: what each profile shows, that nobody is disturbed, and that it always ends."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import random
from typing import NoReturn

import pytest

from ospbridge.diagnosis import line
from ospbridge.diagnosis.conformance import Conformance, Report
from ospbridge.diagnosis.deviations import DEVIATIONS, ORDER
from ospbridge.diagnosis.findings import Deviation, Finding, Verdict
from ospbridge.diagnosis.greeting import Server, join
from ospbridge.diagnosis.line import Line
from ospbridge.diagnosis.stage import Stage
from ospbridge.errors import (
    OspBridgeError,
    QueryTimeout,
    RemoteProtocolError,
    SessionLost,
    SimulatorSilent,
    VersionRefused,
)
from ospbridge.interface import Endpoint
from ospbridge.osp.codes import Code
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.repository import double_variable
from ospbridge.osp.server import Handler
from ospbridge.osp.world import World
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.lease import stale_leases
from ospbridge.simulator.arena import ArenaWorld
from ospbridge.simulator.faults import FaultPlan
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.raw_world import RawWorld

pytestmark = pytest.mark.loopback

GREETING = b"\x06\x01\x01\x78"
"""What a NERD server answers to an INIT."""
ALL = [f"D{number}" for number in range(1, 26)]

NOT_IMITATED = {"D18"}
"""Outputs of the worlds that the built-in simulator hosts stay in their announced range, in either profile."""
TOO_DANGEROUS = {"D24"}
"""Registering for an event, where a client that did so may kill the server."""
UNSAID = {"D2", "D5", "D19", "D20", "D25"}
"""The document says nothing about it, and the simulator does in either profile what a NERD server does."""

EXPECTED: dict[str, dict[str, set[str]]] = {
    "nerd": {
        "seen": set(ALL) - NOT_IMITATED - TOO_DANGEROUS,
        "not seen": NOT_IMITATED,
        "not tried": TOO_DANGEROUS,
    },
    "document": {
        "seen": UNSAID,
        "not seen": set(ALL) - UNSAID - {"D21"},
        "not tried": {"D21"},  # it keeps the inputs of its first step, as one that was reset before does
    },
}


def roomy_world() -> ArenaWorld:
    """Two robots, and more variables than the answer of a NERD server holds ids."""
    world = ArenaWorld(2)
    world.variables = [
        *world.variables,
        *(double_variable(f"/Sim/Spare/{number:03d}", lambda: 0.0) for number in range(300)),
    ]
    return world


def serve(world: World, profile: Profile, faults: FaultPlan | None = None) -> UdpSimulator:
    return UdpSimulator(world, port=0, profile=profile, faults=faults)


def probed(simulator: UdpSimulator, *, invasive: bool = False) -> Report:
    with Conformance(simulator.address, invasive=invasive) as conformance:
        return conformance.run()


def tried(simulator: UdpSimulator, *ids: str) -> list[Finding]:
    """These deviations alone: some of the others take a second each."""
    table = {deviation.id: deviation for deviation in DEVIATIONS}
    with Conformance(simulator.address) as conformance:
        return [conformance._finding(table[deviation_id]) for deviation_id in ids]


def found_in(world: World, deviation_id: str) -> Finding:
    with serve(world, NERD) as simulator:
        (found,) = tried(simulator, deviation_id)
    return found


@contextmanager
def foreign_server(manners: Callable[[bytes], Iterable[bytes]]) -> Iterator[Endpoint]:
    """A server on a socket of its own, which answers each datagram with what ``manners`` makes of it."""
    over = threading.Event()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(0.05)

        def run() -> None:
            while not over.is_set():
                with suppress(TimeoutError, ConnectionError):
                    data, peer = sock.recvfrom(65536)
                    for answer in manners(data):
                        if not over.is_set():
                            sock.sendto(answer, peer)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield Endpoint(*sock.getsockname())
        finally:
            over.set()
            thread.join()


def verdicts(report: Report) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {verdict.value: set() for verdict in Verdict}
    for deviation, finding in report.findings:
        found[finding.verdict.value].add(deviation.id)
    return found


def detail(report: Report, deviation_id: str) -> str:
    return next(finding.detail for deviation, finding in report.findings if deviation.id == deviation_id)


def test_each_profile_shows_exactly_its_deviations_and_nothing_stays_behind(
    profile: Profile, runtime_directory: Path
) -> None:
    with serve(roomy_world(), profile) as simulator:
        report = probed(simulator, invasive=True)
        assert verdicts(report) == EXPECTED[profile.name]
        assert report.profile is profile
        assert report.agents == ("robot1", "robot2")
        assert simulator.machine.handlers == 0
        assert simulator.machine.controlled == 0
        assert simulator.machine.clock.seed == 0
        assert not simulator.machine.step_requests
        assert not simulator.machine.reset_requests
    assert not list(runtime_directory.rglob("*.lease"))


def test_lost_doubled_and_late_datagrams_are_not_taken_for_deviations(
    sample: Callable[[Iterable[str], int], list[str]],
) -> None:
    faults = FaultPlan(drop=0.02, duplicate=0.01, delay=0.01, delay_max=0.05, seed=4)
    invasive = {deviation.id for deviation in DEVIATIONS if deviation.invasive}
    ids = sample([one for one in ALL if one not in invasive | TOO_DANGEROUS], 6)
    with serve(ArenaWorld(2), NERD, faults) as simulator:
        findings = dict(zip(ids, tried(simulator, *ids), strict=True))
    # A probe that is hit thrice is said to be so.
    wrong = [
        one
        for one, found in findings.items()
        if found.verdict is not Verdict.NOT_TRIED and one not in EXPECTED["nerd"][found.verdict.value]
    ]
    assert wrong == []
    assert sum(found.verdict is Verdict.NOT_TRIED for found in findings.values()) <= 3


def test_without_the_word_invasive_no_second_client_comes_and_nobody_is_evicted() -> None:
    with (
        serve(ArenaWorld(2), DOCUMENT) as simulator,
        BlockingSession.connect(str(simulator.address)) as other,
    ):
        report = probed(simulator)
        assert {"D7", "D9", "D11", "D20"} <= verdicts(report)["not tried"]
        assert "--invasive" in detail(report, "D7")
        assert [agent.name for agent in other.agents()] == ["robot1", "robot2"]
        assert simulator.machine.handlers == 1


def test_while_another_client_controls_an_agent_nothing_moves(profile: Profile) -> None:
    with serve(ArenaWorld(2), profile) as simulator, BlockingSession.connect(str(simulator.address)) as other:
        other.register("robot2")
        other.reset(1)
        steps, resets = simulator.machine.steps, simulator.machine.resets
        report = probed(simulator, invasive=True)
        assert (simulator.machine.steps, simulator.machine.resets) == (steps, resets)
        assert simulator.machine.controlled == 1
        alone = {deviation.id for deviation in DEVIATIONS if deviation.alone}
        assert alone <= verdicts(report)["not tried"]
        assert "robot2" in detail(report, "D8")
        other.step({"robot2": [0.0, 0.0]})


def test_a_server_that_steps_only_after_a_reset_is_seen_to(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Handler.COMMANDS[Code.NEXT_SIMULATION_STEP]

    def refused(handler: Handler, data: bytes) -> None:
        if handler.machine.resets:
            step(handler, data)

    monkeypatch.setitem(Handler.COMMANDS, Code.NEXT_SIMULATION_STEP, refused)
    assert found_in(ArenaWorld(1), "D21").verdict is Verdict.NOT_SEEN


def test_outputs_that_leave_their_range_are_named() -> None:
    found = found_in(RawWorld(1, 2, 1), "D18")
    assert found.verdict is Verdict.SEEN
    assert found.detail.startswith("2 of 3 left their range in step 1: /sensor/1 1.2207 of [-1, 1]")
    assert found_in(SyntheticWorld(1, 2, 1), "D18").verdict is Verdict.NOT_SEEN


@pytest.mark.parametrize(
    "begins, told",
    [
        (lambda _: 0.5, "nothing here depends on a seed: every episode begins alike"),
        (lambda _: random(), "this world begins as it likes"),
    ],
    ids=["alike", "by_chance"],
)
def test_a_world_that_takes_no_seed_is_not_blamed_on_the_server(
    begins: Callable[[int], float], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reset(world: SyntheticWorld, seed: int) -> None:
        world.began = begins(seed)  # type: ignore[attr-defined]  # of this test

    def step(world: SyntheticWorld) -> None:
        world.agents[0].outputs[:] = world.began  # type: ignore[attr-defined]  # of this test

    monkeypatch.setattr(SyntheticWorld, "reset", reset)
    monkeypatch.setattr(SyntheticWorld, "step", step)
    found = found_in(SyntheticWorld(1, 2), "D10")
    assert found.verdict is Verdict.NOT_TRIED
    assert found.detail.startswith(told)


def test_an_interruption_while_agents_are_ours_leaves_nothing_behind(
    profile: Profile, runtime_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: Stage, *args: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(Stage, "step", interrupted)
    with serve(ArenaWorld(1), profile) as simulator:
        with pytest.raises(KeyboardInterrupt):
            tried(simulator, "D18")
        assert simulator.machine.handlers == 0
        assert simulator.machine.controlled == 0
    assert not list(runtime_directory.rglob("*.lease"))


def test_whoever_is_killed_before_it_has_an_agent_leaves_a_lease_of_its_place() -> None:
    with serve(ArenaWorld(1), DOCUMENT) as simulator:
        line = join(Server(simulator.address), None, timeout=5.0)
        # What the kernel does for a process that is killed.
        line.close()
        (file,) = stale_leases(simulator.address)
        assert file.lease.agents == {}
        file.abandon()
        BlockingSession.connect(simulator.address).close()
        assert simulator.machine.handlers == 0
        assert not list(stale_leases(simulator.address))


def test_a_simulator_that_ends_meanwhile_is_said_to_be_gone_with_what_was_probed() -> None:
    simulator = serve(ArenaWorld(1), DOCUMENT).start()

    def end(deviation: Deviation) -> None:
        if deviation.id == "D12":
            simulator.stop()

    try:
        with Conformance(simulator.address, timeout=0.5) as conformance, pytest.raises(SessionLost) as lost:
            conformance.run(end)
    finally:
        simulator.stop()
    assert "D12" in lost.value.message
    assert lost.value.exit_code == 75


@pytest.mark.parametrize(
    "answers, error",
    [((), SimulatorSilent), ((b"\x06\x02\x00\x78",), VersionRefused)],
    ids=["silent", "version 2"],
)
def test_a_silent_port_and_another_version_are_refused(
    answers: tuple[bytes, ...], error: type[OspBridgeError]
) -> None:
    with foreign_server(lambda _: answers) as address, pytest.raises(error):
        Conformance(address, timeout=0.5)


@pytest.fixture
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence is silence soon: these servers never answer late."""
    for method in (Line.ask, Line.give_back):
        monkeypatch.setitem(method.__kwdefaults__ or {}, "waits", (0.05, 0.05))
    monkeypatch.setattr(line, "WAITS", (0.05, 0.05))
    monkeypatch.setattr(line, "LEAVING", (0.05,))


HOSTILE: dict[str, tuple[Iterable[bytes], type[OspBridgeError]]] = {
    "silence": ((), QueryTimeout),
    "garbage": ((b"\xff\xff\xff", b""), QueryTimeout),
    "a negative count": ((b"\x5b\xff\xff\xff\xff",), RemoteProtocolError),
    "pieces of another list": ((b"\x5b\x02\x00\x00\x00", b"\x62" + bytes(13)), QueryTimeout),
    "a flood": ([b"\x33\xff\xff\xff\xff\x00"] * 20_000, QueryTimeout),
}


@pytest.mark.usefixtures("brisk")
@pytest.mark.parametrize("answers, error", HOSTILE.values(), ids=HOSTILE)
def test_a_server_that_answers_an_init_and_then_nonsense_is_given_up(
    answers: Iterable[bytes], error: type[OspBridgeError]
) -> None:
    def manners(data: bytes) -> Iterable[bytes]:
        # The throw-away datagram that finds closed ports comes first: a flood would hold up the greeting.
        return [GREETING] if data[:1] == b"\x05" else () if data == b"x" else answers

    with (
        foreign_server(manners) as address,
        Conformance(address, timeout=5.0) as conformance,
        pytest.raises(error),
    ):
        conformance.run()


@pytest.mark.usefixtures("brisk")
def test_a_server_without_a_value_repository_is_probed_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(Handler.COMMANDS, Code.GET_VALUE_IDS)
    monkeypatch.setattr("ospbridge.diagnosis.conformance.TRIES", 1)
    with serve(ArenaWorld(1), DOCUMENT) as simulator:
        missing, *rest = tried(simulator, "D16", "D1", "D8")
    assert missing.verdict is Verdict.NOT_TRIED
    assert "GET_VALUE_IDS" in missing.detail
    assert {found.verdict for found in rest} == {Verdict.NOT_SEEN}


@pytest.mark.usefixtures("brisk")
def test_a_server_that_falls_silent_is_given_up() -> None:
    simulator = serve(ArenaWorld(1), DOCUMENT)

    def fall_silent(deviation: Deviation) -> None:
        if deviation.id == ORDER[1].id:
            patch.setattr(simulator.machine, "receive", lambda *_: None)

    with (
        pytest.MonkeyPatch.context() as patch,
        simulator,
        Conformance(simulator.address) as conformance,
        pytest.raises(QueryTimeout),
    ):
        conformance.run(fall_silent)
