"""The vector environment through daemons: the same as over sessions of its own, one message for many agents."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from click.testing import CliRunner
from gymnasium.vector import AutoresetMode, VectorEnv

from ospbridge.cli import main
from ospbridge.envs.backend import DrivenAgent, FeedbackRows
from ospbridge.envs.hub import HubRows
from ospbridge.envs.rllib import env_creator
from ospbridge.errors import ConfigurationError, HubNotFound, RemoteProtocolError, UsageError
from ospbridge.hub.framing import HEAD, encode
from ospbridge.hub.replies import Numbers
from ospbridge.interface import AgentInterface, BoxSpace, InterfaceValue
from ospbridge.session.hub_client import HubClient
from ospbridge.transport.tls import TlsFiles
from tests.daemon.certificates import Authority
from tests.envs.daemons import hosted
from tests.envs.vectors import assert_same, cart_poles, fleet, trajectory

pytestmark = pytest.mark.loopback


@pytest.fixture
def hubs(runtime_directory: Path) -> list[Path]:
    """Where the daemons of this test listen."""
    return [runtime_directory / "one", runtime_directory / "two"]


def attached(hubs: list[Path], count: int, **options: Any) -> VectorEnv[Any, Any, Any]:
    bridge = [f"unix:{hub}" for hub in hubs]
    return gymnasium.make_vec("ospbridge/Agent-v0", num_envs=count, bridge=bridge, **options)


@pytest.mark.parametrize("policy", ["all", "any"])
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda m: m.value)
def test_two_hubs_return_what_the_two_simulators_return(
    mode: AutoresetMode, policy: str, hubs: list[Path]
) -> None:
    with cart_poles(2, copies=2) as addresses:
        direct = trajectory(fleet(addresses, 4, autoreset_mode=mode), 50)
        with (
            hosted(addresses[0], hubs[0], "--reset-policy", policy),
            hosted(addresses[1], hubs[1], "--reset-policy", policy),
        ):
            through = trajectory(attached(hubs, 4, autoreset_mode=mode), 50)
    without_reasons(direct)
    without_reasons(through)
    assert_same(through, direct)


@pytest.mark.parametrize("worlds", [1, 2])
@pytest.mark.parametrize("way", ["direct", "hub"])
def test_what_a_step_returned_is_the_users_own(hubs: list[Path], way: str, worlds: int) -> None:
    with ExitStack() as stack:
        addresses = stack.enter_context(cart_poles(worlds, copies=3))
        if way == "hub":
            for address, hub in zip(addresses, hubs, strict=False):
                stack.enter_context(hosted(address, hub))
        count = 3 * worlds
        envs: Any = fleet(addresses, count) if way == "direct" else attached(hubs[:worlds], count)
        envs.reset(seed=1)
        actions = np.zeros((count, 1), np.float32)
        told = [envs.step(actions) for _ in range(4)]
        # By then steps tell nothing but numbers, and come as rows.
        assert all(type(group.backend._last) is FeedbackRows for group in envs._fleet.groups)
        kept = deepcopy(told)
        for observations, rewards, *_, infos in told[2:]:
            observations[:] = rewards[:] = 0.0
            infos["osp_seed"][:] = 0
            infos["infos"]["/episode/reward"][:] = 0.0
        assert_same(deepcopy(told[:2]), kept[:2])
        observations, rewards, *_, infos = envs.step(actions)
        assert observations.any()
        assert rewards.tolist() == [1.0] * count
        assert infos["osp_seed"].tolist() == [1] * 3 + [4] * 3 * (worlds - 1)
        assert infos["infos"]["/episode/reward"].tolist() == [1.0] * count
        envs.close()


def without_reasons(told: Any) -> None:
    """The daemon cuts with words of its own where its policy is any."""
    for *_, info in told:
        for which in (info, info.get("final_info", {})):
            which.pop("reason", None)


@pytest.mark.parametrize("killed", [0, 1])
def test_a_daemon_that_stays_away_is_an_error_and_costs_the_others_no_step(
    killed: int, hubs: list[Path]
) -> None:
    living = hubs[1 - killed]
    with (
        cart_poles(2) as addresses,
        hosted(addresses[1 - killed], living),
        closing(HubClient.connect(f"unix:{living}")) as onlooker,
    ):
        with hosted(addresses[killed], hubs[killed]):
            envs = attached(hubs, 2, connect_timeout=0.5)
            envs.reset(seed=3)
        _, _, _, truncations, _ = envs.step(np.ones((2, 1), np.float32))
        assert truncations[killed]
        before = onlooker.status().steps
        for _ in range(2):
            with pytest.raises(HubNotFound):
                envs.step(np.ones((2, 1), np.float32))
        assert onlooker.status().steps == before
        with hosted(addresses[killed], hubs[killed]):
            _, _, _, truncations, _ = envs.step(np.ones((2, 1), np.float32))
            assert not truncations.any()
            assert onlooker.status().steps == before + 1
            envs.close()


def test_a_daemon_that_was_replaced_between_two_calls_costs_a_reset_nothing(hubs: list[Path]) -> None:
    with cart_poles(1) as addresses:
        with hosted(addresses[0], hubs[0]):
            env = attached(hubs[:1], 1)
            first, _ = env.reset(seed=3)
        with hosted(addresses[0], hubs[0]):
            again, _ = env.reset(seed=3)
            np.testing.assert_array_equal(again, first)
            assert not env.step(np.ones((1, 1), np.float32))[3].any()
            env.close()


# --- daemons of other hosts ----------------------------------------------------------------------------------------


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


# --- rows of many agents -------------------------------------------------------------------------------------------


NAMES = ["a", "bb", "c1"]


def box(size: int) -> BoxSpace:
    return BoxSpace(np.full(size, -1, np.float32), np.full(size, 1, np.float32))


def rows_of_all() -> HubRows:
    infos = tuple(InterfaceValue(info, 0, 1) for info in ("x", "y"))
    return HubRows(
        {name: DrivenAgent(AgentInterface(0, name, (), (), infos), box(4), box(2), [], []) for name in NAMES}
    )


@pytest.mark.parametrize(
    "observed, informed, rewards",
    [(5, 2, 3), (4, 1, 3), (4, 2, 2), (3, 3, 3)],
    ids=["observations", "infos", "rewards", "as many bytes"],
)
def test_numbers_of_another_size_are_told(observed: int, informed: int, rewards: int) -> None:
    frame = bytearray()
    encode(Numbers(7, bytearray(3 * 4 * observed), bytes(3 * 4 * informed), bytes(8 * rewards)), frame)
    with pytest.raises(RemoteProtocolError, match=r"of \(48, 24, 24\) bytes for 3 agents"):
        rows_of_all().read(memoryview(frame)[HEAD.size :])
