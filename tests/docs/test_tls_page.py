"""The page on TLS: its certificates hold, its commands work, and a renewed certificate is taken."""

from __future__ import annotations

import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from ospbridge.cli import main
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.running import Daemon
from tests.docs.test_hub_pages import HOSTS, blocks
from tests.envs.test_remote_hubs import free_place

pytestmark = [
    pytest.mark.loopback,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="the page's commands need openssl"),
]
PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "tls.md").read_text("utf-8")


def sh(commands: str, directory: Path) -> None:
    subprocess.run(["sh", "-ec", commands], cwd=directory, check=True, capture_output=True, timeout=30)


@pytest.fixture
def certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory with those of the page on other hosts, and now the current one."""
    monkeypatch.chdir(tmp_path)
    *made, _, _ = blocks(HOSTS.replace("robots.example.org", "localhost"), "sh")
    for commands in made:
        sh(commands, tmp_path)
    return tmp_path


def test_a_sink_and_a_daemon_trust_each_other(certificates: Path, runtime_directory: Path) -> None:
    place = free_place()
    page = PAGE.replace("learner.example.org:5555", place.replace("127.0.0.1", "localhost"))
    page = page.replace("learner.example.org", "localhost")
    issue, sink, probe, _ = blocks(page, "sh")
    sh(issue, certificates)
    options = shlex.split(sink.replace("\\\n", ""))[1:]
    with (
        subprocess.Popen([sys.executable, "-m", "ospbridge", *options], stdout=subprocess.PIPE) as process,
        UdpSimulator(SyntheticWorld(1, 1), port=0) as simulator,
    ):
        try:
            assert process.stdout is not None
            process.stdout.readline()
            told = CliRunner().invoke(main, shlex.split(probe.replace("\\\n", ""))[1:])
            assert "with TLS" in told.stdout, told.output
            (text,) = blocks(page, "toml")
            Path("connect.toml").write_text(text.replace("127.0.0.1:45454", str(simulator.address)))
            with Daemon(None, "--config", "connect.toml", directory=certificates) as daemon:
                deadline = time.monotonic() + 20
                while not daemon.lines("upstream connected"):
                    assert time.monotonic() < deadline, daemon.log.read_text()
                    time.sleep(0.05)
        finally:
            process.kill()


def shown(place: str) -> str:
    """The certificate that the daemon shows, as PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations("ca.pem")
    context.load_cert_chain("trainer.pem", "trainer.key")
    host, _, port = place.rpartition(":")
    with (
        socket.create_connection((host, int(port)), 10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as sock,
    ):
        der = sock.getpeercert(binary_form=True)
    assert der is not None
    return ssl.DER_cert_to_PEM_cert(der)


def test_a_renewed_certificate_is_shown_once_the_daemon_is_told(
    certificates: Path, runtime_directory: Path
) -> None:
    place = free_place()
    files = ("--tls-cert", "daemon.pem", "--tls-key", "daemon.key", "--tls-ca", "ca.pem")
    *_, renew = blocks(PAGE, "sh")
    with (
        UdpSimulator(SyntheticWorld(1, 1), port=0) as simulator,
        Daemon(simulator.address, "--listen", place, *files, directory=certificates) as daemon,
    ):
        before = shown(place)
        sh(renew, certificates)
        assert shown(place) == before
        daemon.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 20
        while not daemon.lines("configuration read again"):
            assert time.monotonic() < deadline, daemon.log.read_text()
            time.sleep(0.05)
        assert daemon.lines("the old certificates stay") == []
        assert shown(place) != before
