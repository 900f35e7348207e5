"""``ospbridge connect --rllink`` with simulators, learners and environments beside it, all on real sockets."""

from __future__ import annotations

import json
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from ospbridge.cli import main
from ospbridge.envs.hub import AgentHandle
from ospbridge.errors import AgentTaken
from ospbridge.observe.runtime import default_hub
from ospbridge.session.hub_client import HubClient
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.relay.learner import TinyLearner, drive, enough, learning
from tests.daemon.running import Daemon, all_free, free_port, until

pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("runtime_directory")]
SHORT = 'name = "short"\n[[agent]]\n[agent.episode]\nmax_steps = 7\n'


def short(directory: Path) -> list[str]:
    """One agent is driven, in a scenario whose episodes end after seven steps."""
    scenario = directory / "short.toml"
    scenario.write_text(SHORT)
    return ["--rllink-agents", "agent1", "--scenario", str(scenario)]


def shown(*options: str) -> str:
    """What ``ospbridge status`` prints."""
    result = CliRunner().invoke(main, ["status", *options])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_it_drives_beside_an_environment_tells_its_status_and_leaves_in_order(tmp_path: Path) -> None:
    learner = TinyLearner()
    with (
        UdpSimulator(SyntheticWorld(1, 1, agents=2), port=0) as simulator,
        learning(learner) as address,
        Daemon(simulator.address, *drive(address, *short(tmp_path)), directory=tmp_path) as daemon,
    ):
        enough(learner, 5)
        found = daemon.status()
        (upstream,) = found.upstreams
        assert (upstream.address, upstream.mode, upstream.dialect) == (address, "drive", "msgpack")
        assert upstream.trouble == ""
        assert upstream.batches >= 4
        assert upstream.steps >= 80
        assert upstream.weights_seq_no is not None
        agent = {each.name: each for each in found.agents}["agent1"]
        assert agent.driver.startswith(f"relay drive {address}")
        assert f"upstream    drive {address}: connected (msgpack), weights " in shown()
        assert json.loads(shown("--json"))["upstreams"][0]["dialect"] == "msgpack"
        with pytest.raises(AgentTaken, match="relay drive"):
            AgentHandle.attach(HubClient.connect(), "agent1")
        seat = AgentHandle.attach(HubClient.connect(), "agent2")
        for seed in (1, 2):
            seat.reset(seed)
            told = [seat.step(np.zeros(1, np.float32)) for _ in range(7)]
            assert [each.truncated for each in told] == [False] * 6 + [True]
            assert told[-1].reason == ""
        seat.close()
        enough(learner, len(learner.batches) + 1)
        assert daemon.end(signal.SIGINT) == 0
        assert all_free(simulator)
    assert learner.wrong == []


def test_a_client_whose_reset_waits_for_weights_is_told_and_loses_no_patience(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = TinyLearner()
    learner.thinks = 2.5
    options = [*short(tmp_path), "--quorum", "2", "--rllink-batch-mode", "complete_episodes"]
    # A client has two seconds of patience then, of which steps and resets of this simulator take a fraction.
    monkeypatch.setattr("ospbridge.envs.hub.answer_limits", lambda _: (30.0, 2.0))
    with (
        UdpSimulator(SyntheticWorld(1, 1, agents=2), port=0) as simulator,
        learning(learner) as address,
        Daemon(simulator.address, *drive(address, *options), directory=tmp_path) as daemon,
    ):
        daemon.wait_until("waiting for reset", "agent1")
        seat = AgentHandle.attach(HubClient.connect(), "agent2")
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


# --- several simulators ------------------------------------------------------------------------------------------


def hub(name: str) -> str:
    return f"unix:{default_hub(name)}"


def simulator(name: str, address: object) -> str:
    return f'[[simulator]]\nname = "{name}"\naddress = "{address}"\nscenario = "short.toml"\n'


def rllink(address: str, simulators: str) -> str:
    return f'[[rllink]]\naddress = "{address}"\nsimulators = {simulators}\nenv_steps = 20\n'


def written(directory: Path, *tables: str) -> str:
    """A configuration whose scenario ends episodes after seven steps."""
    (directory / "short.toml").write_text(SHORT)
    file = directory / "osp.toml"
    file.write_text("".join(tables))
    return str(file)


def test_of_two_upstreams_that_want_one_agent_one_learns_and_the_other_says_why_it_waits(
    tmp_path: Path,
) -> None:
    learners = [TinyLearner(seed=seed) for seed in range(2)]
    with (
        UdpSimulator(SyntheticWorld(1, 1), port=0) as left,
        learning(learners[0]) as one,
        learning(learners[1]) as two,
    ):
        file = written(
            tmp_path, simulator("left", left.address), rllink(one, '["left"]'), rllink(two, '["left"]')
        )
        with Daemon(None, "--config", file, directory=tmp_path, hub=hub("left")) as daemon:
            until(lambda: any(len(learner.batches) >= 5 for learner in learners))
            until(lambda: daemon.lines("the driver waits for its agents"))
            found = daemon.status(hub=hub("left"))
            (line,) = daemon.lines("the driver waits for its agents")
            assert found.agents[0].driver in line["reason"]
            assert "--rllink-agents" in line["hint"]
            assert sorted(each.batches > 0 for each in found.upstreams) == [False, True]
            (shared,) = daemon.lines("several upstreams drive agents of one simulator")
            assert (shared["simulator"], shared["upstreams"]) == ("left", [one, two])
            assert daemon.end(signal.SIGTERM) == 0
    assert [learner.wrong for learner in learners] == [[]] * 2


def _more_steps(daemon: Daemon, than: int) -> bool:
    return daemon.status(hub=hub("mortal")).steps > than


def test_two_simulators_feed_one_upstream_and_one_is_killed_and_comes_back(tmp_path: Path) -> None:
    learner = TinyLearner()
    port = free_port()
    with UdpSimulator(SyntheticWorld(1, 1), port=0) as steady, learning(learner) as address:
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
                with UdpSimulator(SyntheticWorld(1, 1), port=port):
                    until(
                        lambda: [a for a in daemon.status(hub=hub("mortal")).agents if a.state == "playing"]
                    )
                    until(partial(_more_steps, daemon, daemon.status(hub=hub("mortal")).steps + 50))
                    enough(learner, len(learner.batches) + 3)
                until(lambda: not daemon.status(hub=hub("mortal")).ready)
                enough(learner, len(learner.batches) + 5)
            assert daemon.status(hub=hub("steady")).ready
            assert daemon.end(signal.SIGTERM) == 0
    assert learner.wrong == []
    assert all(fragment.steps == 7 or fragment.truncated for batch in learner.batches for fragment in batch)


def test_a_simulator_that_is_given_up_does_not_end_the_others_and_the_last_one_does(tmp_path: Path) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    with UdpSimulator(SyntheticWorld(1, 1), port=0) as served:
        tables = simulator("there", served.address), simulator("absent", nobody) + "wait = 0.2\n"
        file = written(tmp_path, *tables)
        with Daemon(None, "--config", file, directory=tmp_path, hub=hub("there")) as daemon:
            until(lambda: daemon.lines("a simulator is given up, the others go on"))
            (line,) = daemon.lines("a simulator is given up, the others go on")
            assert line["simulator"] == "absent"
            assert daemon.status(hub=hub("absent")).connection.startswith("given up: nothing listens at")
            assert daemon.status().ready
            assert daemon.end(signal.SIGTERM) == 0
    done = CliRunner().invoke(
        main, ["connect", "--config", written(tmp_path, simulator("absent", nobody) + "wait = 0.2\n")]
    )
    assert done.exit_code == 69
    assert "Error: nothing listens at" in done.stderr


# --- what cannot work --------------------------------------------------------------------------------------------

TO = ("--rllink", "127.0.0.1:5555")
OBSERVE = (*TO, "--rllink-mode", "observe")


@pytest.mark.parametrize(
    "options, code, why",
    [
        (["--rllink-mode", "drive"], 2, "--rllink-mode was given, but no server"),
        (["--rllink", "nowhere:port"], 78, "is not a server's address"),
        (["--rllink", "192.0.2.1:5555"], 78, "is not on this host"),
        ([*TO, "--rllink-activation", "tan"], 78, "tan"),
        ([*TO, "--rllink-head-activation", "tan"], 78, "tan"),
        (
            [*OBSERVE, "--no-rllink-normalize-actions"],
            2,
            "--rllink-normalize-actions means nothing in the mode",
        ),
        ([*TO, "--rllink-tls-ca", "ca.pem"], 78, "an address without TLS"),
        (["--rllink", f"tls://{TO[1]}", "--rllink-tls-ca", "missing.pem"], 78, "cannot read missing.pem"),
        ([*TO, "--rllink-dialect", "xml"], 2, "xml"),
        ([*OBSERVE, "--rllink-greedy"], 2, "--rllink-greedy means nothing in the mode observe"),
        ([*OBSERVE, "--rllink-spool-limit", "much"], 2, "'much' is no size"),
        ([*OBSERVE, "--rllink-spool", "/proc/none/spool"], 78, "the spool /proc/none/spool cannot be opened"),
        ([*OBSERVE, "--rllink-spool-full", "wait"], 2, "wait"),
    ],
)
def test_what_cannot_work_is_told_at_once(options: list[str], code: int, why: str) -> None:
    done = CliRunner().invoke(main, ["connect", "--simulator", "127.0.0.1:1", *options])
    assert done.exit_code == code, done.output
    assert why in done.stderr
