"""Agents that play together although their tasks repeat an action unlike often are told of, once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from ospbridge.daemon.attachment import Attachment, HeldAgent
from ospbridge.daemon.paces import MOST_TOLD, Paces
from ospbridge.task.plain import PlainTask
from tests.daemon.stage import ONE, FakeSession, agent, attach, conductor_of

if TYPE_CHECKING:
    from collections.abc import MutableMapping


def of_pace(logs: list[MutableMapping[str, Any]]) -> list[tuple[str, dict[str, int], int]]:
    return [
        (line["log_level"], line["action_repeat"], line["taken"])
        for line in logs
        if line["event"] == "actions of agents differ in length"
    ]


def player(name: str, repeat: int) -> Attachment:
    task = PlainTask(agent(name), bounded=True)
    task.action_repeat = repeat
    return Attachment(HeldAgent(task.agent, task), ONE)


@pytest.mark.trio
async def test_a_reset_after_which_they_play_together_says_so_once() -> None:
    session = FakeSession("a", "b")
    conductor = conductor_of(session)
    conductor.lockstep.held["b"].task.action_repeat = 4
    with capture_logs() as logs:
        one, two = attach(conductor, "a"), attach(conductor, "b")
        await conductor.reset([one], 1, 0)
        conductor.rest([one], "for now")
        assert not of_pace(logs), "alone, each goes at its own pace"
        for _ in range(3):
            await conductor.reset([one, two], 1, 0)
            conductor.rest([one, two], "for now")
    assert of_pace(logs) == [("warning", {"a": 1, "b": 4}, 4)]


def test_agents_that_come_and_go_for_weeks_do_not_fill_the_log() -> None:
    paces = Paces()
    with capture_logs() as logs:
        for number in range(2 * MOST_TOLD):
            paces.began([player("a", 1), player(f"b{number}", 2)])
    assert len(of_pace(logs)) == MOST_TOLD
