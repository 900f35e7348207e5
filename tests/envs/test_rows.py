"""Rows of many agents are to their users what the agents' own actions and feedback are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ospbridge.envs.groups.hub_rows import HubRows
from ospbridge.envs.groups.rows import ActionRows
from ospbridge.errors import RemoteProtocolError
from ospbridge.hub.framing import HEAD, encode
from ospbridge.hub.replies import HubReply, Numbers
from ospbridge.hub.requests import Again
from ospbridge.interface import AgentInterface, BoxSpace, InterfaceValue, Space

NAMES = ["a", "bb", "c1"]


def box(size: int) -> BoxSpace:
    return BoxSpace(np.full(size, -1, np.float32), np.full(size, 1, np.float32))


def rows_of(
    names: list[str] = NAMES,
    *,
    infos: tuple[str, ...] = ("x", "y"),
    observed: int = 4,
    action: Space | None = None,
    odd: dict[str, Any] | None = None,
) -> HubRows:
    """``odd``: what the last agent has in place of the others."""

    def interface(name: str, told: tuple[str, ...]) -> AgentInterface:
        return AgentInterface(0, name, (), (), tuple(InterfaceValue(info, 0, 1) for info in told))

    last, odd = names[-1], odd or {}
    spaces = dict.fromkeys(names, action or box(2))
    return HubRows(
        {name: interface(name, odd.get("infos", infos) if name == last else infos) for name in names},
        {name: box(odd.get("observed", observed) if name == last else observed) for name in names},
        spaces | {last: odd.get("action", spaces[last])},
    )


def sent(frame: bytearray | None) -> bytes:
    assert frame is not None
    return bytes(frame)


def message(actions: Any) -> bytes:
    frame = bytearray()
    encode(Again(np.asarray(actions, np.float32).tobytes()), frame)
    return bytes(frame)


def test_rows_of_numbers_are_sent_as_the_message_of_all() -> None:
    rows = rows_of()
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
    assert rows_of().again(NAMES, ActionRows(NAMES, actions)) is None


def answer(
    number: int = 1, *, observed: int = 4, informed: int = 2, rewards: int = 3, seed: int = 7
) -> Numbers:
    random = np.random.default_rng(number)
    return Numbers(
        seed,
        bytearray(random.normal(size=3 * observed).astype(np.float32).tobytes()),
        random.normal(size=3 * informed).astype(np.float32).tobytes(),
        random.normal(size=rewards).tobytes(),
    )


def body(reply: HubReply) -> memoryview:
    frame = bytearray()
    encode(reply, frame)
    return memoryview(frame)[HEAD.size :]


@pytest.mark.parametrize(
    "wrong",
    [answer(observed=5), answer(informed=1), answer(rewards=2), answer(observed=3, informed=3)],
    ids=["observations", "infos", "rewards", "as many bytes"],
)
def test_numbers_of_another_size_are_told(wrong: Numbers) -> None:
    with pytest.raises(RemoteProtocolError, match=r"of \(48, 24, 24\) bytes for 3 agents"):
        rows_of().read(body(wrong))


# --- infos in columns are what gymnasium makes of them one by one
