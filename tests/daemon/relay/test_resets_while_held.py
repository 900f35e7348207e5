"""Between its episodes a driver that waits for weights is waited for: environments beside it begin when it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from structlog.testing import capture_logs

from ospbridge.daemon.attachment import Driver, State
from ospbridge.daemon.lockstep import ResetPolicy
from ospbridge.rllink.cutting import BatchMode
from ospbridge.session.hub_client import HubClient
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.relay.driving import driven, until, upstream
from tests.daemon.relay.learner import Gated, TinyLearner, drive, learning
from tests.daemon.running import Daemon
from tests.daemon.stage import FakeSession, attach, conductor_of, inputs

if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence
    from pathlib import Path
    from typing import Any

    from ospbridge.daemon.attachment import Attachment
    from ospbridge.daemon.conductor import Conductor

pytestmark = pytest.mark.loopback
WHOLE = {"agents": ("a",), "batch_mode": BatchMode.COMPLETE_EPISODES}
GRACE = 0.2


def world(policy: ResetPolicy = ResetPolicy.ALL, **length: int) -> tuple[FakeSession, Conductor]:
    """Episodes of 7 steps, or as said; a reset waits only shortly for those who could ask too."""
    session = FakeSession("a", "b")
    session.ending = {"a": 7, "b": 7} | length
    conductor = conductor_of(session, reset_policy=policy)
    conductor.lockstep.next_reset.grace = GRACE
    return session, conductor


def beside(conductor: Conductor, pid: int = 1) -> Attachment:
    """An environment on agent b, whose first episode begins with the driver's."""
    conductor.lockstep.quorum = 2
    return attach(conductor, "b", Driver("env", pid))


async def episode(conductor: Conductor, b: Attachment) -> list[str]:
    """The environment's; who plays it, at its beginning."""
    await conductor.reset([b], 0, 2)
    names = [a.name for a in conductor.lockstep.playing]
    while b.state is State.PLAYING:
        await conductor.step([(b, inputs(0.5))])
    return names


def failures(logs: Sequence[MutableMapping[str, Any]]) -> list[str]:
    return [line["reason"] for line in logs if line["event"] == "the driver's reset failed"]


@pytest.mark.trio
async def test_a_world_held_for_too_long_is_reset_without_the_driver_which_joins_in_later() -> None:
    learner = Gated()
    _, conductor = world()
    b = beside(conductor)
    with capture_logs() as logs:
        async with learner.listening() as port, driven(conductor, upstream(port, **WHOLE, hold=0.1)):
            for _ in range(3):
                assert len(await episode(conductor, b)) == 2
            assert await episode(conductor, b) == ["b"]
            assert len(learner.batches) == 0
            learner.gate.set()
            await until(lambda: len(learner.batches) == 1)
            await until(lambda: "a" in [each.name for each in conductor.lockstep.playing])
            who = [await episode(conductor, b) for _ in range(3)]
    assert [sorted(names) for names in who] == [["a", "b"]] * 3
    assert failures(logs) == []
    assert learner.wrong == []


@pytest.mark.usefixtures("runtime_directory")
def test_a_client_whose_reset_waits_for_weights_is_told_and_loses_no_patience(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = TinyLearner()
    learner.thinks = 2.5
    scenario = tmp_path / "short.toml"
    scenario.write_text('name = "short"\n[[agent]]\n[agent.episode]\nmax_steps = 7\n')
    options = ["--rllink-agents", "agent1", "--scenario", str(scenario), "--quorum", "2"]
    options += ["--rllink-batch-mode", "complete_episodes"]
    # A client has two seconds of patience then, of which steps and resets of this simulator take a fraction.
    monkeypatch.setattr("ospbridge.session.hub_client.answer_limits", lambda _: (30.0, 2.0))
    with (
        UdpSimulator(SyntheticWorld(1, 1, agents=2), port=0) as simulator,
        learning(learner) as address,
        Daemon(simulator.address, *drive(address, *options), directory=tmp_path) as daemon,
    ):
        daemon.wait_until("waiting for reset", "agent1")
        seat = HubClient.connect().attach("agent2")
        for _ in range(4):
            seat.reset(0)
            told = [seat.step(np.zeros(1, np.float32)) for _ in range(7)]
            assert [each.truncated for each in told] == [False] * 6 + [True]
        # A batch is three episodes.
        assert len(learner.batches) == 1
        episodes = [line["agent"] for line in daemon.lines("episode")]
        assert sorted(episodes) == ["agent1"] * 4 + ["agent2"] * 4
        assert daemon.lines("the driver's reset failed") == []
        seat.close()
    assert learner.wrong == []
