"""Ctrl-C while agents are joined again, in environments of several agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pytest

from ospbridge.envs import sharing
from ospbridge.session.blocking import BlockingSession
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.kinds import marked, only, parallel, step, vector

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.loopback


def interrupted(*_: object, **__: object) -> NoReturn:
    raise KeyboardInterrupt


def lose_all() -> None:
    for shared in sharing._shared.values():
        shared.give_up("something went wrong")


@pytest.mark.parametrize("made", [vector, parallel])
def test_where_it_comes_before_events_and_values_are_asked_for_the_next_reset_asks(
    made: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = marked(tmp_path)
    with UdpSimulator(SyntheticWorld(2, 3, values=2), port=0) as simulator:
        env = made(str(simulator.address), scenario=str(scenario))
        env.reset(seed=1)
        lose_all()
        with monkeypatch.context() as patch:
            patch.setattr(BlockingSession, "equip", interrupted)
            with pytest.raises(KeyboardInterrupt):
                env.reset(seed=2)
        env.reset(seed=3)
        assert [bool(only(step(env)[2])) for _ in range(9)] == [False] * 8 + [True]
        env.close()


def test_in_a_step_that_begins_the_next_episode_the_next_step_tells_of_it_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with UdpSimulator(SyntheticWorld(2, 3), port=0) as simulator:
        env = vector(str(simulator.address), autoreset_mode="SameStep")
        env.reset(seed=1)
        session = next(iter(sharing._shared.values())).session
        session.abandon_step()
        with monkeypatch.context() as patch:
            patch.setattr(sharing, "connect", interrupted)
            with pytest.raises(KeyboardInterrupt):
                step(env)
        assert np.all(step(env)[3])
        assert not np.any(step(env)[3])
        env.close()
