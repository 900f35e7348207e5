"""What tasks want of a simulator beside their agents."""

from __future__ import annotations

import pytest

import ospbridge
from ospbridge.errors import ConfigurationError
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.conversation import Conversation
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.task.plain import PlainTask

assert ospbridge.__version__
pytestmark = pytest.mark.loopback


def test_what_several_tasks_want_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    watch = Conversation.watch

    def noted(conversation: Conversation, names: list[str]) -> object:
        asked.extend(names)
        return watch(conversation, names)

    monkeypatch.setattr(Conversation, "watch", noted)
    with (
        UdpSimulator(SyntheticWorld(2, 3, agents=2, values=2), port=0) as simulator,
        BlockingSession.connect(str(simulator.address)) as session,
    ):
        names = [entry.name for entry in session.values("/.*[Vv]al.*")][:2]
        tasks = [PlainTask(agent, bounded=True) for agent in session.register("agent1", "agent2")]
        tasks[0].values, tasks[1].values = names[:1], names
        session.equip(tasks)
        assert asked == names
        # So do environments that share the session, one after the other.
        session.equip(tasks[1:])
        assert asked == names
        tasks[1].events = ["/No/Such"]
        with pytest.raises(
            ConfigurationError, match="no event '/No/Such', which the task of agent 'agent2' wants"
        ):
            session.equip(tasks)
