"""Stand-ins for two robots of a NERD simulator, with the interface and the variables of the real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ospbridge.simulator.robots.aseries import ASeriesWorld
    from ospbridge.simulator.robots.volksbot import VolksbotWorld

__all__ = ["known_vectors", "robot_world"]

ROBOTS: Final = ("ASeries", "Volksbot")


def known_vectors() -> dict[str, int]:
    """Variables of real robots that are vectors, with the number of their components."""
    from ospbridge.simulator.robots.facts import COMPONENTS, RobotFacts

    return {
        name: COMPONENTS[kind]
        for robot in ROBOTS
        for name, kind in RobotFacts(robot).types.items()
        if kind in COMPONENTS
    }


def robot_world(name: str) -> ASeriesWorld | VolksbotWorld:
    """The world of the robot ``name``, "ASeries" or "Volksbot"."""
    if name == "ASeries":
        from ospbridge.simulator.robots.aseries import ASeriesWorld

        return ASeriesWorld()
    if name == "Volksbot":
        from ospbridge.simulator.robots.volksbot import VolksbotWorld

        return VolksbotWorld()
    raise ValueError(f"unknown robot {name!r}, expected 'ASeries' or 'Volksbot'")
