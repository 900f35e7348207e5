"""Names and texts in UTF-8, and in what is none: read as they are written, and sent back as they came."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import ospbridge
from ospbridge.osp.profile import DOCUMENT
from ospbridge.osp.server.repository import text_variable
from ospbridge.session.blocking import BlockingSession
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator

if TYPE_CHECKING:
    from collections.abc import Iterator

assert ospbridge.__version__
pytestmark = pytest.mark.loopback
KNEE = "Kn\uf7f6chel"
"""As a server that writes Latin-1 has it: one byte F6."""
NAMES = ("M\xfcller", "\u673a\u5668\u4eba", KNEE)
TEXT = "/Lab/Gr\xf6\xdfe"


class World(SyntheticWorld):
    def __init__(self) -> None:
        super().__init__(2, [f"/{name}" for name in NAMES], names=NAMES)
        self.variables = [*self.variables, text_variable(TEXT, KNEE)]


@pytest.fixture
def simulator() -> Iterator[UdpSimulator]:
    with UdpSimulator(World(), port=0, profile=DOCUMENT) as running:
        yield running


def test_a_server_gets_the_bytes_back_that_it_gave(simulator: UdpSimulator) -> None:
    with BlockingSession.connect(simulator.address) as session:
        content = session.get(TEXT).value
        assert content == KNEE
        session.set(TEXT, "\u673a\u5668\u4eba")
        assert session.get(TEXT).value == "\u673a\u5668\u4eba"
        session.set(TEXT, content)
        assert session.get(TEXT).value == KNEE
        assert [entry.name for entry in session.values(".*\xf6\xdf.*")] == [TEXT]


def test_a_command_shows_a_byte_that_is_no_utf_8_as_it_can_be_written_in_a_file(
    simulator: UdpSimulator,
) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "ospbridge", "agents", "--simulator", str(simulator.address)],
        capture_output=True,
        encoding="utf-8",
        timeout=30,
        check=True,
    ).stdout
    assert "M\xfcller" in shown
    assert r"Kn\uf7f6chel" in shown
