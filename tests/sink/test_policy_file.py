"""The policy's file, whenever it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from ospbridge.errors import ConfigurationError
from ospbridge.policy.files import read_policy
from ospbridge.rllink.dialects import JSON, MSGPACK, Dialect
from ospbridge.rllink.messages import SetState
from ospbridge.rllink.weights import ModuleWeights
from ospbridge.sink import policy_file, serving
from ospbridge.sink.policy_file import PolicyFile
from tests.rllink.recordings import body_of
from tests.sink import clients

if TYPE_CHECKING:
    from pathlib import Path

NAME = "pi.net.mlp.0.weight"


def save(path: Path, rows: int) -> None:
    clients.save(path, np.ones((rows, 2), np.float32))


def rows(policy: PolicyFile) -> int:
    weights = policy.weights(0)
    assert isinstance(weights, ModuleWeights)
    return len(weights.arrays[NAME])


def test_a_file_that_changes_while_it_is_first_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "policy.npz"
    save(path, 3)

    def read_and_overtaken(path: Path) -> Any:
        content = read_policy(path)
        save(path, 5)
        return content

    with monkeypatch.context() as patch:
        patch.setattr(policy_file, "read_policy", read_and_overtaken)
        policy = PolicyFile(path)
    assert rows(policy) == 3
    assert policy.refresh()
    assert rows(policy) == 5
    assert not policy.refresh()


def test_a_file_that_was_away_for_a_while_is_no_trouble_any_more(tmp_path: Path) -> None:
    path, aside = tmp_path / "policy.npz", tmp_path / "aside.npz"
    save(path, 3)
    policy = PolicyFile(path)
    path.rename(aside)
    assert not policy.refresh()
    assert "No such file" in policy.trouble
    aside.rename(path)
    assert policy.refresh()
    assert not policy.trouble
    assert not policy.refresh()


def test_trouble_that_lasts_is_logged_once_however_often_clients_ask(tmp_path: Path) -> None:
    path = tmp_path / "policy.npz"
    save(path, 3)
    policy = PolicyFile(path)
    path.write_bytes(b"half of it")
    with capture_logs() as logs:
        for _ in range(3):
            serving._state(policy, MSGPACK, 1)
        save(path, 5)
        for _ in range(3):
            serving._state(policy, MSGPACK, 1)
    assert [bool(log["trouble"]) for log in logs] == [True, False]


def test_a_file_that_does_not_exist_is_told_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.npz"):
        PolicyFile(tmp_path / "none.npz")


@pytest.mark.parametrize("dialect", [JSON, MSGPACK])
def test_a_message_is_written_once_until_its_number_or_the_file_changes(
    tmp_path: Path, dialect: Dialect
) -> None:
    def number(message: bytes | bytearray) -> int:
        told = dialect.decode(body_of(message))
        assert isinstance(told, SetState)
        return told.weights.seq_no

    path = tmp_path / "policy.npz"
    save(path, 3)
    policy = PolicyFile(path)
    first = policy.message(dialect, 1)
    other = MSGPACK if dialect is JSON else JSON
    assert policy.message(other, 1) != first
    assert policy.message(dialect, 1) is first
    second = policy.message(dialect, 2)
    save(path, 5)
    assert policy.refresh()
    third = policy.message(dialect, 1)
    assert [number(message) for message in (first, second, third)] == [1, 2, 2]
    assert third != second
