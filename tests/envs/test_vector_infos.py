"""Infos in columns are what gymnasium makes of them one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import VectorEnv

from ospbridge.envs.groups.infos import in_columns
from tests.envs.vectors import assert_same


def one_by_one(infos: list[dict[str, Any]]) -> dict[str, Any]:
    envs: VectorEnv[Any, Any, Any] = VectorEnv()
    envs.num_envs = len(infos)
    found: dict[str, Any] = {}
    for at, info in enumerate(infos):
        envs._add_info(found, info, at)
    return found


@pytest.mark.parametrize("count", [1, 3])
def test_they_equal_those_added_one_by_one(count: int) -> None:
    infos = [
        {
            "osp_seed": at,
            "reward": at / 3,
            "restored": at == 1,
            "reason": "x" * at,
            "events": ("fallen",) * at,
            "scalar": np.float32(at),
            "infos": {"/episode/reward": float(at), "nan": float("nan")},
            "values": {"/Simulation/Seed": str(at)},
            "none": {},
        }
        for at in range(count)
    ]
    found = in_columns(infos)
    assert found is not None
    assert_same(found, one_by_one(infos))


@pytest.mark.parametrize(
    "infos",
    [
        [{"a": 1}, {"b": 1}],
        [{"a": 1}, {"a": 1, "b": 2}],
        [{"a": 1}, {"a": 1.0}],
        [{"a": {"b": 1}}, {"a": {"c": 1}}],
        [{"a": np.zeros(2)}, {"a": np.zeros(2)}],
        [{"a": None}, {"a": None}],
    ],
    ids=str,
)
def test_those_that_are_not_alike_are_left_to_gymnasium(infos: list[dict[str, Any]]) -> None:
    assert in_columns(infos) is None
