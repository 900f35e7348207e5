"""Errors as a traceback shows them."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ospbridge.envs.noticing import tell, tell_of_doubt
from ospbridge.errors import (
    AgentNotFound,
    BarrierStuck,
    OspBridgeError,
    RemoteProtocolError,
    ScenarioInvalid,
    StepUncertain,
)
from ospbridge.interface import Feedback
from ospbridge.osp.client.notices import Notice

if TYPE_CHECKING:
    from collections.abc import Callable

STEERS = "a\x1b]0;b\x07\u202e\x9b31m"
SHOWN = r"a\x1b]0;b\x07\u202e\x9b31m"


def test_a_name_in_an_error_cannot_steer_the_terminal_that_shows_its_traceback() -> None:
    error = AgentNotFound(f"no agent {STEERS}", hint=f"there is {STEERS}, ümlaut")
    assert str(error) == f"no agent {SHOWN} (there is {SHOWN}, ümlaut)"
    assert error.message == f"no agent {STEERS}", "programs get what there is"


def test_each_mistake_of_several_has_its_line() -> None:
    error = ScenarioInvalid(
        "2 mistakes", hint="mend them", mistakes=["one", "another"], rows=[STEERS, "another"]
    )
    assert str(error).splitlines() == ["2 mistakes:", f"  {SHOWN}", "  another", "(mend them)"]


@pytest.mark.parametrize(
    "warn",
    [
        lambda text: tell([Notice(text)]),
        lambda text: tell_of_doubt([Feedback(np.zeros(1, np.float32), reason=text)]),
    ],
    ids=["a remark", "a doubt"],
)
def test_a_name_in_a_warning_cannot_either(warn: Callable[[str], object]) -> None:
    with pytest.warns(UserWarning, match="no agent") as told:
        warn(f"no agent {STEERS}")
    (shown,) = told
    assert SHOWN in str(shown.message)


@pytest.mark.parametrize(
    "error",
    [
        RemoteProtocolError("expected a count", data=b"\x5b\xff", offset=1, hint="look"),
        BarrierStuck("no step", who="agent2 must vote", agents=["agent2"]),
        StepUncertain("in doubt", by_network=True),
        ScenarioInvalid("2 mistakes", mistakes=["one", "another"], rows=["1: one", "2: another"]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_another_process_comes_as_it_was(error: OspBridgeError) -> None:
    """As environments that gymnasium runs in processes of their own raise it."""
    come = pickle.loads(pickle.dumps(error))
    assert type(come) is type(error)
    assert str(come) == str(error)
    assert come.args == error.args
    assert vars(come) == vars(error)
