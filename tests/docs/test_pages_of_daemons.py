"""Programs and commands of how-to pages that need a daemon: they run as written, with other addresses."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from ospbridge.errors import ConfigurationError
from ospbridge.observe.runtime import default_hub
from ospbridge.policy.distributions import distribution
from ospbridge.record.reading import read_recording
from ospbridge.simulator.arena import ArenaWorld
from ospbridge.simulator.hosting import world_of
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.task.loading import load
from tests.cli.programs import invoke, started, until
from tests.daemon.running import Daemon, free_port
from tests.docs.pages import blocks, commands, page, programs, run
from tests.envs.daemons import connected
from tests.envs.vectors import cart_poles
from tests.policy.weights import module_weights

pytestmark = pytest.mark.loopback
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="the page's commands need openssl")


@contextmanager
def in_background(call: Any) -> Iterator[None]:
    """Again and again, until the block has ended."""
    stop = threading.Event()

    def drive() -> None:
        while not stop.is_set():
            call()

    driver = threading.Thread(target=drive)
    driver.start()
    try:
        yield
    finally:
        stop.set()
        driver.join()


def test_an_agent_of_a_daemon_is_driven(capsys: pytest.CaptureFixture[str]) -> None:
    """And observed meanwhile."""
    (observer,) = blocks(page("how-to/observe"), "python")
    with UdpSimulator(ArenaWorld(1), port=0) as simulator, connected(simulator.address, default_hub()):
        run(programs(page("how-to/program"))["attach.py"])
        *_, reward, agent = capsys.readouterr().out.splitlines()
        assert re.fullmatch(r"reward -?\d+\.\d", reward)
        assert agent.startswith("robot1 playing")

        env = gymnasium.make("ospbridge/Agent-v0", agent="robot1")

        def play() -> None:
            env.reset(seed=1)
            for _ in range(5):
                env.step(np.ones(2, np.float32))

        with in_background(play):
            run(observer.replace('"cart"', '"robot1"'))
        env.close()
    kinds = re.findall(r"^([A-Z]+) ", capsys.readouterr().out, re.MULTILINE)
    assert len(kinds) == 100
    assert set(kinds) >= {"RESET", "STEP"}


# --- several simulators ----------------------------------------------------------------------------------------------


def test_one_daemon_has_several_simulators_and_an_environment_attaches_to_one(
    tmp_path: Path, runtime_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = page("how-to/several-simulators").replace("unix:/tmp/", f"unix:{runtime_directory}/")
    several, one_server = blocks(text, "toml")
    rllib, environment = blocks(text, "python")

    # Each env runner gets its share of the train batch.
    servers = tomllib.loads(several)["rllink"]
    (runners,), (batch,), (port,) = (
        re.findall(rf"{name}(\d+)", rllib)
        for name in ("num_env_runners=", "train_batch_size_per_learner=", '"port": ')
    )
    assert len(servers) == int(runners)
    assert {server["env_steps"] for server in servers} == {int(batch) // int(runners)}
    ports = [int(server["address"].rpartition(":")[2]) for server in servers]
    assert ports == [int(port) + number for number in range(1, int(runners) + 1)]

    *_, show, connect, status = commands(text)
    simulators = several.partition("[[rllink]]")[0]
    Path("several.toml").write_text(simulators + one_server)
    (server,) = tomllib.loads(invoke(*show).stdout)["rllink"]
    assert "simulators" not in server

    with cart_poles(2) as (left, right):
        # Nobody learns here, so that the agents are free.
        there = simulators.replace("127.0.0.1:45454", left).replace("127.0.0.1:45455", right)
        Path("several.toml").write_text(there)
        with Daemon(None, *connect[1:], directory=tmp_path, hub=status[-1]):
            env: gymnasium.Env[Any, Any] = run(environment)["env"]
            env.reset(seed=1)
            env.step(1)
            told = invoke(*status).stdout
            assert f"{left} (left): joined" in told
            assert "playing by" in told
            env.close()


# --- other hosts and TLS ---------------------------------------------------------------------------------------------


def sh(script: str) -> None:
    subprocess.run(["sh", "-ec", script], check=True, capture_output=True, timeout=60)


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The page on other hosts, as on this one; its certificates are in the directory that is now the current one."""
    monkeypatch.chdir(tmp_path)
    text = page("how-to/other-hosts").replace("robots.example.org", "localhost")
    *certificates, _, _ = blocks(text, "sh")
    for script in certificates:
        sh(script)
    return text


@needs_openssl
def test_environments_of_other_hosts_attach_and_a_renewed_certificate_is_taken(
    hosts: str, tmp_path: Path
) -> None:
    place = f"127.0.0.1:{free_port(socket.SOCK_STREAM)}"
    text = hosts.replace("--listen localhost:45460", f"--listen {place}")
    text = text.replace(":45460", ":" + place.rpartition(":")[2])
    (verify,) = re.findall(r"`(openssl verify [^`]+)`", text)
    sh(verify)
    connect, status = commands(text)[-2:]
    *_, renew = blocks(page("how-to/tls"), "sh")
    with (
        cart_poles(1) as (address,),
        Daemon(address, *connect[connect.index("--listen") :], directory=tmp_path) as daemon,
    ):
        (program,) = blocks(text, "python")
        run(program.replace('agent="cart"', 'agent="cart*"'), _45454=address)
        assert "2 steps, 1 reset, 0 rebuilds" in invoke(*status).stdout
        files: dict[str, Any] = {"tls_cert": "trainer.pem", "tls_key": "trainer.key", "tls_ca": "ca.pem"}
        bridge = status[status.index("--hub") + 1].replace("localhost", "127.0.0.1")
        with pytest.raises(ConfigurationError) as caught:
            gymnasium.make("ospbridge/Agent-v0", bridge=bridge, **files)
        assert "IP address mismatch" in caught.value.message
        assert "IP address mismatch" in text

        before = shown(place)
        sh(renew)
        assert shown(place) == before
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: daemon.lines("configuration read again"))
        assert daemon.lines("the old certificates stay") == []
        assert (renewed := shown(place)) != before
        Path("daemon.pem").write_text("none")
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: daemon.lines("the old certificates stay"))
        assert shown(place) == renewed


def shown(place: str) -> str:
    """The certificate that the daemon shows, as PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations("ca.pem")
    context.load_cert_chain("trainer.pem", "trainer.key")
    host, _, port = place.rpartition(":")
    with (
        socket.create_connection((host, int(port)), 30) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as sock,
    ):
        der = sock.getpeercert(binary_form=True)
    assert der is not None
    return ssl.DER_cert_to_PEM_cert(der)


@needs_openssl
def test_a_sink_and_a_daemon_trust_each_other(hosts: str, tmp_path: Path) -> None:
    place = f"127.0.0.1:{free_port(socket.SOCK_STREAM)}"
    text = page("how-to/tls").replace("learner.example.org:5555", place.replace("127.0.0.1", "localhost"))
    text = text.replace("learner.example.org", "localhost")
    issue, *_ = blocks(text, "sh")
    sh(issue)
    sink, probe = commands(text)[:2]
    with started(*sink), UdpSimulator(SyntheticWorld(1, 1), port=0) as simulator:
        assert "with TLS" in invoke(*probe).stdout
        (file,) = blocks(text, "toml")
        Path("connect.toml").write_text(file.replace("127.0.0.1:45454", str(simulator.address)))
        with Daemon(None, "--config", "connect.toml", directory=tmp_path) as daemon:
            until(lambda: daemon.lines("upstream connected"))


# --- observed environments -------------------------------------------------------------------------------------------


def test_observed_environments_feed_the_sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("policy.npz", **module_weights(4, outputs=2))  # type: ignore[arg-type]  # no options are meant
    text = page("how-to/observe-rllink")
    record, simulate, observe = commands(text)[:3]
    assert record[:3] == ["sink", "--listen", "127.0.0.1:5555"]
    assert simulate[0] == "sim"
    assert "`--scenario pendulum`" in text
    assert "`ospbridge sim pendulum`" in text
    discrete, continuous, _, of_a_file = blocks(text, "python")
    into = Path(record[record.index("--record") + 1])
    with started("sink", "--listen", "127.0.0.1:0", *record[3:]) as (_, server):
        wanted = 0
        for world, played in (("cartpole", [(discrete, 3), (of_a_file, 5)]), ("pendulum", [(continuous, 1)])):
            options = [{"127.0.0.1:5555": server, "cartpole": world}.get(word, word) for word in observe[1:]]
            with (
                UdpSimulator(world_of(load(world)), port=0) as simulator,
                connected(simulator.address, default_hub(), *options),
            ):
                for program, episodes in played:
                    run(program)
                    wanted += episodes
                    until(lambda wanted=wanted: len(list(into.glob("*.npz"))) >= wanted)  # type: ignore[misc]
    found = list(read_recording(into))
    assert len(found) == wanted
    for episode in found:
        assert episode.action_logp is not None
        assert episode.action_dist_inputs is not None
        drawn = episode.drawn_actions if episode.drawn_actions is not None else episode.actions
        again = distribution(episode.action_space).logp(episode.action_dist_inputs, drawn)
        np.testing.assert_allclose(again, episode.action_logp, atol=1e-5)
