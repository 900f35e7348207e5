"""A stand-in for the Volksbot: a two-wheeled robot between four walls.

The wheels follow their desired velocities with a short lag; the robot drives along component 2 of its position as
long as both turn alike. Walls stop it. There is no noise: the same inputs give the same episode, as observed on the
real simulator. The output of a joint is the angle, in degrees, through which its wheel turned in the step.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from ospbridge.simulator.robots.facts import RobotFacts, vector_text

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["VolksbotWorld"]

RADIUS: Final = 0.01
"""Of a wheel, in meters."""
TRACK: Final = 0.05
"""Between the wheels, in meters."""
BEHIND: Final = 0.0245
"""How far the body's center is behind the axle, in meters."""
TOP_SPEED: Final = 10.0
"""Of a wheel, in radians per second."""
WALL: Final = 0.46
"""Where a wall stops the axle, in meters from the middle."""
HEIGHT: Final = 0.0345
"""Of the body's center while driving, in meters."""
AGILITY: Final = 0.15
"""By which share of the difference to its desired velocity a wheel accelerates in a step, for a body of 1 kg."""

BODY: Final = "/Sim/Volksbot/Body/"


class VolksbotWorld:
    """One agent, "Volksbot", with 2 inputs (wheel velocities) and 2 outputs. x and z in meters, z is component 2."""

    def __init__(self) -> None:
        self.time_step = 0.01
        self.events = ()
        self._facts = RobotFacts("Volksbot")
        self.agents = [self._facts.agent]
        self._moved = False
        self._x = self._z = self._heading = 0.0
        self._speeds = [0.0, 0.0]
        """Of the right and the left wheel, in radians per second."""
        self.variables = self._facts.variables(self._moving())

    def _moving(self) -> dict[str, Callable[[], str]]:
        """Readers of the body's pose, which show the recorded one until the first reset or step."""
        readers: dict[str, Callable[[], str]] = {
            f"{BODY}Position": self._position,
            f"{BODY}Orientation": lambda: vector_text(0.0, math.degrees(self._heading), 0.0),
            f"{BODY}OrientationQuaternion": lambda: vector_text(
                math.cos(self._heading / 2), 0.0, math.sin(self._heading / 2), 0.0
            ),
        }

        def shown(name: str) -> Callable[[], str]:
            return lambda: readers[name]() if self._moved else self._facts.start[name]

        return {name: shown(name) for name in readers}

    def _position(self) -> str:
        return vector_text(
            self._x - BEHIND * math.sin(self._heading), HEIGHT, self._z - BEHIND * math.cos(self._heading)
        )

    def reset(self, seed: int) -> None:
        """Put the robot where ``/Sim/Volksbot/Position`` and ``Orientation`` say, at rest. The seed changes nothing."""
        x, _, z = self._facts.vector("/Sim/Volksbot/Position")
        self._heading = math.radians(self._facts.vector("/Sim/Volksbot/Orientation")[1])
        self._x = _within_walls(x + BEHIND * math.sin(self._heading))
        self._z = _within_walls(z + BEHIND * math.cos(self._heading))
        self._speeds[:] = 0.0, 0.0
        self._moved = True
        self.agents[0].outputs[:] = 0.0

    def step(self) -> None:
        """Turn the wheels and drive."""
        if not self._moved:
            self.reset(0)
        agent = self.agents[0]
        share = min(AGILITY / max(self._facts.number(f"{BODY}Mass"), AGILITY), 1.0)
        for wheel, desired in enumerate(agent.inputs.tolist()):
            self._speeds[wheel] += (desired * TOP_SPEED - self._speeds[wheel]) * share
        right, left = self._speeds
        forward = (right + left) / 2 * RADIUS * self.time_step
        self._heading += (right - left) * RADIUS / TRACK * self.time_step
        self._heading = math.remainder(self._heading, math.tau)
        self._x = _within_walls(self._x + forward * math.sin(self._heading))
        self._z = _within_walls(self._z + forward * math.cos(self._heading))
        turned = math.degrees(self.time_step)
        agent.outputs[:] = right * turned, left * turned

    def take_events(self) -> list[str]:
        """None: this world fires no event of its own."""
        return []


def _within_walls(place: float) -> float:
    return min(max(place, -WALL), WALL)
