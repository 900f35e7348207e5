"""The sink: what comes is on disk once, and before its sender hears of it; who asks gets the policy."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio
from click.testing import CliRunner
from structlog.testing import capture_logs

from ospbridge.cli import main
from ospbridge.errors import ConfigurationError, UpstreamLost
from ospbridge.interface import DiscreteSpace
from ospbridge.record.reading import read_recording
from ospbridge.rllink.dialects import JSON, MSGPACK, Dialect
from ospbridge.rllink.exchanges import get_state, learn
from ospbridge.rllink.messages import EpisodeFragment, EpisodesAndGetState, ModuleWeights
from ospbridge.sink import serving
from ospbridge.sink.policy_file import PolicyFile
from ospbridge.sink.store import Store
from tests.sink.clients import WITHIN, fragment, linked, recorded, save, sent, sink

pytestmark = pytest.mark.loopback


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.npz"
    save(path, np.ones((2, 2), np.float32))
    return path


# --- experience --------------------------------------------------------------------------------------------------


@pytest.mark.trio
@pytest.mark.parametrize("dialect", [JSON, MSGPACK])
@pytest.mark.parametrize("box", [False, True])
async def test_what_is_proven_to_be_read_is_on_disk_with_all_that_its_client_said(
    tmp_path: Path, dialect: Dialect, box: bool
) -> None:
    named = replace(fragment("a", 5, box=box), agent="robot/1", simulator="sim:1", weights_seq_no=4)
    async with sink(Store(tmp_path / "in")) as address, linked(address, dialect) as connection:
        await sent(connection, named, fragment("b", 7, box=box))
        assert sorted(recorded(tmp_path / "in")) == [(5, 5.0, "terminated"), (7, 7.0, "terminated")]
    first = {len(episode): episode for episode in read_recording(tmp_path / "in")}[5]
    assert first.observations.shape[1] == 2
    expected = np.arange(len(first))[:, None] / 8.0 if box else np.arange(len(first)) % 3
    assert np.array_equal(first.actions, expected)
    assert (first.agent, first.simulator, first.weights_seq_no) == ("robot/1", "sim:1", 4)
    assert first.action_logp is not None
    assert first.action_dist_inputs is not None
    assert first.action_logp.tolist() == [-1.0] * 5
    assert first.action_dist_inputs.shape == (5, 3)


@pytest.mark.trio
@pytest.mark.parametrize("dialect", [JSON, MSGPACK])
async def test_a_fragment_that_comes_again_is_recorded_once_also_by_a_sink_that_started_anew(
    tmp_path: Path, dialect: Dialect
) -> None:
    ids = ["a/b", "a_b", "a b", "x" * 150 + "1", "x" * 150 + "2", "ä", "."]
    for round_ in range(2):
        store = Store(tmp_path / "in")
        async with sink(store) as address, linked(address, dialect) as connection:
            await sent(connection, *(fragment(each) for each in ids), fragment("a/b"))
            assert (store.written, store.again) == ((7, 1) if round_ == 0 else (0, 8))
    assert sorted(episode.id for episode in read_recording(tmp_path / "in")) == sorted(ids)


@pytest.mark.trio
async def test_a_client_that_numbers_its_episodes_anew_in_each_run_is_told_of_in_the_log(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path / "in")
    with capture_logs() as logs:
        async with sink(store) as address:
            for batch in (["0", "1"], ["1", "0", "2"]):
                async with linked(address) as connection:
                    await sent(connection, *(fragment(each) for each in batch))
    (told,) = [line for line in logs if line["event"] == "experience came before"]
    assert (told["log_level"], told["steps"], told["fragments"], told["id"]) == ("warning", 10, 2, "1")
    assert "the same id" in told["hint"]
    came = [(line["steps"], line["repeated"]) for line in logs if line["event"] == "experience"]
    assert came == [(10, 0), (15, 10)]
    assert (store.written, store.again) == (3, 2)


@pytest.mark.trio
async def test_pieces_of_an_episode_are_files_of_their_own_in_order(tmp_path: Path) -> None:
    async with sink(Store(tmp_path / "in")) as address, linked(address) as connection:
        await sent(connection, fragment("a", 3, done=False))
        await sent(connection, fragment("a", 4, t_started=3))
    episodes = list(read_recording(tmp_path / "in"))
    assert [(len(e), e.how) for e in episodes] == [(3, "continued"), (4, "terminated")]
    assert episodes[0].observations[-1].tolist() == episodes[1].observations[0].tolist()
    assert bool(episodes[0].truncated[-1])


@pytest.mark.trio
async def test_the_mean_return_is_of_episodes_that_came_whole_and_of_no_pieces() -> None:
    begun, ended = fragment("a", 5, done=False), fragment("a", 2, t_started=5)
    with capture_logs() as logs:
        async with sink() as address, linked(address, MSGPACK) as connection:
            await sent(connection, begun)
            await sent(connection, ended)
            await sent(connection, fragment("b", 4), begun, ended)
    told = [(line["episodes"], line["mean_return"]) for line in logs if line["event"] == "experience"]
    assert told == [(0, None), (1, None), (2, 5.5)]


# --- policies ----------------------------------------------------------------------------------------------------


@pytest.mark.trio
async def test_who_asks_gets_the_policy_and_again_when_its_file_has_changed(policy: Path) -> None:
    async with sink(policy=PolicyFile(policy)) as address, linked(address) as connection:
        first = await connection.perform(get_state)
        save(policy, np.zeros((3, 2), np.float32))
        second = await connection.perform(get_state)
        policy.write_bytes(b"half a file")
        third = await connection.perform(get_state)
    assert isinstance(first, ModuleWeights)
    assert isinstance(second, ModuleWeights)
    assert first.arrays["pi.net.mlp.0.weight"].tolist() == [[1, 1], [1, 1]]
    assert second.arrays["pi.net.mlp.0.weight"].shape == (3, 2)
    assert third.seq_no == second.seq_no > first.seq_no


@pytest.mark.trio
async def test_who_asks_for_weights_with_its_batch_gets_a_higher_number_each_time(policy: Path) -> None:
    async with sink(policy=PolicyFile(policy)) as address, linked(address) as connection:
        numbers = [
            (
                await connection.perform(partial(learn, messages=[EpisodesAndGetState((fragment(f"{at}"),))]))
            ).seq_no
            for at in range(3)
        ]
    assert numbers == [1, 2, 3]


@pytest.mark.trio
async def test_a_sink_without_a_policy_turns_away_who_asks() -> None:
    async with sink() as address, linked(address) as connection:
        with pytest.raises(UpstreamLost):
            await connection.perform(get_state)


# --- the command -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, why",
    [
        (["--listen", "0.0.0.0:0"], "can be reached by other hosts"),
        (["--listen", "127.0.0.1:99999"], "not between 0 and 65535"),
        (["--policy", "missing.npz"], "missing.npz"),
        (["--record", "/proc/none"], "cannot be recorded"),
        (["--tls-cert", "c.pem"], "needs three files"),
    ],
)
def test_what_cannot_work_is_told_before_anybody_connects(options: list[str], why: str) -> None:
    done = CliRunner().invoke(main, ["sink", *options])
    assert done.exit_code == 78
    assert why in done.stderr


# --- one sink for many ---------------------------------------------------------------------------------------------


# --- clients -------------------------------------------------------------------------------------------------------


@pytest.mark.loopback
@pytest.mark.trio
async def test_many_episodes_of_one_client_are_written_a_few_at_a_time_and_others_have_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "TOGETHER", 5)
    with Store(tmp_path) as store:
        turns: list[tuple[str, int]] = []
        add, other_is_there = store.add, threading.Event()

        def noted(fragments: tuple[EpisodeFragment, ...], *, client: str) -> list[EpisodeFragment]:
            turns.append((fragments[0].id[0], len(fragments)))
            if len(turns) == 2:
                assert other_is_there.wait(WITHIN)
            return add(fragments, client=client)

        monkeypatch.setattr(store, "add", noted)
        many = [fragment(f"m{at}", 1) for at in range(50)]
        async with (
            sink(store) as address,
            linked(address) as one,
            linked(address) as other,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(partial(sent, one, *many))
            while len(turns) < 2:
                await trio.sleep(0.001)
            nursery.start_soon(sent, other, fragment("o", 1))
            # It waits for the lock before the next turn of the first is over.
            await trio.sleep(0.2)
            other_is_there.set()
    assert [size for who, size in turns if who == "m"] == [5] * 10
    assert turns.index(("o", 1)) <= 3
    assert len(recorded(tmp_path)) == 51


# --- one directory -------------------------------------------------------------------------------------------------


def test_a_directory_is_one_sinks_until_it_lets_go_of_it(tmp_path: Path) -> None:
    half = tmp_path / ".20260101T000000.000000Z-id-a-00000000.part"
    others = tmp_path / ".somebody-elses.part"
    others.touch()
    with Store(tmp_path) as first:
        half.write_bytes(b"being written")
        with pytest.raises(ConfigurationError, match="another sink records in") as caught:
            Store(tmp_path)
        assert "a directory of its own" in caught.value.hint
        assert half.exists()
        first.add([fragment("a")], client="c")
    with Store(tmp_path) as second:
        assert not half.exists()
        assert others.exists()
        assert second.add([fragment("a")], client="c")


# --- choices -------------------------------------------------------------------------------------------------------


def unannotated(name: str, actions: list[int], choices: int | None) -> EpisodeFragment:
    steps = len(actions)
    observations, rewards = np.zeros((steps + 1, 2), np.float32), np.zeros(steps, np.float32)
    return EpisodeFragment(name, observations, np.array(actions), rewards, terminated=True, choices=choices)


@pytest.mark.parametrize("said", [None, 2, 0, 2**24 + 1, 2**40])
def test_a_number_of_choices_that_cannot_be_is_not_believed(tmp_path: Path, said: Any) -> None:
    with Store(tmp_path) as store:
        store.add([unannotated("a", [0, 2], said)], client="c")
    (episode,) = read_recording(tmp_path)
    assert episode.action_space == DiscreteSpace(3)
