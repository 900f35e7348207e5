"""Rows of many agents are to their users what the agents' own actions and feedback are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ospbridge.envs.groups.hub_rows import HubRows
from ospbridge.envs.groups.infos import in_columns
from ospbridge.envs.groups.rows import ActionRows
from ospbridge.errors import RemoteProtocolError
from ospbridge.hub.framing import HEAD, encode
from ospbridge.hub.replies import Numbers
from ospbridge.hub.requests import Again
from ospbridge.interface import AgentInterface, BoxSpace, InterfaceValue

NAMES = ["a", "bb", "c1"]


def box(size: int) -> BoxSpace:
    return BoxSpace(np.full(size, -1, np.float32), np.full(size, 1, np.float32))


def rows_of_all() -> HubRows:
    infos = tuple(InterfaceValue(info, 0, 1) for info in ("x", "y"))
    return HubRows(
        {name: AgentInterface(0, name, (), (), infos) for name in NAMES},
        dict.fromkeys(NAMES, box(4)),
        dict.fromkeys(NAMES, box(2)),
    )


def sent(frame: bytearray | None) -> bytes:
    assert frame is not None
    return bytes(frame)


def message(actions: Any) -> bytes:
    frame = bytearray()
    encode(Again(np.asarray(actions, np.float32).tobytes()), frame)
    return bytes(frame)


def test_rows_of_numbers_are_sent_as_the_message_of_all() -> None:
    rows = rows_of_all()
    for seed in range(3):
        actions = np.random.default_rng(seed).normal(size=(3, 2)).astype(np.float32)
        assert sent(rows.again(NAMES, ActionRows(NAMES, actions))) == message(actions)
        # Not of one piece, as a column of a larger array is not.
        apart = np.repeat(actions, 2, axis=1)[:, ::2]
        assert sent(rows.again(NAMES, ActionRows(NAMES, apart))) == message(actions)


@pytest.mark.parametrize(
    "actions",
    [
        np.zeros((3, 2)),
        np.zeros((3, 3), np.float32),
        np.zeros((2, 2), np.float32),
        np.full((3, 2), np.nan, np.float32),
        np.full((3, 2), np.inf, np.float32),
        np.zeros((3, 2), np.int64),
        [[0.0, 0.0]] * 3,
    ],
    ids=repr,
)
def test_what_is_no_row_for_each_is_left_to_the_messages(actions: Any) -> None:
    assert rows_of_all().again(NAMES, ActionRows(NAMES, actions)) is None


@pytest.mark.parametrize(
    "observed, informed, rewards",
    [(5, 2, 3), (4, 1, 3), (4, 2, 2), (3, 3, 3)],
    ids=["observations", "infos", "rewards", "as many bytes"],
)
def test_numbers_of_another_size_are_told(observed: int, informed: int, rewards: int) -> None:
    frame = bytearray()
    encode(Numbers(7, bytearray(3 * 4 * observed), bytes(3 * 4 * informed), bytes(8 * rewards)), frame)
    with pytest.raises(RemoteProtocolError, match=r"of \(48, 24, 24\) bytes for 3 agents"):
        rows_of_all().read(memoryview(frame)[HEAD.size :])


def test_infos_that_are_not_all_alike_are_no_columns() -> None:
    """So that gymnasium's own way gathers them, which loses no key that only one environment has."""
    alike, more = {"a": 1.0, "b": 2.0}, {"a": 1.0, "b": 2.0, "reason": "late"}
    assert in_columns([alike, alike]) is not None
    assert in_columns([alike, more]) is None
    assert in_columns([more, alike]) is None
