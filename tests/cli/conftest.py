"""Simulators to command, and a way to run commands in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ospbridge.cli import main
from ospbridge.osp.profile import PROFILES
from ospbridge.osp.world import World
from ospbridge.simulator.arena import ArenaWorld
from ospbridge.simulator.udp import UdpSimulator


@dataclass
class Served:
    """A simulator that runs in a thread, and commands that are given its address."""

    simulator: UdpSimulator

    @property
    def address(self) -> str:
        return str(self.simulator.address)

    def run(self, *args: str, exit_code: int = 0) -> Result:
        result = CliRunner().invoke(main, [*args, "--simulator", self.address])
        assert result.exit_code == exit_code, (result.output, result.exception)
        return result

    def json(self, *args: str) -> Any:
        return json.loads(self.run(*args, "--json").stdout)

    def json_lines(self, *args: str) -> list[Any]:
        return [json.loads(line) for line in self.run(*args, "--json").stdout.splitlines()]

    def assert_all_free(self) -> None:
        assert not self.simulator.machine.controlled


@pytest.fixture(params=sorted(PROFILES))
def profile(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def serve(profile: str) -> Iterator[Callable[[World], Served]]:
    """Serve a world, in each profile."""
    running: list[UdpSimulator] = []

    def start(world: World) -> Served:
        simulator = UdpSimulator(world, port=0, profile=PROFILES[profile]).start()
        running.append(simulator)
        return Served(simulator)

    yield start
    for simulator in running:
        simulator.stop()


@pytest.fixture
def arena(serve: Callable[[World], Served]) -> Served:
    """Two robots in an arena."""
    return serve(ArenaWorld(2))
