"""Inputs as they are written into a request, and as many requests at once as a server can hold."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import pytest

from ospbridge.errors import LocalProtocolError
from ospbridge.interface import AgentInterface, InterfaceValue
from ospbridge.osp.codes import Code
from ospbridge.osp.fast_path import StepRequest
from ospbridge.osp.messages import NextSimulationStep
from ospbridge.osp.profile import DOCUMENT, Profile
from tests.osp.pair import Datagram
from tests.osp.playing import COUNTED, LOST, PROMPT, REQUEST, Player
from tests.osp.stage import BOTH


def request(profile: Profile = DOCUMENT, *, inputs: int = 3) -> StepRequest:
    values = tuple(InterfaceValue(f"/{at}", -1, 1) for at in range(inputs))
    return StepRequest(AgentInterface(7, "robot", values, (), ()), profile)


@BOTH
def test_bytes_and_numbers_make_the_same_request(profile: Profile) -> None:
    numbers = np.array([0.25, -1.5, 3.0], np.float32)
    given = [numbers, numbers.tolist(), numbers.astype(float), numbers.tobytes()]
    made = []
    for inputs in given:
        mine = request(profile)
        mine.fill(inputs)
        assert mine.inputs.tolist() == numbers.tolist()
        made.append(bytes(mine.datagram))
    assert made == [NextSimulationStep(7, numbers).encode(end=profile.end_marker)] * len(given)


class Unwilling:
    """Numbers that numpy can read, and whose own buffer cannot be had: tensors of other libraries are of this kind."""

    def __init__(self, numbers: list[float]) -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self._numbers, dtype)


KINDS: dict[str, Callable[[list[float]], Any]] = {
    "float32": lambda numbers: np.array(numbers, np.float32),
    "float32 that nobody may write": lambda numbers: _frozen(np.array(numbers, np.float32)),
    "every second float32": lambda numbers: np.repeat(np.array(numbers, np.float32), 2)[::2],
    "float32 backwards": lambda numbers: np.array(numbers[::-1], np.float32)[::-1],
    "float32 of the other byte order": lambda numbers: np.array(numbers, ">f4"),
    "float64": lambda numbers: np.array(numbers, float),
    "whole numbers of as many bytes": lambda numbers: np.array(numbers).astype(np.int32),
    "an array of the standard library": lambda numbers: array("f", numbers),
    "a view": lambda numbers: memoryview(array("f", numbers)),
    "numbers": list,
    "what only numpy can read": Unwilling,
}


def _frozen(numbers: Any) -> Any:
    numbers.flags.writeable = False
    return numbers


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_no_kind_of_inputs_brings_another_count_or_what_is_no_number(
    kind: Callable[[list[float]], Any],
) -> None:
    mine = request()
    before = bytes(mine.datagram)
    for count in (0, 1, 2, 4, 12):
        with pytest.raises(LocalProtocolError, match="has 3 inputs, got"):
            mine.fill(kind([1.0] * count))
        assert bytes(mine.datagram) == before
    for what in (np.nan, np.inf, -np.inf):
        if kind is not KINDS["whole numbers of as many bytes"]:
            with pytest.raises(LocalProtocolError, match=r"input 1 \(/1\) of agent 'robot' is -?(nan|inf)"):
                mine.fill(kind([0.0, what, 0.0]))


HOLDS: Final = 250
"""Datagrams that fit into a receive buffer of the usual size."""
AGENTS: Final = 300


@BOTH
def test_a_server_is_sent_no_more_requests_at_once_than_its_buffer_holds(profile: Profile) -> None:
    """Of a reset or a step: the rest go out when others were acknowledged."""
    pending = most = 0

    def fault(datagram: Datagram) -> Iterable[float]:
        nonlocal pending, most
        code = datagram.data[0]
        if datagram.to_server and code in (Code.RESET_SIMULATION, REQUEST):
            if pending >= HOLDS:
                return LOST
            pending += 1
            most = max(most, pending)
        elif not datagram.to_server and code in (Code.RESET_SIMULATION_ACK, COUNTED):
            pending -= 1
        return PROMPT

    player = Player(profile, AGENTS, outputs=1)
    player.pair.fault = fault
    player.reset()
    assert sum(player.steps(2)) < 0.5
    assert player.told(0) == ""
    assert most == (128 if profile.pipelining else 1)
