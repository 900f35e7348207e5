"""What probing hears."""

from __future__ import annotations

import pytest

from ospbridge.diagnosis.line import Line
from ospbridge.errors import RemoteProtocolError
from ospbridge.osp.client import roster
from ospbridge.osp.client.machine import ClientMachine
from ospbridge.osp.client.unanswered import WRITES_OTHERWISE
from ospbridge.osp.messages import AgentOverview
from ospbridge.osp.profile import DOCUMENT


class Bundling(Line):
    """To a server that says more in one datagram than belongs there."""

    def __init__(self) -> None:
        self.profile = DOCUMENT
        self.lists = ClientMachine(DOCUMENT)

    def drain(self) -> None:
        pass

    def _send(self, data: bytes) -> None:
        pass

    def hear(self, wait: float) -> bytes:
        del wait
        return AgentOverview(0).encode() + b"\0\0"


def test_an_answer_that_cannot_be_read_comes_with_what_to_do_about_it() -> None:
    with pytest.raises(RemoteProtocolError, match="2 bytes left") as caught:
        Bundling().heard(AgentOverview)
    assert caught.value.hint == WRITES_OTHERWISE


def test_so_does_a_list_that_cannot_be_read() -> None:
    line = Bundling()
    with pytest.raises(RemoteProtocolError, match="2 bytes left") as caught:
        line.listed(roster.overview(line.lists))
    assert caught.value.hint == WRITES_OTHERWISE
