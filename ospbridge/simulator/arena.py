"""A robot world for the tour: two-wheeled robots in a walled arena with round obstacles, in plain numpy.

Each robot has two wheels to drive, eight proximity sensors around it, a compass and its wheels' velocities; where it
is and how it does are infos. Names in the style of real OSP simulators. Same seed and inputs, same trajectory.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.errors import ConfigurationError
from ospbridge.interface import InterfaceValue
from ospbridge.osp.repository import double_variable
from ospbridge.osp.world import WorldAgent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ospbridge.osp.world import Variable

__all__ = ["BUMP", "ArenaWorld"]

BUMP: Final = "/Arena/Bump"

BEARINGS: Final = ("Front", "FrontLeft", "Left", "RearLeft", "Rear", "RearRight", "Right", "FrontRight")
"""Proximity sensors, counter-clockwise from the front, 45 degrees apart."""

INPUTS: Final = (
    InterfaceValue("/Left/Wheel/DesiredVelocity", -1.0, 1.0),
    InterfaceValue("/Right/Wheel/DesiredVelocity", -1.0, 1.0),
)
OUTPUTS: Final = (
    *(InterfaceValue(f"/Proximity/{bearing}", 0.0, 1.0) for bearing in BEARINGS),
    InterfaceValue("/Left/Wheel/Velocity", -1.0, 1.0),
    InterfaceValue("/Right/Wheel/Velocity", -1.0, 1.0),
    InterfaceValue("/Compass/Sine", -1.0, 1.0),
    InterfaceValue("/Compass/Cosine", -1.0, 1.0),
)

RADIUS: Final = 0.1
"""Of a robot, in metres."""
AXLE: Final = 0.16
"""Between the wheels, in metres."""
LIMITS: Final = {"Size": (4 * RADIUS, 1000.0), "WheelInertia": (0.0, 1.0)}
"""In a smaller arena no robot has a place; with more inertia wheels would turn faster and faster."""


class ArenaWorld:
    """``robots`` robots in a square arena, named "robot1", "robot2", ..

    Distances in metres, velocities in [-1, 1] of ``/Sim/Arena/TopSpeed``. A proximity sensor reads 0 when nothing is
    within its range and 1 at contact. The reward of a step is the robot's own forward velocity, or -1 when it bumped.
    """

    def __init__(self, robots: int = 2, *, obstacles: int = 4, time_step: float = 0.05) -> None:
        if robots < 1:
            raise ConfigurationError(f"an arena needs at least one robot, got {robots}")
        self.time_step = time_step
        self.events = (BUMP,)
        self._settings = {"Size": 4.0, "SensorRange": 0.8, "TopSpeed": 0.5, "WheelInertia": 0.5}
        half = self._settings["Size"] / 2
        infos = (
            InterfaceValue("/Body/X", -half, half),
            InterfaceValue("/Body/Y", -half, half),
            InterfaceValue("/episode/reward", -1.0, 1.0),
            InterfaceValue("/episode/terminated", 0.0, 1.0),
            InterfaceValue("/episode/truncated", 0.0, 1.0),
        )
        self.agents = [WorldAgent(f"robot{index + 1}", INPUTS, OUTPUTS, infos) for index in range(robots)]
        self.variables = [self._variable(name) for name in self._settings]
        self._positions: NDArray[np.float64] = np.zeros((robots, 2))
        self._headings: NDArray[np.float64] = np.zeros(robots)
        self._wheels: NDArray[np.float64] = np.zeros((robots, 2))
        self._touching: NDArray[np.bool_] = np.zeros(robots, bool)
        self._occurred: list[str] = []
        self._obstacles = _place_obstacles(obstacles, half)
        self._bearings = np.arange(len(BEARINGS)) * (math.tau / len(BEARINGS))
        self._random = np.random.default_rng()
        self.reset(0)

    def _variable(self, name: str) -> Variable:
        def write(value: float) -> bool:
            least, most = LIMITS.get(name, (0.0, 1000.0))
            fits = value > 0.0 and least <= value <= most
            if fits:
                self._settings[name] = value
            return fits

        return double_variable(f"/Sim/Arena/{name}", lambda: self._settings[name], write)

    def reset(self, seed: int) -> None:
        """Put the robots where the seed says, at rest."""
        if seed:
            self._random = np.random.default_rng(seed & 0xFFFF_FFFF)
        robots = len(self.agents)
        half = self._settings["Size"] / 2 - 2 * RADIUS
        for index in range(robots):
            for _ in range(201):
                self._positions[index] = self._random.uniform(-half, half, 2)
                if self._is_free(index):
                    break
        self._headings[:] = self._random.uniform(-math.pi, math.pi, robots)
        self._wheels[:] = 0.0
        self._touching[:] = False
        self._publish(np.zeros(robots))

    def _is_free(self, index: int) -> bool:
        place = self._positions[index]
        to_robots = np.hypot(*(self._positions[:index] - place).T)
        to_obstacles = np.hypot(*(self._obstacles[:, :2] - place).T) - self._obstacles[:, 2]
        return bool((to_robots > 3 * RADIUS).all() and (to_obstacles > 2 * RADIUS).all())

    def step(self) -> None:
        """Drive, collide, sense."""
        settings = self._settings
        desired = np.nan_to_num(np.stack([agent.inputs for agent in self.agents]).astype(np.float64))
        self._wheels += (desired - self._wheels) * (1.0 - settings["WheelInertia"])
        speeds = self._wheels * settings["TopSpeed"]
        forward = speeds.mean(axis=1)
        self._headings += (speeds[:, 1] - speeds[:, 0]) / AXLE * self.time_step
        self._headings = np.remainder(self._headings + math.pi, math.tau) - math.pi
        course = np.stack([np.cos(self._headings), np.sin(self._headings)], axis=1)
        self._positions += course * (forward * self.time_step)[:, None]
        touching = self._collide()
        bumps = touching & ~self._touching
        self._touching = touching
        self._occurred += [BUMP] * int(bumps.sum())
        self._publish(forward / settings["TopSpeed"])

    def _collide(self) -> NDArray[np.bool_]:
        """Push robots out of walls, obstacles and each other; says who touched something."""
        positions = self._positions
        touching = np.zeros(len(positions), bool)
        for index in range(len(positions)):
            for other in range(index + 1, len(positions)):
                distance, away = _apart(positions[index], positions[other])
                if distance < 2 * RADIUS:
                    push = away * (RADIUS - distance / 2)
                    positions[index] -= push
                    positions[other] += push
                    touching[index] = touching[other] = True
            for *middle, radius in self._obstacles:
                distance, away = _apart(np.array(middle), positions[index])
                if distance < RADIUS + radius:
                    positions[index] = middle + away * (RADIUS + radius)
                    touching[index] = True
        reach = max(self._settings["Size"] / 2 - RADIUS, 0.0)
        touching |= (np.abs(positions) > reach).any(axis=1)
        np.clip(positions, -reach, reach, out=positions)
        return touching

    def _publish(self, forward: NDArray[np.float64]) -> None:
        """Write outputs and infos."""
        nearness = self._sense()
        rewards = np.where(self._touching, -1.0, forward)
        for index, agent in enumerate(self.agents):
            heading = self._headings[index]
            agent.outputs[:] = *nearness[index], *self._wheels[index], math.sin(heading), math.cos(heading)
            agent.infos[:] = *self._positions[index], rewards[index], 0.0, 0.0

    def _sense(self) -> NDArray[np.float64]:
        """float64[robots, 8]: 1 at contact, 0 beyond the sensors' range."""
        reach = self._settings["SensorRange"]
        angles = self._headings[:, None] + self._bearings
        rays = np.stack([np.cos(angles), np.sin(angles)], axis=2)
        half = self._settings["Size"] / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            to_walls = (np.copysign(half, rays) - self._positions[:, None]) / rays
        distance = np.where(np.abs(rays) > 1e-12, to_walls, np.inf).min(axis=2)
        circles = np.concatenate(
            [self._obstacles, np.column_stack([self._positions, np.full(len(self.agents), RADIUS)])]
        )
        centres = circles[None, :, :2] - self._positions[:, None]
        along = np.einsum("rck,rsk->rsc", centres, rays)
        off = (centres**2).sum(axis=2)[:, None] - along**2
        inside = circles[None, None, :, 2] ** 2 - off
        hits = (along > 0.0) & (inside > 0.0)
        # A robot does not see itself: its own circle is centred on it, so that along is 0 there.
        to_circles = np.where(hits, along - np.sqrt(np.maximum(inside, 0.0)), np.inf).min(axis=2)
        nearest = np.minimum(distance, to_circles) - RADIUS
        closeness: NDArray[np.float64] = np.clip(1.0 - nearest / reach, 0.0, 1.0)
        return closeness

    def take_events(self) -> list[str]:
        """The bumps since the last call."""
        events, self._occurred = self._occurred, []
        return events


def _apart(one: NDArray[np.float64], other: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    """How far from the one the other is, and in which direction."""
    between = other - one
    distance = math.hypot(*between)
    return distance, between / distance if distance > 0.0 else np.array([1.0, 0.0])


def _place_obstacles(count: int, half: float) -> NDArray[np.float64]:
    """float64[count, 3]: x, y and radius, evenly around the middle."""
    angles = np.arange(count) * (math.tau / max(count, 1)) + math.pi / 4
    return np.column_stack(
        [0.5 * half * np.cos(angles), 0.5 * half * np.sin(angles), np.full(count, 0.2)]
    ).reshape(count, 3)
