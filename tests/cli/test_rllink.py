"""`ospbridge rllink probe`: what it prints, and how it ends."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import trio

from ospbridge.rllink.messages import SetConfig
from ospbridge.sink.policy_file import PolicyFile
from ospbridge.sink.serving import Sink
from tests.cli.programs import invoke
from tests.in_threads import in_thread
from tests.policy.weights import module_weights

pytestmark = pytest.mark.loopback


@contextmanager
def served(sink: Sink, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The address of a sink that runs in a thread, since the command runs a loop of its own."""

    @asynccontextmanager
    async def serving() -> AsyncIterator[str]:
        (listener,) = listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sink.serve, listeners, tls)
            yield f"127.0.0.1:{listener.socket.getsockname()[1]}"
            nursery.cancel_scope.cancel()

    with in_thread(serving()) as address:
        yield address


@pytest.fixture
def policy(tmp_path: Path) -> PolicyFile:
    np.savez(tmp_path / "p.npz", **module_weights(5, (8, 6), 3))  # type: ignore[arg-type]  # no options are meant
    return PolicyFile(tmp_path / "p.npz")


run = partial(invoke, "rllink", "probe")


def test_it_prints_a_table_of_what_was_found(policy: PolicyFile) -> None:
    with served(Sink(None, policy, env_steps=100)) as address:
        lines = dict(line.strip().split("  ", 1) for line in run(address).stdout.splitlines()[1:])
    told = {what: found.strip() for what, found in lines.items()}
    assert told["server"] == f"{address}, without TLS"
    assert told["dialect"] == "msgpack, as Ray 2.49 and later"
    assert told["name"].startswith("ospbridge sink")
    assert told["batch"] == "100 steps"
    assert told["observations"] == "5 numbers"
    assert told["actions"] == "one of 3 choices, drawn from 3 numbers"
    assert told["layers"] == "8 6 3"
    assert told["pi.net.mlp.0.weight"] == "[3, 6]"


def test_json_is_one_object_with_all_of_it(policy: PolicyFile) -> None:
    with served(Sink(None, policy, env_steps=100)) as address:
        found = json.loads(run(address, "--json", "--dialect", "json").stdout)
    assert (found["address"], found["tls"], found["dialect"]) == (address, False, "json")
    assert found["config"] == {
        "env_steps_per_sample": 100,
        "force_on_policy": False,
        "pickle_bytes": None,
        "read": None,
    }
    assert found["weights"]["weights_seq_no"] == 0
    assert found["weights"]["layers"] == [8, 6, 3]
    assert ["pi.net.mlp.0.weight", [3, 6]] in found["weights"]["arrays"]
    assert found["troubles"] == []


def test_what_a_server_keeps_back_is_a_note_and_no_failure() -> None:
    with served(Sink(None, None, env_steps=100)) as address:
        result = run(address)
    assert "weights" not in result.stdout
    assert result.stderr.startswith("not told: GET_STATE: ")


def test_settings_in_a_pickle_are_shown_unless_it_is_not_to_be_read(
    policy: PolicyFile, pickled: bytes
) -> None:
    sink = Sink(None, policy, env_steps=100)
    sink._config = SetConfig(pickled=pickled)
    with served(sink) as address:
        unread = run(address, "--no-read-pickle").stdout
        shown = run(address).stdout
        found = json.loads(run(address, "--json").stdout)
    assert "fcnet_activation" not in unread
    for name, value in (
        ("module", "ray.rllib.algorithms.ppo.ppo.PPOConfig"),
        ("connectors", "none"),
        ("fcnet_activation", "tanh"),
    ):
        assert re.search(rf"  {name} +{value}$", shown, re.MULTILINE)
    assert found["config"]["read"]["module"] == "ray.rllib.algorithms.ppo.ppo.PPOConfig"
    assert found["config"]["read"]["connectors"] == []
    assert found["config"]["pickle_bytes"] == len(pickled)
    assert found["config"]["read"]["action_space"] is not None


@pytest.fixture
def pickled() -> bytes:
    from ospbridge.rllink.dialects import MSGPACK
    from tests.rllink.recordings import body_of, handshake

    message = MSGPACK.decode(body_of(handshake()["s2c SET_CONFIG"]))
    assert isinstance(message, SetConfig)
    assert message.pickled is not None
    return message.pickled
