"""One sink for many: no client waits for another's mass of experience, and no two sinks write into one directory."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import trio

from ospbridge.errors import ConfigurationError
from ospbridge.interface import DiscreteSpace
from ospbridge.record.reading import read_recording
from ospbridge.rllink.fragments import EpisodeFragment
from ospbridge.sink import serving
from ospbridge.sink.store import Store
from tests.sink.clients import WITHIN, fragment, linked, recorded, sent, sink

if TYPE_CHECKING:
    from pathlib import Path


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
