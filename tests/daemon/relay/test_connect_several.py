"""``ospbridge connect --config`` with two simulators, on real sockets; the learners check each batch."""

from __future__ import annotations

import signal
import threading
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ospbridge.observe.runtime import default_hub
from ospbridge.session.hub_client import HubClient
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.relay.learner import TinyLearner
from tests.daemon.relay.test_connect import enough, learning
from tests.daemon.running import Daemon, all_free, free_port, run_program

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("runtime_directory")]


def hub(name: str) -> str:
    return f"unix:{default_hub(name)}"


def world() -> SyntheticWorld:
    return SyntheticWorld(1, 1)


def simulator(name: str, address: object, scenario: str = "short.toml") -> str:
    return f'[[simulator]]\nname = "{name}"\naddress = "{address}"\nscenario = "{scenario}"\n'


def rllink(address: str, simulators: str) -> str:
    return f'[[rllink]]\naddress = "{address}"\nsimulators = {simulators}\nenv_steps = 20\n'


def written(directory: Path, *tables: str) -> str:
    """A configuration whose scenario ends episodes after seven steps."""
    (directory / "short.toml").write_text('name = "short"\n[[agent]]\n[agent.episode]\nmax_steps = 7\n')
    file = directory / "osp.toml"
    file.write_text("".join(tables))
    return str(file)


def _more_steps(daemon: Daemon, than: int) -> bool:
    return daemon.status(hub=hub("mortal")).steps > than


def until(condition: Callable[[], object]) -> None:
    for _ in range(1000):
        if condition():
            return
        threading.Event().wait(0.02)
    pytest.fail("it did not come about")


def test_two_simulators_feed_an_upstream_each_and_are_left_in_order(tmp_path: Path) -> None:
    first, second = TinyLearner(seed=1), TinyLearner(seed=2)
    with (
        UdpSimulator(world(), port=0) as left,
        UdpSimulator(world(), port=0) as right,
        learning(first) as one,
        learning(second) as two,
    ):
        file = written(
            tmp_path,
            simulator("left", left.address),
            simulator("right", right.address),
            rllink(one, '["left"]'),
            rllink(two, '["right"]'),
        )
        with Daemon(None, "--config", file, directory=tmp_path, hub=hub("left")) as daemon:
            enough(first, 5)
            enough(second, 5)
            for name, served, address in (("left", left, one), ("right", right, two)):
                found = daemon.status(hub=hub(name))
                assert found.simulator == f"{served.address} ({name})"
                assert [upstream.address for upstream in found.upstreams] == [address]
                assert found.upstreams[0].batches >= 4
                assert found.agents[0].driver.startswith(f"relay drive {address}")
                shown = run_program("status", "--hub", hub(name))
                assert shown.returncode == 0
                assert f"({name}): joined" in shown.stdout
            assert daemon.end(signal.SIGTERM) == 0
            assert not daemon.lines("several upstreams drive agents of one simulator")
            for event in ("joined", "attached", "episode", "detached", "left"):
                assert {line["simulator"] for line in daemon.lines(event)} == {"left", "right"}, event
            ended = [line["reason"] for line in daemon.lines("episode") if line["ended"] == "detached"]
            assert set(ended) <= {"the daemon was stopped"}
        assert not default_hub("left").exists()
        assert not default_hub("right").exists()
        assert all_free(left)
        assert all_free(right)
    assert first.wrong == second.wrong == []


def test_of_two_drivers_that_want_the_same_agent_one_has_it_and_the_other_says_why_it_waits(
    tmp_path: Path,
) -> None:
    learners = TinyLearner(seed=1), TinyLearner(seed=2)
    with (
        UdpSimulator(world(), port=0) as served,
        learning(learners[0]) as one,
        learning(learners[1]) as two,
    ):
        file = written(
            tmp_path, simulator("only", served.address), rllink(one, '["only"]'), rllink(two, '["only"]')
        )
        with Daemon(None, "--config", file, directory=tmp_path, hub=hub("only")) as daemon:
            until(lambda: any(len(learner.batches) >= 5 for learner in learners))
            until(lambda: daemon.lines("the driver waits for its agents"))
            driver = daemon.status(hub=hub("only")).agents[0].driver
            (line,) = daemon.lines("the driver waits for its agents")
            assert driver in line["reason"]
            assert "--rllink-agents" in line["hint"]
            learns = one if one in driver else two
            assert learns in driver
            upstreams = {each.address: each for each in daemon.status(hub=hub("only")).upstreams}
            assert upstreams[learns].batches >= 4
            (waits,) = set(upstreams) - {learns}
            assert upstreams[waits].batches == 0
            assert not daemon.lines("the driver's episodes are cut")
            (shared,) = daemon.lines("several upstreams drive agents of one simulator")
            assert (shared["simulator"], shared["upstreams"]) == ("only", [one, two])
            assert daemon.end(signal.SIGTERM) == 0
    assert learners[0].wrong == learners[1].wrong == []


def test_two_simulators_feed_one_upstream_and_one_is_killed_and_comes_back(tmp_path: Path) -> None:
    learner = TinyLearner()
    port = free_port()
    with UdpSimulator(world(), port=0) as steady, learning(learner) as address:
        file = written(
            tmp_path,
            simulator("steady", steady.address),
            simulator("mortal", f"127.0.0.1:{port}"),
            rllink(address, '["steady", "mortal"]') + 'seed = 5\nbatch_mode = "complete_episodes"\n',
        )
        with Daemon(None, "--config", file, directory=tmp_path, hub=hub("steady")) as daemon:
            # The other one is not there yet, and nobody waits for it.
            enough(learner, 3)
            for _ in range(2):
                with UdpSimulator(world(), port=port):
                    until(
                        lambda: [a for a in daemon.status(hub=hub("mortal")).agents if a.state == "playing"]
                    )
                    before = daemon.status(hub=hub("mortal")).steps
                    until(partial(_more_steps, daemon, before + 50))
                    enough(learner, len(learner.batches) + 3)
                until(lambda: not daemon.status(hub=hub("mortal")).ready)
                enough(learner, len(learner.batches) + 5)
            assert daemon.status(hub=hub("steady")).ready
            assert daemon.end(signal.SIGTERM) == 0
        assert all_free(steady)
    assert learner.wrong == []
    assert all(fragment.steps == 7 or fragment.truncated for batch in learner.batches for fragment in batch)


def test_an_environment_plays_in_one_simulator_while_the_other_is_absent(tmp_path: Path) -> None:
    with UdpSimulator(world(), port=0) as served:
        file = written(
            tmp_path, simulator("there", served.address), simulator("absent", f"127.0.0.1:{free_port()}")
        )
        with Daemon(None, "--config", file, directory=tmp_path, hub=hub("there")) as daemon:
            seat = HubClient.connect(hub("there")).attach(None)
            seat.reset(1)
            assert seat.step(np.zeros(1, np.float32)).observation.shape == (1,)
            seat.close()
            assert "waiting for the simulator" in daemon.status(hub=hub("absent")).connection
            shown = run_program("status")
            assert shown.returncode == 69
            assert hub("there") in shown.stderr
            assert daemon.end(signal.SIGINT) == 0


def test_a_simulator_that_is_given_up_does_not_end_the_others_and_the_last_one_does(tmp_path: Path) -> None:
    with UdpSimulator(world(), port=0) as served:
        file = written(
            tmp_path,
            simulator("there", served.address),
            simulator("absent", f"127.0.0.1:{free_port()}") + "wait = 0.2\n",
        )
        with Daemon(None, "--config", file, directory=tmp_path, hub=hub("there")) as daemon:
            until(lambda: daemon.lines("a simulator is given up, the others go on"))
            (line,) = daemon.lines("a simulator is given up, the others go on")
            assert line["simulator"] == "absent"
            assert daemon.status(hub=hub("absent")).connection.startswith("given up: nothing listens at")
            assert daemon.status().ready
            assert daemon.end(signal.SIGTERM) == 0
    nobody = written(
        tmp_path,
        *(simulator(name, f"127.0.0.1:{free_port()}") + "wait = 0.2\n" for name in ("one", "two")),
    )
    done = run_program("connect", "--config", nobody)
    assert done.returncode == 69
    assert "Error: nothing listens at" in done.stderr
