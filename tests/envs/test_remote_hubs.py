"""TLS options wherever an environment of several, or a command, takes the address of a hub."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from click.testing import CliRunner

from ospbridge.cli import main
from ospbridge.envs.rllib import env_creator
from ospbridge.errors import ConfigurationError, UsageError
from ospbridge.transport.tls import TlsFiles
from tests.daemon.certificates import Authority
from tests.envs.daemons import hosted
from tests.envs.vectors import assert_same, cart_poles, fleet, trajectory

pytestmark = pytest.mark.loopback


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def free_place() -> str:
    """HOST:PORT where nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{sock.getsockname()[1]}"


@contextmanager
def listening(simulator: str, directory: Path, files: TlsFiles) -> Iterator[str]:
    """``tls://...`` of a daemon."""
    place = free_place()
    shown = ("--tls-cert", str(files.cert), "--tls-key", str(files.key), "--tls-ca", str(files.ca))
    with hosted(simulator, directory / "hub", "--listen", place, *shown):
        yield f"tls://{place}"


def options(files: TlsFiles) -> dict[str, Any]:
    return {"tls_cert": str(files.cert), "tls_key": str(files.key), "tls_ca": str(files.ca)}


def test_a_vector_environment_plays_over_tls_beside_a_hub_of_this_host(
    authority: Authority, runtime_directory: Path
) -> None:
    mine = options(authority.issue("environment"))
    with cart_poles(2) as addresses:
        direct = trajectory(fleet(addresses, 2), 30)
        near = runtime_directory / "near"
        with (
            listening(addresses[0], runtime_directory, authority.issue("daemon")) as bridge,
            hosted(addresses[1], near),
        ):
            envs = gymnasium.make_vec(
                "ospbridge/Agent-v0", num_envs=2, bridge=[bridge, f"unix:{near}"], **mine
            )
            assert_same(trajectory(envs, 30), direct)


def test_files_that_fit_nothing_are_told(authority: Authority, runtime_directory: Path) -> None:
    pytest.importorskip("pettingzoo")
    from ospbridge.envs.parallel import parallel_env

    mine = options(authority.issue("environment"))
    makers: list[Any] = [
        lambda **given: gymnasium.make("ospbridge/Agent-v0", **given),
        lambda **given: gymnasium.make_vec("ospbridge/Agent-v0", num_envs=1, **given),
        parallel_env,
    ]
    for make in makers:
        with pytest.raises(UsageError, match="OSP knows no TLS"):
            make(simulator="127.0.0.1:1", **mine)
        with pytest.raises(ConfigurationError, match="three files"):
            make(bridge="tls://127.0.0.1:1", tls_ca=mine["tls_ca"])
        with pytest.raises(ConfigurationError, match="three files"):
            make(bridge="tls://127.0.0.1:1")
        with pytest.raises(ConfigurationError, match="on this host"):
            make(bridge=f"unix:{runtime_directory / 'hub'}", **mine)
    with pytest.raises(ConfigurationError, match="is not a hub's address") as caught:
        gymnasium.make("ospbridge/Agent-v0", bridge="tcp://127.0.0.1:1")
    assert (
        caught.value.hint == "write unix:PATH for a daemon on this host, tls://HOST:PORT for one on another"
    )
    with pytest.raises(
        ConfigurationError, match="is not a hub's address: the port 0 is not between"
    ) as caught:
        gymnasium.make("ospbridge/Agent-v0", bridge="tls://127.0.0.1:0", **mine)
    assert caught.value.hint == "write tls://HOST:PORT, for instance tls://trainer:45460"
    with pytest.raises(ConfigurationError, match="is not a hub's address"):
        env_creator({"bridges": ["tls://nowhere"], **mine})
    done = CliRunner().invoke(main, ["status", "--tls-ca", mine["tls_ca"]])
    assert done.exit_code == 78
    assert "three files" in done.stderr
