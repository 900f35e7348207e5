"""What a session is told unasked waits to be taken: nothing that ends an episode is pushed out by what does not."""

from __future__ import annotations

import numpy as np
import pytest

from ospbridge.errors import RemoteProtocolError
from ospbridge.osp.client.machine import ClientMachine
from ospbridge.osp.client.notices import KEPT, Notices, WorldReset, told_by
from ospbridge.osp.messages import StepCompleted
from ospbridge.osp.profile import DOCUMENT


def test_a_reset_by_others_outlasts_a_flood_of_anomalies() -> None:
    notices = Notices()
    notices.reset("the world was reset")
    for number in range(2 * KEPT):
        notices.anomaly(f"datagram {number} came late")
    assert len(notices) == KEPT
    assert told_by(notices).reset == "the world was reset"


def test_a_reset_and_a_remark_are_told_behind_a_flood_too() -> None:
    notices = Notices()
    for number in range(2 * KEPT):
        notices.anomaly(f"datagram {number} came late")
    for _ in range(2 * KEPT):
        notices.reset("the world was reset")
        notices.remark("seeds have no effect")
    told = told_by(notices)
    assert told.reset
    assert told.remarks == ["seeds have no effect"]
    assert sum(isinstance(notice, WorldReset) for notice in notices) == 1


def test_a_remark_is_made_once_though_it_was_taken_and_a_reset_again() -> None:
    notices = Notices()
    for number in range(3):
        notices.remark(f"it refused the seed {number}", about="seed")
        notices.reset("the world was reset")
        told = told_by(notices)
        assert told.remarks == (["it refused the seed 0"] if not number else [])
        assert told.reset
        notices.clear()


def test_remarks_that_differ_each_time_end_one_day() -> None:
    notices = Notices()
    for number in range(2 * KEPT):
        notices.remark(f"it cut {number} bytes")
    assert len(notices) == KEPT


def test_a_completion_that_cannot_be_read_is_told_once() -> None:
    """Where its step is restored each time, nothing else tells why it takes so long and brings no events."""
    machine = ClientMachine(DOCUMENT)
    for agent_id in (1, 2):
        completion = StepCompleted(agent_id, np.zeros(1, np.float32), np.empty(0, np.float32)).encode()
        with pytest.raises(RemoteProtocolError):
            machine.receive(completion + b"\0\0", 0.0)
    (told,) = told_by(machine.notices).remarks
    assert "2 bytes left" in told
