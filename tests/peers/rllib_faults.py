"""What goes wrong between a client and a real RLlib, and what ours makes of it.

Not collected with the other tests, since it needs Ray in interpreters of its own, named in RAY_PYTHONS with colons
between them: ``RAY_PYTHONS=/some/venv/bin/python pytest tests/peers/rllib_faults.py``. What takes a server of its own
is marked slow.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
import trio

from ospbridge.daemon.relay.link import Connection, Link
from ospbridge.errors import UpstreamLost
from ospbridge.rllink import exchanges
from ospbridge.rllink.batches import split
from ospbridge.rllink.client import ClientMachine, Event, Exchange, StateArrived
from ospbridge.rllink.connecting import Limits
from ospbridge.rllink.dialects import DIALECTS
from ospbridge.rllink.exchanges import deliver, get_config, get_state, learn, newer_state
from ospbridge.rllink.messages import EpisodeFragment, Episodes, Weights
from ospbridge.transport.tls import parse_stream
from tests.peers.processes import Place, Program, free_port, json_lines, running
from tests.rllink.episodes import episode

RAYS = [python for python in os.environ.get("RAY_PYTHONS", "").split(":") if python]
if not RAYS:
    pytest.fail("RAY_PYTHONS names no interpreter", pytrace=False)

pytestmark = [pytest.mark.peer, pytest.mark.timeout(400)]
BATCH = 200
ROUNDS = 20
ALIKE = 1e-4
WITHIN = 90.0
"""Seconds for what a busy machine may take long for."""


class Server:
    """An RLlib that learns from small batches in no time, and is used by one test after the other."""

    def __init__(self, place: Place, python: str) -> None:
        self.port = free_port()
        self._told = place.folder / f"told-{self.port}"
        # Its hesitation makes it certain that a batch that is sent at once is answered with old weights.
        self._program = place.server(
            python,
            self.port,
            *("--steps", BATCH, "--epochs", 1, "--minibatch", BATCH, "--told", self._told, "--hesitate", 0.1),
        )

    @property
    def dialect(self) -> str:
        return "json" if self._program.lines()[0]["ray"].startswith(("2.47.", "2.48.")) else "msgpack"

    def told(self, what: str) -> list[Any]:
        return [line[what] for line in json_lines(self._told) if what in line]


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Server]]:
    with running() as place:
        yield {python: Server(place, python) for python in RAYS}


@pytest.fixture(params=RAYS)
def server(request: pytest.FixtureRequest, servers: dict[str, Server]) -> Server:
    """One of them: while it waits for its next client, the tests are at the other one."""
    return servers[request.param]


@asynccontextmanager
async def linked(server: Server, **options: Any) -> AsyncIterator[Link]:
    """A client that knows address and dialect; nothing may take it very long."""
    known = {"limits": Limits(), "dialect": DIALECTS[server.dialect]}
    link = Link(parse_stream(f"127.0.0.1:{server.port}"), **{**known, **options})
    with trio.fail_after(3 * WITHIN):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.run)
            yield link
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def connected(server: Server, **options: Any) -> AsyncIterator[Connection]:
    async with linked(server, **options) as link:
        yield await link.connection()


def played(steps: int = BATCH, seed: int = 0) -> EpisodeFragment:
    rng = np.random.default_rng(seed)
    return episode(
        steps,
        seed=seed,
        actions=rng.integers(0, 2, steps),
        action_dist_inputs=rng.normal(size=(steps, 2)).astype(np.float32),
    )


def batch(connection: Connection, *fragments: EpisodeFragment, **options: Any) -> list[Episodes]:
    return split(
        fragments or [played()], connection.dialect, await_weights=True, least_steps=BATCH, **options
    )


async def learned(connection: Connection, messages: list[Episodes] | None = None) -> int:
    """The number of the weights that were learned from them, or from a batch."""
    weights = await connection.perform(lambda machine: learn(machine, messages or batch(connection)))
    return weights.seq_no


async def until(holds: Callable[[], object]) -> None:
    with trio.fail_after(WITHIN):
        while not holds():
            await trio.sleep(0.01)


async def number(connection: Connection) -> int:
    """Of the weights that the server has."""
    return (await connection.perform(get_state)).seq_no


# --- one client ------------------------------------------------------------------------------------------------------


@pytest.mark.trio
async def test_the_dialect_is_found_out_also_before_the_servers_pause_is_over(server: Server) -> None:
    async with connected(server, dialect=None) as connection:
        assert connection.dialect.name == server.dialect
    # The server listens again in five seconds; until then connections are refused, or come about and are reset.
    async with connected(server, dialect=None) as connection:
        assert connection.dialect.name == server.dialect
        before = await number(connection)
        assert await learned(connection) == before + 1


@pytest.mark.trio
@pytest.mark.parametrize("sent", [b"", b"00001000half"], ids=["idle", "in mid-message"])
async def test_a_lost_connection_is_followed_by_another_on_which_learning_goes_on(
    server: Server, sent: bytes
) -> None:
    async with linked(server) as link:
        first = await link.connection()
        before = await learned(first)
        if sent:
            await first._stream.send_all(sent)
        link.drop(first, UpstreamLost("the test left"))
        second = await link.connection()
        assert second is not first
        assert link.connections == 2
        assert await learned(second) == before + 1


@pytest.mark.trio
async def test_weights_are_new_after_each_batch_although_the_server_sends_old_ones_first(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = 0

    def counted(machine: ClientMachine, than: int | None, *, until: float | None = None) -> Exchange[Weights]:
        nonlocal stale
        stale += 1
        return newer_state(machine, than, until=until)

    monkeypatch.setattr(exchanges, "newer_state", counted)
    async with connected(server) as connection:
        before = await number(connection)
        came, sampled = len(server.told("came")), len(server.told("sampled"))
        batches = [batch(connection, played(BATCH + at, seed=at)) for at in range(ROUNDS)]
        found = [await learned(connection, messages) for messages in batches]
    assert found == list(range(before + 1, before + 1 + ROUNDS))
    assert stale > 0
    # Each batch was learned from, and by itself.
    assert (
        server.told("came")[came:] == server.told("sampled")[sampled:] == [BATCH + at for at in range(ROUNDS)]
    )


@pytest.mark.trio
async def test_a_batch_in_several_messages_is_learned_from_once(server: Server) -> None:
    async with connected(server) as connection:
        before, sampled = await number(connection), len(server.told("sampled"))
        most = BATCH - 20
        pieces = [played(most, seed=1), played(100, seed=2)]
        messages = batch(connection, *pieces, largest=connection.dialect.size(pieces[0]) + 1000)
        assert len(messages) == 2
        assert await learned(connection, messages) == before + 1
    assert sum(server.told("sampled")[sampled:]) == most + 100


@pytest.mark.trio
async def test_what_is_delivered_without_waiting_is_proven_to_be_read_and_learned_from(
    server: Server,
) -> None:
    async with connected(server) as connection:
        before, came = await number(connection), len(server.told("came"))
        messages = [Episodes((played(seed=at),)) for at in range(3)]
        await connection.perform(lambda machine: deliver(machine, messages))
        assert server.told("came")[came:] == [BATCH] * 3
        weights = await connection.perform(lambda machine: newer_state(machine, before))
    assert weights.seq_no > before


@pytest.mark.trio
async def test_who_asks_while_weights_are_learned_for_somebody_who_left_is_answered_behind_them(
    server: Server,
) -> None:
    events: list[Event] = []
    async with connected(server, on_event=events.append) as connection:
        before, came = await number(connection), len(server.told("came"))
        messages = batch(connection, *(played(1000, seed=at) for at in range(20)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.perform, lambda machine: learn(machine, messages))
            await until(lambda: len(server.told("came")) > came)
            nursery.cancel_scope.cancel()
        assert not connection.machine.may_close
        await connection.perform(get_config)
        assert connection.machine.may_close
        (arrived,) = events
        assert isinstance(arrived, StateArrived)
        assert await number(connection) >= before + 1


# --- two clients -----------------------------------------------------------------------------------------------------


@pytest.mark.trio
async def test_a_second_client_waits_for_its_turn_disturbs_nobody_and_gets_it(server: Server) -> None:
    one, other = (Link(parse_stream(f"127.0.0.1:{server.port}"), limits=Limits(pong=1.0)) for _ in range(2))
    first = trio.CancelScope()

    async def run_first() -> None:
        with first:
            await one.run()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_first)
        connection = await one.connection()
        nursery.start_soon(other.run)
        await until(lambda: "did not send PONG" in other.trouble)
        before = await number(connection)
        assert await learned(connection) == before + 1
        assert (one.connections, other.connections) == (1, 0)
        first.cancel()
        connection = await other.connection()
        assert connection.dialect.name == server.dialect
        assert await learned(connection) == before + 2
        nursery.cancel_scope.cancel()


# --- a daemon that drives --------------------------------------------------------------------------------------------

STEPS = 1000
SLOW = ("--epochs", 60, "--minibatch", 50)
"""So many epochs take some seconds, in which a test can do its mischief."""


def serve(place: Place, python: str, port: int, *options: object) -> Program:
    return place.server(python, port, "--steps", STEPS, "--told", place.folder / "told", *options)


def drive(place: Place, simulator: str, port: int) -> Program:
    return place.driver(simulator, port, "--no-spin", "--rllink-env-steps", STEPS, "--rllink-seed", 1)


def batches(place: Place) -> list[dict[str, Any]]:
    """What has come to the servers."""
    return [line for line in json_lines(place.folder / "told") if "came" in line]


@pytest.mark.slow
@pytest.mark.parametrize("python", RAYS)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "ended"])
@pytest.mark.parametrize("seed", [1, 2], ids=["with the same weights", "with other weights"])
def test_a_server_that_is_lost_while_it_learns_and_comes_back(python: str, number: int, seed: int) -> None:
    with running() as place:
        port = free_port()
        server = serve(place, python, port, *SLOW)
        daemon = drive(place, place.simulator(), port)
        place.until("a batch", lambda: batches(place), WITHIN, server, daemon)
        server.send(number)
        server.ended()
        # What is killed cannot end the processes of Ray.
        server.sweep()
        place.until("a word about it", lambda: daemon.log("upstream away"), WITHIN, daemon)
        again = serve(place, python, port, "--epochs", 2, "--seed", seed)
        place.until("three rounds", lambda: len(again.lines()) > 3, WITHIN, again, daemon)
        lost, *later = batches(place)
        # The very same weights: the batch is sent again. Others: nobody learns from it.
        assert len(daemon.log("a batch is discarded")) == (0 if seed == 1 else 1)
        if seed == 1:
            assert later[0]["came"] == lost["came"]
        assert [line["weights_seq_no"] for line in later[:3]] == [0, 1, 2]
        assert all(line["apart"] < ALIKE for line in [lost, *later]), [lost, *later]
        assert daemon.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize("python", RAYS)
@pytest.mark.parametrize("runners", [0, 1])
def test_a_daemon_that_is_ended_while_weights_are_learned_leaves_the_server_alive(
    python: str, runners: int
) -> None:
    with running() as place:
        port = free_port()
        server = serve(place, python, port, *SLOW, "--runners", runners)
        simulator = place.simulator()
        first = drive(place, simulator, port + runners)
        place.until("a batch", lambda: batches(place), WITHIN, server, first)
        assert len(server.lines()) == 1, "it has learned already"
        assert first.end() == 0
        assert first.log(
            "another process waits for the upstream's weights, since some servers end when they cannot deliver them"
        )
        second = drive(place, simulator, port + runners)
        place.until("two rounds", lambda: len(server.lines()) > 3, 3 * WITHIN, server, second)
        assert [line["weights_seq_no"] for line in batches(place)[:3]] == [0, 1, 2]
        assert all(line["apart"] < ALIKE for line in batches(place)), batches(place)
        second.send(signal.SIGTERM)
