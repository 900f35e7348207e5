"""The synthetic world: sizes, the promised outputs, marks, values."""

from __future__ import annotations

import numpy as np
import pytest

from ospbridge.errors import ConfigurationError
from ospbridge.simulator.synthetic import MARK_EVERY, SyntheticWorld, expected


def test_outputs_and_infos_stay_in_their_announced_ranges_and_as_promised() -> None:
    world = SyntheticWorld(3, 5, 2)
    (agent,) = world.agents
    world.reset(999)
    seen = set()
    for step in range(1, 2 * 2048):
        agent.inputs[:] = [1.0, 1.0, 1.0] if step > 20 else [step / 200, -step / 30, step / 60]
        world.step()
        promised = expected(agent.inputs, step, 7, seed=999)
        assert np.array_equal(agent.outputs, promised[:5])
        assert np.array_equal(agent.infos, promised[5:])
        assert (np.abs(promised) <= 1.0).all()
        seen.add(promised[0].item())
    assert len(seen) >= 2048
    assert {(value.min, value.max) for value in (*agent.interface.outputs, *agent.interface.infos)} == {
        (-1.0, 1.0)
    }


def test_agents_are_named_and_numbered() -> None:
    assert [agent.name for agent in SyntheticWorld(1, 1).agents] == ["agent"]
    assert [agent.name for agent in SyntheticWorld(1, 1, agents=2).agents] == ["agent1", "agent2"]
    assert [agent.name for agent in SyntheticWorld(1, 1, names=["left", "right"]).agents] == ["left", "right"]


def test_marks_occur_regularly() -> None:
    world = SyntheticWorld(1, 1)
    world.reset(0)
    marks = []
    for _ in range(3 * MARK_EVERY):
        world.step()
        marks.append(bool(world.take_events()))
    assert [index + 1 for index, mark in enumerate(marks) if mark] == [10, 20, 30]


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ConfigurationError):
        SyntheticWorld(-1, 1)
    with pytest.raises(ConfigurationError):
        SyntheticWorld(1, 1, agents=0)
