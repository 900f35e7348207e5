"""The world that a scenario names in its ``[world]`` table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ospbridge.errors import ConfigurationError
from ospbridge.task.scenario import ArenaTable, GymTable, RobotTable

if TYPE_CHECKING:
    from ospbridge.osp.world import World
    from ospbridge.task.scenario import Scenario

__all__ = ["world_of"]


def world_of(scenario: Scenario) -> World:
    """The world, made. Raises ConfigurationError where the scenario names none, or one that is not installed."""
    table = scenario.world
    if table is None:
        raise ConfigurationError(
            f"{scenario.origin or scenario.name} names no world to host",
            hint="add a [world] table, or host one with --env, --arena or --synthetic",
        )
    if isinstance(table, GymTable):
        from ospbridge.simulator.gym_world import GymWorld

        return GymWorld([table.env] * table.copies, time_step=table.time_step)
    if isinstance(table, ArenaTable):
        from ospbridge.simulator.arena import ArenaWorld

        return ArenaWorld(table.robots, obstacles=table.obstacles, time_step=table.time_step)
    if isinstance(table, RobotTable):
        from ospbridge.simulator.robots import robot_world

        return robot_world(table.robot)
    from ospbridge.simulator.synthetic import SyntheticWorld

    return SyntheticWorld(
        table.inputs,
        table.outputs,
        table.infos,
        agents=len(table.agents),
        names=table.agents,
        time_step=table.time_step,
    )
