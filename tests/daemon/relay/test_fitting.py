"""Experience that the upstream's module cannot learn from is kept, and told: sent, it would end the whole training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from structlog.testing import capture_logs

from ospbridge.errors import UsageError
from ospbridge.interface import BoxSpace
from ospbridge.rllink.weights import MlirWeights, OnnxWeights
from tests.daemon.relay import test_observing
from tests.daemon.relay.test_driving import back
from tests.daemon.relay.test_observing import (
    Player,
    Server,
    all_arrived,
    listening,
    module,
    observed,
    sink,
    until,
)
from tests.daemon.stage import ONE
from tests.policy.onnx_models import recorded

if TYPE_CHECKING:
    from pathlib import Path

    from ospbridge.daemon.conductor import Conductor

impatient = test_observing.impatient
conductor = test_observing.conductor
pytestmark = [pytest.mark.loopback, pytest.mark.trio]


@pytest.mark.parametrize(
    "widths, why",
    [
        ((3, 2), "its observations have 1 numbers, the server's module takes 3"),
        ((1, 4), "its actions were drawn from 2 numbers, the server's module puts out 4"),
    ],
)
async def test_it_waits_for_a_server_that_it_fits(
    conductor: Conductor, tmp_path: Path, widths: tuple[int, int], why: str
) -> None:
    wrong, right = Server(), Server()
    wrong.weights = module(*widths)
    with capture_logs() as logs:
        async with observed(conductor, 1, tmp_path / "s") as relay:
            player = Player(conductor)
            async with listening(wrong.serve) as port:
                back(relay, port)
                await player.play()
                await player.play()
                await until(lambda: why in relay.status.trouble)
            assert wrong.arrived == []
            async with listening(right.serve, port):
                await all_arrived(relay)
            assert relay.status.discarded == 0
            assert relay.status.trouble == ""
    assert len(right.arrived) == 2
    (told,) = [line for line in logs if line["event"] == "experience does not fit the upstream"]
    assert "of agent 'a'" in told["reason"]
    assert why in told["reason"]
    assert str(tmp_path / "s") in told["hint"]


async def test_an_onnx_model_is_looked_at_as_well(conductor: Conductor, tmp_path: Path) -> None:
    server = Server()
    server.weights = OnnxWeights(recorded("discrete"), 1)
    async with listening(server.serve) as port, observed(conductor, port, tmp_path / "s") as relay:
        await Player(conductor).play()
        await until(lambda: "the server's module takes 4" in relay.status.trouble)
    assert server.arrived == []


async def test_what_comes_before_it_is_sent(
    conductor: Conductor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server()
    async with observed(conductor, 1, tmp_path / "s") as relay:
        player = Player(conductor)
        await player.play()
        task = conductor.lockstep.held["a"].task
        monkeypatch.setattr(task, "observe", lambda outcome: np.zeros(3, np.float32))
        task.observation_space = BoxSpace(np.zeros(3, np.float32), np.ones(3, np.float32))
        conductor.leave([player.attachment])
    # As another daemon, whose scenario is another one.
    async with observed(conductor, 1, tmp_path / "s") as relay:
        await Player(conductor).play()
        async with listening(server.serve) as port:
            back(relay, port)
            await until(lambda: "have 3 numbers, the server's module takes 1" in relay.status.trouble)
        assert len(server.arrived) == 1
        assert relay.status.spool is not None
        assert relay.status.spool.entries == 1


async def test_a_server_is_asked_once_for_each_connection(conductor: Conductor, tmp_path: Path) -> None:
    server = Server()
    async with listening(server.serve) as port, observed(conductor, port, tmp_path / "s") as relay:
        player = Player(conductor)
        for _ in range(3):
            await player.play()
            await all_arrived(relay)
        assert server.asked == server.connections == 1


async def test_a_server_that_gives_no_weights_is_sent_all_the_same_and_asked_again_when_it_comes_back(
    conductor: Conductor, tmp_path: Path
) -> None:
    server = Server()
    server.weights = None
    with capture_logs() as logs:
        async with observed(conductor, 1, tmp_path / "s") as relay:
            player = Player(conductor)
            async with listening(server.serve) as port:
                back(relay, port)
                await player.play()
                await all_arrived(relay)
            assert (len(server.arrived), server.asked, server.connections) == (1, 2, 3)
            await player.play()
            server.weights = module(3, 2)
            async with listening(server.serve, port):
                await until(lambda: "the server's module takes 3" in relay.status.trouble)
    assert len(server.arrived) == 1
    told = [line for line in logs if line["event"] == "the upstream does not say what its module takes"]
    assert [line["connections"] for line in told] == [2]


async def test_weights_that_nobody_can_read_tell_nothing(conductor: Conductor, tmp_path: Path) -> None:
    server = Server()
    server.weights = MlirWeights(b"module", 1)
    async with listening(server.serve) as port, observed(conductor, port, tmp_path / "s") as relay:
        await Player(conductor).play()
        await all_arrived(relay)
    assert len(server.arrived) == 1


async def test_a_sink_is_not_asked_and_takes_what_comes(conductor: Conductor, tmp_path: Path) -> None:
    with capture_logs() as logs:
        async with sink(tmp_path / "in") as port, observed(conductor, port, tmp_path / "s") as relay:
            await Player(conductor).play()
            await all_arrived(relay)
            assert relay.link.connections == 1
    assert not [line for line in logs if line["event"] == "a client is dismissed"]


async def test_agents_of_another_kind_are_not_admitted_beside_those_that_are(
    conductor: Conductor, tmp_path: Path
) -> None:
    conductor.lockstep.held["b"].task.observation_space = BoxSpace(
        np.zeros(3, np.float32), np.ones(3, np.float32)
    )
    async with observed(conductor, 1, tmp_path / "s"):
        Player(conductor)
        with pytest.raises(
            UsageError, match=r"'b' has 3 observations, 1 inputs.* with 1 observations, 1 inputs"
        ) as no:
            conductor.attach(["b"], ONE, annotates=True)
        assert "--rllink-agents" in no.value.hint
        (player,) = conductor.lockstep.attachments
        assert player.name == "a"
        conductor.leave([player])
        conductor.attach(["b"], ONE, annotates=True)
    async with observed(conductor, 1, tmp_path / "t", unannotated=True):
        conductor.attach(["b"], ONE, annotates=True)
