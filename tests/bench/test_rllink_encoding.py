"""What it costs to write experience down, as ratios to floors measured beside it. Never times: machines differ."""

from __future__ import annotations

import json

import orjson
import pytest

from ospbridge.rllink.checking import check_fragments
from ospbridge.rllink.dialects import JSON, MSGPACK
from ospbridge.rllink.messages import EpisodesAndGetState
from tests.bench.ratios import ratio
from tests.rllink.episodes import arrays_of, episode

pytestmark = pytest.mark.timed

EPISODES, STEPS = 20, 200
FRAGMENTS = tuple(
    episode(STEPS, observation=16, action=4, seed=number, id=f"{number:032x}") for number in range(EPISODES)
)
BATCH = EpisodesAndGetState(FRAGMENTS)
FLOOR_US = 0.76
"""Microseconds a step that orjson alone took for these arrays on two quiet cores, where JSON was to take 1 us at most,
and msgpack 0.15 us. Their ratios to the floor are what other machines are asked for."""


def floor() -> bytes:
    """The same arrays by orjson alone."""
    return orjson.dumps([arrays_of(sent) for sent in FRAGMENTS], option=orjson.OPT_SERIALIZE_NUMPY)


def test_json_costs_little_more_than_its_digits() -> None:
    promised = 1.0 / FLOOR_US
    assert ratio(lambda: JSON.encode(BATCH), floor, promised=promised) <= promised


def test_msgpack_costs_a_small_part_of_the_digits_that_it_saves() -> None:
    promised = 0.15 / FLOOR_US
    assert ratio(lambda: MSGPACK.encode(BATCH), floor, promised=promised) <= promised


def test_json_costs_a_small_part_of_what_rays_own_client_spends() -> None:
    def plainly() -> str:
        return json.dumps(
            [{name: array.tolist() for name, array in arrays_of(sent).items()} for sent in FRAGMENTS]
        )

    assert ratio(lambda: JSON.encode(BATCH), plainly, promised=0.12) <= 0.12


def test_the_check_before_sending_costs_a_small_part_of_writing_json() -> None:
    assert ratio(lambda: check_fragments(FRAGMENTS), lambda: JSON.encode(BATCH), promised=0.2) <= 0.2
