"""Inputs as they are written into a vote."""

from __future__ import annotations

import numpy as np
import pytest

from ospbridge.errors import LocalProtocolError
from ospbridge.interface import AgentInterface, InterfaceValue
from ospbridge.osp.messages import NextSimulationStep
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.step.votes import Vote


def vote(profile: Profile = DOCUMENT, *, inputs: int = 3) -> Vote:
    values = tuple(InterfaceValue(f"/{at}", -1, 1) for at in range(inputs))
    return Vote(AgentInterface(7, "robot", values, (), ()), profile)


@pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
def test_bytes_and_numbers_make_the_same_vote(profile: Profile) -> None:
    numbers = np.array([0.25, -1.5, 3.0], np.float32)
    given = [numbers, numbers.tolist(), numbers.astype(float), numbers.tobytes()]
    made = []
    for inputs in given:
        mine = vote(profile)
        mine.fill(inputs)
        assert mine.inputs.tolist() == numbers.tolist()
        made.append(bytes(mine.datagram))
    assert made == [NextSimulationStep(7, numbers).encode(end=profile.end_marker)] * len(given)


def test_bytes_of_another_length_are_refused_and_change_nothing() -> None:
    mine = vote()
    before = bytes(mine.datagram)
    for wrong in (b"", bytes(8), bytes(11), bytes(16), b"\x00\x00\xc0\x7f"):
        with pytest.raises(LocalProtocolError, match="has 3 inputs"):
            mine.fill(wrong)
        assert bytes(mine.datagram) == before
