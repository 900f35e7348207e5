"""One environment alone at a hub, over real sockets: its steps are taken at once."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from ospbridge.daemon.alone import Alone
from ospbridge.daemon.hub import watch as hub_watch
from ospbridge.hub.replies import Feedbacks
from ospbridge.hub.requests import Again, Reset, Step
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.hubs import Line, acting, again, in_thread, observed, play, serving, status, values, wanted

if TYPE_CHECKING:
    from pathlib import Path

    from ospbridge.osp.profile import Profile

pytestmark = [pytest.mark.loopback, pytest.mark.trio]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Counter[bool]:
    """Steps that were over at once, and those that were only begun so."""
    # However slow this machine is, who leads goes on leading.
    monkeypatch.setattr(hub_watch, "LINGER", 0.3)
    found: Counter[bool] = Counter()
    step = Alone.step

    def spy(alone: Alone, moves: Any, inputs: Any) -> bool:
        over = step(alone, moves, inputs)
        found[over] += 1
        return over

    monkeypatch.setattr(Alone, "step", spy)
    return found


named = partial(acting, agent="agent")


def world(think: float = 0.0) -> SyntheticWorld:
    return SyntheticWorld(2, 3, agents=1, think=think)


async def test_every_step_brings_what_the_simulator_computes_whatever_others_ask(
    profile: Profile, tmp_path: Path, taken: Counter[bool]
) -> None:
    path = tmp_path / "hub"
    with UdpSimulator(world(), port=0, profile=profile) as simulator:
        async with serving(simulator, path, spin=True) as conductor:

            def now_and_then(number: int) -> None:
                if number % 30 == 0:
                    status(path)

            for _ in range(2):
                await in_thread(play, path, "agent", 100, now_and_then)
            assert conductor.steps == 202
            assert sum(conductor.measures.step_times.counts) == 200
    assert sum(taken.values()) > 50


async def test_steps_of_a_simulator_that_thinks_are_begun_at_once_and_run_to_their_end(
    profile: Profile, tmp_path: Path, taken: Counter[bool]
) -> None:
    path = tmp_path / "hub"
    with UdpSimulator(world(think=0.004), port=0, profile=profile) as simulator:
        async with serving(simulator, path, spin=True) as conductor:
            await in_thread(play, path, "agent", 50)
            assert conductor.steps == 51
    assert taken[False] > 10


async def test_one_that_hangs_up_in_such_a_step_leaves_the_agent_to_the_next(
    profile: Profile, tmp_path: Path, taken: Counter[bool]
) -> None:
    path = tmp_path / "hub"
    with UdpSimulator(world(think=0.02), port=0, profile=profile) as simulator:
        async with serving(simulator, path, spin=True) as conductor:
            for _ in range(3):
                with closing(await in_thread(Line.playing, path, "agent")) as line:
                    for request in (*named(0.5), *again(0.25)):
                        await in_thread(line.ask, request)
                    line.say(*again(0.75))
                    await trio.sleep(0.01)
            while conductor.lockstep.attachments:
                await trio.sleep(0.01)
            await in_thread(play, path, "agent", 5)
            assert conductor.rebuilds == 0


async def test_who_drives_all_agents_has_their_steps_taken_at_once(
    document: UdpSimulator, tmp_path: Path, taken: Counter[bool]
) -> None:
    path = tmp_path / "hub"
    named = Step([("agent1", values(0.25).tobytes()), ("agent2", values(0.5).tobytes())])
    more = Again(values(0.5).tobytes() + values(0.75).tobytes())
    async with serving(document, path, spin=True) as conductor:
        with closing(await in_thread(Line.playing, path, "*")) as line:

            def episode() -> None:
                assert isinstance(line.ask(named), Feedbacks)
                for step in range(2, 50):
                    assert observed(line.ask(more)) == [*wanted(0.5, step), *wanted(0.75, step)]
                assert isinstance(line.ask(Reset([], 5)), Feedbacks)

            for _ in range(3):
                await in_thread(episode)
            assert [a.steps for a in conductor.lockstep.playing] == [0, 0]
        assert [held.lengths[-1] for held in conductor.lockstep.held.values()] == [49, 49]
        assert conductor.steps == 4 + 3 * 49
    assert sum(taken.values()) > 10
