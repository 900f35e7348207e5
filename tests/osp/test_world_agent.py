"""The arrays through which a world drives its agents."""

from __future__ import annotations

import numpy as np
import pytest

from ospbridge.interface import InterfaceValue
from ospbridge.osp.world import WorldAgent


def agent() -> WorldAgent:
    return WorldAgent("arm", [InterfaceValue("/Motor", -1, 1)], [InterfaceValue("/Angle", -9, 9)])


@pytest.mark.parametrize("name", ["inputs", "outputs", "infos"])
@pytest.mark.parametrize("value", [[0.5], np.array([0.5]), np.array([0.5], np.float32)])
def test_arrays_cannot_be_other_ones_because_the_server_sends_those_that_it_knows(
    name: str, value: object
) -> None:
    arm = agent()
    with pytest.raises(AttributeError, match=rf"{name} of agent 'arm' .*agent\.{name}\[:\] = "):
        setattr(arm, name, value)
    assert getattr(arm, name).dtype == np.float32


def test_arrays_are_written_in_place() -> None:
    arm = agent()
    arm.outputs[:] = 0.25
    arm.outputs += 0.5
    arm.outputs[0] *= 2
    assert arm.outputs.tolist() == [1.5]
