"""Worlds that scenarios name."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from ospbridge.cli import main
from ospbridge.errors import ConfigurationError
from ospbridge.osp.profile import DOCUMENT
from ospbridge.simulator.hosting import world_of
from ospbridge.task.loading import load
from ospbridge.task.reading import read
from tests.simulator.raw import RawClient
from tests.simulator.test_cli_sim import running

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "scenario, agents",
    [
        ("cartpole", ["cart"]),
        ("pendulum", ["pendulum"]),
        ("arena_avoid", ["robot1"]),
        ("arena_two", ["robot1", "robot2"]),
        ("aseries", ["ASeries"]),
    ],
)
def test_a_shipped_scenario_names_a_world_with_its_agents(scenario: str, agents: list[str]) -> None:
    assert [agent.name for agent in world_of(load(scenario)).agents] == agents


def test_the_stand_in_of_the_humanoid_has_the_size_of_the_real_one() -> None:
    (agent,) = world_of(load("aseries")).agents
    names = [value.name for value in (*agent.interface.inputs, *agent.interface.outputs)]
    assert (len(agent.interface.inputs), len(agent.interface.outputs)) == (42, 37)
    assert len(set(names)) == 79
    assert {
        "/Waist/DesiredAngle",
        "/Waist/DesiredTorque",
        "/Right/ShoulderYaw/JointAngle",
        "/ABAL/AccelAxis1",
    } <= set(names)


def test_copies_and_time_steps_are_as_the_table_says() -> None:
    world = world_of(
        read(
            'name = "x"\n[world]\nkind = "gym"\nenv = "CartPole-v1"\ncopies = 2\ntime_step = 0.5\n[[agent]]\n'
        )
    )
    assert [agent.name for agent in world.agents] == ["cart1", "cart2"]
    assert world.time_step == 0.5


def test_a_scenario_without_a_world_cannot_be_hosted(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="names no world"):
        world_of(read('name = "x"\n[[agent]]\n'))
    file = tmp_path / "x.toml"
    file.write_text('name = "x"\n[[agent]]\n')
    result = CliRunner().invoke(main, ["sim", str(file)])
    assert result.exit_code == 78
    assert "[world]" in result.stderr


def test_a_scenario_and_another_world_exclude_each_other() -> None:
    result = CliRunner().invoke(main, ["sim", "cartpole", "--arena"])
    assert result.exit_code == 2
    assert "one simulator, one world" in result.stderr


@pytest.mark.loopback
def test_the_command_hosts_the_world_of_a_scenario() -> None:
    with running("--quiet", "arena_two") as (_, address), RawClient(address, DOCUMENT) as client:
        assert list(client.overview()) == ["robot1", "robot2"]


@pytest.mark.loopback
def test_a_daemon_ends_with_78_where_its_scenario_does_not_fit_the_agents(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text('name = "x"\n[[agent]]\n[agent.observe]\noutputs = ["/cart/position"]\n')
    with running("--quiet", "--arena") as (_, address):
        ended = subprocess.run(
            [
                *(sys.executable, "-m", "ospbridge", "connect", "--simulator", str(address)),
                *("--hub", f"unix:{tmp_path}/h", "--scenario", str(file)),
            ],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert ended.returncode == 78
    assert "no output '/cart/position'" in ended.stderr
