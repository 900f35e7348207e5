"""What waits for an upstream, and what becomes of it: the spool, its disk, and what cannot be sent."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio

from ospbridge.daemon.relay import uploader
from ospbridge.daemon.relay.uploader import TRIES, Suspicion, Turn
from ospbridge.errors import ConfigurationError
from ospbridge.hub.requests import Note
from ospbridge.record.spool import Spool, WhenFull
from ospbridge.record.spool_file import SpoolFile
from ospbridge.transport.tls import parse_stream
from tests.daemon.relay.driving import until
from tests.daemon.relay.observing import (
    Feed,
    Server,
    all_alike,
    all_arrived,
    status,
)
from tests.daemon.stage import Logs, inputs

pytestmark = [pytest.mark.loopback, pytest.mark.trio]
WITHIN = 30.0


# --- what cannot be sent ---------------------------------------------------------------------------------------------


async def test_an_episode_with_a_number_that_is_none_stays_here(feed: Feed, logs: Logs) -> None:
    async with feed.feeding() as relay:
        player = feed.player()
        await player.reset()
        player.attachment.read_note(Note(np.zeros(2, "<f4").tobytes(), float("nan")))
        await feed.conductor.step([(player.attachment, inputs(0.5))])
        await player.play()
        await until(lambda: relay.status.discarded)
        assert relay.status.discarded == 1
        (warning,) = logs.of("an episode is not sent")
        assert "row 0 of action_logp" in warning["reason"]
        await all_arrived(relay)
    assert [fragment.steps for fragment in feed.server.arrived] == [5]


async def test_the_one_episode_that_an_upstream_does_not_survive_is_set_aside(feed: Feed, logs: Logs) -> None:
    server = feed.server = Server(lambda fragment: fragment.weights_seq_no == 3)
    async with feed.feeding() as relay:
        player = feed.player()
        for weights in range(6):
            await player.play(weights=weights)
        await all_arrived(relay)
        assert (relay.status.delivered, relay.status.discarded, relay.status.trouble) == (25, 5, "")
    assert {fragment.weights_seq_no for fragment in server.arrived} == {0, 1, 2, 4, 5}
    assert len(logs.of("an episode is given up")) == 1
    assert logs.of("the upstream does not take what it is sent")


@pytest.mark.parametrize("episodes", [1, 3])
async def test_an_upstream_that_takes_nothing_loses_nothing(feed: Feed, episodes: int) -> None:
    closed = [True]
    server = feed.server = Server(lambda _: bool(closed))
    async with feed.feeding() as relay:
        player = feed.player()
        await player.plays(episodes)
        await until(lambda: server.connections >= 25)
        assert "lost again and again" in relay.status.trouble
        assert status(relay).entries == episodes
        closed.clear()
        await all_arrived(relay)
        assert (relay.status.delivered, relay.status.discarded) == (5 * episodes, 0)
    assert len({fragment.id for fragment in server.arrived}) == episodes


@pytest.mark.parametrize(
    "change, reason",
    [
        ("body = x'00112233445566'", "a spooled episode is damaged: its checksum is wrong"),
        ("body = 'no bytes'", "entry 2 of the spool is damaged"),
    ],
)
async def test_a_damaged_entry_is_left_out(feed: Feed, change: str, reason: str, logs: Logs) -> None:
    async with feed.observed() as relay:
        player = feed.player()
        await player.plays(3)
        await until(lambda: status(relay).entries == 3)
    database = sqlite3.connect(feed.directory / "s")
    with database:
        database.execute(f"UPDATE entry SET {change} WHERE seq = 2")
    database.close()
    async with feed.feeding() as relay:
        await all_arrived(relay)
        assert (relay.status.delivered, relay.status.discarded) == (10, 5)
    all_alike([player.episodes[0], player.episodes[2]], feed.server.arrived)
    assert [entry["reason"] for entry in logs.of("an episode is given up")] == [reason]


async def test_an_episode_that_goes_on_is_sent_in_parts_while_it_does(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploader, "LARGEST", 2000)
    monkeypatch.setattr("ospbridge.record.collecting.TOGETHER", 8)
    async with feed.feeding() as relay:
        player = feed.player("b")
        await player.play(100)
        await until(lambda: feed.server.arrived)
        await all_arrived(relay)
        assert not any(fragment.done for fragment in feed.server.arrived)
        feed.conductor.leave([player.attachment])
        await until(lambda: feed.server.arrived[-1].done)
    assert len(feed.server.arrived) > 2
    assert len({fragment.id for fragment in feed.server.arrived}) == 1
    rewards = np.concatenate([fragment.rewards for fragment in feed.server.arrived])
    np.testing.assert_array_equal(rewards, np.array(player.episodes[0]["rewards"], np.float32))


# --- which of them is to blame --------------------------------------------------------------------------------------


def fail(suspicion: Suspicion, first: int, last: int, times: int = TRIES) -> list[Turn]:
    return [suspicion.failed(first, last) for _ in range(times)]


async def test_an_entry_is_to_blame_when_what_is_behind_it_gets_through_twice() -> None:
    suspicion = Suspicion()
    fail(suspicion, 1, 4)
    assert suspicion.arrived(1) == 0
    assert fail(suspicion, 2, 2)[-1] is Turn.LOOK_BEHIND
    assert (suspicion.after, suspicion.alone) == (2, True)
    assert suspicion.arrived(3) == 0
    assert (suspicion.after, suspicion.alone) == (0, True)
    assert fail(suspicion, 2, 2)[-1] is Turn.LOOK_BEHIND
    assert suspicion.arrived(4) == 2
    assert suspicion.after == 0
    suspicion.arrived(5)
    assert not suspicion.alone


async def test_an_upstream_that_comes_to_its_senses_while_one_is_suspected_loses_nothing() -> None:
    suspicion = Suspicion()
    fail(suspicion, 1, 2)
    fail(suspicion, 1, 1)
    assert suspicion.arrived(2) == 0
    assert suspicion.arrived(1) == 0
    suspicion.arrived(3)
    fail(suspicion, 4, 4)
    assert suspicion.arrived(5) == 0


# --- the spool -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", WhenFull)
async def test_a_full_spool_drops_as_it_was_told(feed: Feed, policy: WhenFull, logs: Logs) -> None:
    async with feed.observed(spool_limit=4000, spool_full=policy) as relay:
        player = feed.player()
        await player.plays(10)
        await until(lambda: not status(relay).unwritten)
        await until(lambda: logs.of("episodes are dropped"))
        (told,) = logs.of("episodes are dropped")
        assert told["reason"].endswith(f"is full ({policy})")
        kept, dropped = status(relay).entries, status(relay).dropped
        assert kept + dropped == 10
        assert 0 < status(relay).bytes <= 4000
    async with feed.feeding() as relay:
        await all_arrived(relay)
    expected = player.episodes[-kept:] if policy is WhenFull.DROP_OLDEST else player.episodes[:kept]
    all_alike(expected, feed.server.arrived)


@contextmanager
def failing_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def fail(*_: object) -> int:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(SpoolFile, "_insert_all", fail)
        patch.setattr("ospbridge.record.spool.RETRY_AFTER", 0.02)
        yield


async def test_a_spool_whose_file_is_removed_loses_nothing_and_is_told(
    feed: Feed, monkeypatch: pytest.MonkeyPatch, logs: Logs
) -> None:
    monkeypatch.setattr("ospbridge.record.spool.LOOK_AFTER", 0.02)
    monkeypatch.setattr("ospbridge.daemon.relay.uploader.LOOK_AGAIN", 0.02)
    async with feed.observed() as relay:
        player = feed.player()
        await player.play()
        await until(lambda: status(relay).entries == 1)
        (feed.directory / "s").unlink()
        await until(lambda: logs.of("the spool's file was gone"))
        await player.play()
        await until(lambda: status(relay).entries == 2)
    async with feed.feeding() as relay:
        await all_arrived(relay)
    all_alike(player.episodes, feed.server.arrived)


async def test_a_disk_that_is_full_holds_up_no_step_and_is_told(
    feed: Feed, monkeypatch: pytest.MonkeyPatch, logs: Logs
) -> None:
    async with feed.feeding() as relay:
        player = feed.player()
        with failing_disk(monkeypatch):
            await player.plays(5)
            await until(lambda: status(relay).trouble)
            assert status(relay).unwritten == 5
            await until(lambda: logs.of("episodes cannot be spooled"))
        await until(lambda: len(feed.server.arrived) == 5)
        await until(lambda: logs.of("episodes are spooled again"))
        await all_arrived(relay)
    all_alike(player.episodes, feed.server.arrived)


async def test_a_disk_that_hangs_keeps_nobody_from_leaving_and_from_giving_agents_back(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, hangs, go_on = SpoolFile.write, threading.Event(), threading.Event()

    def hanging(file: SpoolFile, entries: Any, gone: Any) -> Any:
        if entries and file.entries:
            hangs.set()
            assert go_on.wait(WITHIN)
        return write(file, entries, gone)

    monkeypatch.setattr(SpoolFile, "write", hanging)
    monkeypatch.setattr(uploader, "LINGER", 0.4)
    try:
        async with feed.feeding() as relay:
            await until(lambda: relay.link.connected)
            player = feed.player()
            await player.play()
            await until(lambda: status(relay).entries)
            await player.play()
            await until(hangs.is_set)
            # It is waited for more behind the first episode, and then for the disk.
            await trio.sleep(uploader.LINGER + 0.2)
            relay.drain_within(0.1)
        assert relay.at_rest.is_set()
        assert not go_on.is_set()
    finally:
        go_on.set()
    work: Any = relay._work
    # The disk works again, so that the file can be let go of.
    work._spool.close(WITHIN)


async def test_a_spool_that_another_process_holds_is_told_at_once(feed: Feed) -> None:
    with Spool(feed.directory / "s"), pytest.raises(ConfigurationError, match="locked") as refused:
        async with feed.observed():
            pass
    assert "--rllink-spool" in refused.value.hint
    assert feed.conductor.tracker.listeners == []


async def test_the_default_spool_is_named_after_the_address_and_no_two_have_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = parse_stream("127.0.0.1:5555")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert uploader.default_spool(address) == tmp_path / "ospbridge" / "spool-127.0.0.1-5555.sqlite"
    monkeypatch.setenv("STATE_DIRECTORY", f"{tmp_path}/state:/other")
    assert uploader.default_spool(address) == tmp_path / "state" / "spool-127.0.0.1-5555.sqlite"
    written = ["[::1]:5555", "[1::]:5555", "[fd00::1:2]:5555", "[fd00:1::2]:5555", "[::]:5555"]
    assert len({uploader.default_spool(parse_stream(each)) for each in written}) == len(written)
