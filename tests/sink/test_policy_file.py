"""The policy's file, whenever it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.errors import ConfigurationError
from ospbridge.policy.files import read_policy
from ospbridge.rllink.weights import ModuleWeights
from ospbridge.sink import policy_file
from ospbridge.sink.policy_file import PolicyFile

if TYPE_CHECKING:
    from pathlib import Path

NAME = "pi.net.mlp.0.weight"


def save(path: Path, rows: int) -> None:
    arrays: dict[str, Any] = {NAME: np.ones((rows, 2), np.float32)}
    np.savez(path, **arrays)


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


def test_a_file_that_does_not_exist_is_told_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.npz"):
        PolicyFile(tmp_path / "none.npz")
