"""Stand-ins for two robots of a NERD simulator, with the interface and the variables of the real ones.

What they announce is read from the JSON files beside this module, which were written from the answers of a NERD server.
Variables are held as text, as the server sends it. Lengths in meters, angles in radians, but degrees in outputs; z is
forward (component 2), x is to the left.

The Volksbot has two wheels, which follow their desired velocities with a short lag, between four walls that stop it.
There is no noise: the same inputs give the same episode, as observed on the real simulator.

The A-Series is a humanoid of 21 motors that stands, falls, and walks if it is taught to. The physics is a sketch, made
to behave as the real robot was seen to: with all angles at 0 and full torque it stands; without torque it is down
within 150 steps; with random inputs within 50 to 150. Each joint is a motor with a velocity and a limited torque. The
two legs carry a trunk whose weight loads their pitch joints, and the robot tips over the edge of its feet when its
center of mass leaves them. A foot on the ground does not slip, so that legs that push backward move the robot forward.
Nothing else is computed: limbs do not collide, and arms, waist and head only move. Its sensors and motors have noise
that no seed reaches; variables say how much.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.interface import InterfaceValue
from ospbridge.osp.repository import parse_double, parse_integer
from ospbridge.osp.world import Variable, WorldAgent

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["ASeriesWorld", "VolksbotWorld", "known_vectors", "robot_world"]

TIME_STEP: Final = 0.01
LARGEST: Final = 1e6
"""No physics is asked for larger numbers: they would soon be infinite."""
COMPONENTS: Final = {"Vector3D": 3, "Quaternion": 4}
"""How many numbers a variable of this type has."""
TEXTS: Final = ("String", "FileName", "Color")
"""Types of variables that accept any text."""


class RobotFacts:
    """The agent and the variables of one robot.

    ``agent`` drives the robot. ``texts`` maps each variable's name to its content; a client's SET_VALUE changes it if
    the new content parses as the variable's type.
    """

    def __init__(self, name: str) -> None:
        file = resources.files(__package__) / f"{name}.json"
        facts = json.loads(file.read_text(encoding="utf-8"))
        inputs, outputs, infos = (
            [InterfaceValue(*row) for row in facts[kind]] for kind in ("inputs", "outputs", "infos")
        )
        self.agent = WorldAgent(facts["name"], inputs, outputs, infos)
        self.types: dict[str, str] = {variable: kind for variable, kind, _ in facts["variables"]}
        self.start: dict[str, str] = {variable: text for variable, _, text in facts["variables"]}
        self.texts = dict(self.start)

    def number(self, name: str) -> float:
        """The number in a variable of type Double, within ``LARGEST``; 0 while it is set to "nan"."""
        value = float(self.texts[name])
        return 0.0 if math.isnan(value) else min(max(value, -LARGEST), LARGEST)

    def flag(self, name: str) -> bool:
        """Whether a variable of type Bool is "T"."""
        return self.texts[name] == "T"

    def vector(self, name: str) -> tuple[float, ...]:
        """The numbers in a variable of type Vector3D or Quaternion."""
        return tuple(float(part) for part in self.texts[name].strip("()").split(","))

    def variables(self, moving: dict[str, Callable[[], str | None]]) -> list[Variable]:
        """All variables. A client cannot set those of ``moving``, which the physics determines once there is a text."""
        return [
            Variable(name, kind, lambda name=name: moving[name]() or self.start[name])  # type: ignore[misc]
            if name in moving
            else self._stored(name, kind)
            for name, kind in self.types.items()
        ]

    def _stored(self, name: str, kind: str) -> Variable:
        def write(text: str) -> bool:
            parsed = _parses(kind, text)
            if parsed:
                self.texts[name] = text
            return parsed

        return Variable(name, kind, lambda: self.texts[name], write)


def _parses(kind: str, text: str) -> bool:
    """Whether ``text`` is a content of that type; nothing is one of a type that only the server writes."""
    if kind == "Double":
        return parse_double(text) is not None
    if kind == "Int":
        return parse_integer(text) is not None
    if kind == "Bool":
        return text in ("T", "F")
    if kind in COMPONENTS:
        numbers = [parse_double(part) for part in text[1:-1].split(",")]
        framed = text.startswith("(") and text.endswith(")") and len(numbers) == COMPONENTS[kind]
        # The physics has no answer to an infinite place.
        return framed and all(number is not None and math.isfinite(number) for number in numbers)
    return kind in TEXTS


def _vector_text(*numbers: float) -> str:
    """A vector as a NERD server prints it: 8 significant digits, no spaces."""
    return f"({','.join(f'{number:.8g}' for number in numbers)})"


def known_vectors() -> dict[str, int]:
    """Variables of real robots that are vectors, with the number of their components."""
    types = {name: kind for robot in ROBOTS for name, kind in RobotFacts(robot).types.items()}
    return {name: COMPONENTS[kind] for name, kind in types.items() if kind in COMPONENTS}


def robot_world(name: str) -> ASeriesWorld | VolksbotWorld:
    """The world of the robot ``name``, "ASeries" or "Volksbot"."""
    return ROBOTS[name]()


# --- the Volksbot -----------------------------------------------------------------------------------------------------

WHEEL: Final = 0.01
"""Radius of a wheel."""
TRACK: Final = 0.05
"""Between the wheels."""
BEHIND: Final = 0.0245
"""How far the body's center is behind the axle."""
TOP_SPEED: Final = 10.0
"""Of a wheel, in radians per second."""
WALL: Final = 0.46
"""Where a wall stops the axle, from the middle."""
HEIGHT: Final = 0.0345
"""Of the body's center while driving."""
AGILITY: Final = 0.15
"""By which share of the difference to its desired velocity a wheel accelerates in a step, for a body of 1 kg."""
BODY: Final = "/Sim/Volksbot/Body/"


class VolksbotWorld:
    """One agent, "Volksbot", with 2 inputs (wheel velocities) and 2 outputs: the degrees a wheel turned in the step."""

    events = ()
    time_step = TIME_STEP

    def __init__(self) -> None:
        self._facts = RobotFacts("Volksbot")
        self.agents = [self._facts.agent]
        self._moved = False
        self._x = self._z = self._heading = 0.0
        self._speeds = [0.0, 0.0]
        """Of the right and the left wheel, in radians per second."""
        poses: dict[str, Callable[[], tuple[float, ...]]] = {
            f"{BODY}Position": self._position,
            f"{BODY}Orientation": lambda: (0.0, math.degrees(self._heading), 0.0),
            f"{BODY}OrientationQuaternion": lambda: (
                *(math.cos(self._heading / 2), 0.0),
                *(math.sin(self._heading / 2), 0.0),
            ),
        }
        self.variables = self._facts.variables(
            {
                name: lambda pose=pose: _vector_text(*pose()) if self._moved else None  # type: ignore[misc]
                for name, pose in poses.items()
            }
        )

    def _position(self) -> tuple[float, float, float]:
        behind = BEHIND * math.sin(self._heading), BEHIND * math.cos(self._heading)
        return self._x - behind[0], HEIGHT, self._z - behind[1]

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
        agent = self.agents[0]
        share = min(AGILITY / max(self._facts.number(f"{BODY}Mass"), AGILITY), 1.0)
        for wheel, desired in enumerate(agent.inputs.tolist()):
            self._speeds[wheel] += (desired * TOP_SPEED - self._speeds[wheel]) * share
        right, left = self._speeds
        forward = (right + left) / 2 * WHEEL * TIME_STEP
        self._heading += (right - left) * WHEEL / TRACK * TIME_STEP
        self._heading = math.remainder(self._heading, math.tau)
        self._x = _within_walls(self._x + forward * math.sin(self._heading))
        self._z = _within_walls(self._z + forward * math.cos(self._heading))
        turned = math.degrees(TIME_STEP)
        agent.outputs[:] = right * turned, left * turned

    def take_events(self) -> list[str]:
        """None: this world fires no event of its own."""
        return []


def _within_walls(place: float) -> float:
    return min(max(place, -WALL), WALL)


# --- the body of the A-Series -----------------------------------------------------------------------------------------

ANKLE: Final = 0.038
SHIN: Final = 0.0795
THIGH: Final = 0.083
"""Heights of the ankle above the ground, the knee above the ankle, and the hip above the knee."""
HEAD_UP: Final = 0.2032
HEAD_AHEAD: Final = 0.0513
"""Where the head is, seen from the hip of an upright trunk."""
TRUNK: Final = 0.08
"""How high the center of mass is above the hip."""
MASS: Final = 1.5
CENTER: Final = -0.022
"""How far ahead the center of mass is, without the PDA that the robot carries on its back."""
HEAD: Final = "/Sim/ASeries/Middle/Head/Position"
PDA: Final = "/Sim/ASeries/Middle/PDA/Mass"
PDA_AHEAD: Final = -0.0722
ARMS_AHEAD: Final = 0.02
"""By how much an arm that is raised ahead moves the center of mass."""
TOE: Final = 0.05
HEEL: Final = -0.042
SIDE: Final = 0.06
"""Edges of the feet: ahead of the ankle, behind it, and to either side of the middle."""
SETTLES: Final = 0.0018
"""By how much the body sinks onto its feet in the first steps."""
LYING: Final = 0.125
"""Height of the head at which the robot lies on the ground."""
LONGER: Final = 0.003
"""Difference of the legs' lengths at which the longer one carries three quarters of the weight."""
SHIFT: Final = 0.3
"""Share of what is still missing that goes over to it in a step."""
CARRIES: Final = 0.15
"""Share of the weight from which a foot keeps the robot from tipping over."""
SLIDES: Final = 0.11
"""How far the head slides along the ground when the robot has fallen."""

# --- the motors -------------------------------------------------------------------------------------------------------

RANGE: Final = math.radians(150.0)
"""The angle that DesiredAngle 1 stands for."""
GAIN: Final = 20.0
"""Desired velocity for an error of one radian."""
LIGHT: Final = 8.7
"""Change of a joint's velocity in one step by a full torque, where it carries nothing but its limb."""
TORQUE: Final = 0.45
"""Of a leg's pitch joint, in newton meters."""
LIMB: Final = 0.004
LOADED: Final = (0.086, 0.045, 0.02)
"""Inertia that ankle, knee and hip move: their own limb, and the body on their leg."""
BACKWARD: Final = 3.5
"""How much slower a load turns the gears than a motor does."""
FRICTION: Final = 0.95
"""What remains of a joint's velocity after a step without torque."""

STRENGTH: Final = 1.04803939
"""The value of ``/AngularMotor/FMaxFactor`` at which motors have these torques."""

PITCHES: Final = ("AnklePitch", "Knee", "HipPitch")
SIDES: Final = ("Right", "Left")
SIGNS: Final = {"AnklePitch": (-1.0, 1.0), "Knee": (1.0, -1.0), "HipPitch": (-1.0, 1.0)}
"""Which sign of the joint's angle bends the leg; the two sides are mirrored."""


@dataclass
class Body:
    """Of the A-Series, as it stands upright, at rest, at the beginning."""

    angles: NDArray[np.float64]
    velocities: NDArray[np.float64]
    """Of all joints."""
    ahead: float
    """How far the center of mass is ahead of what carries it."""
    steps: int = 0
    share: float = 0.5
    """Of the weight, that the right leg carries."""
    pitch: float = 0.0
    pitch_rate: float = 0.0
    """How far the feet are tipped forward."""
    roll: float = 0.0
    roll_rate: float = 0.0
    """How far they are tipped to the left."""
    feet: tuple[float, ...] = (0.0, 0.0)
    """How far ahead of the hip they are, right and left."""
    center: float = 0.0
    """How far ahead of the hip the center of mass is."""
    hip: float = 0.0
    """How far the hip has come."""
    height: float = 0.0
    """Of the hip."""
    lying: bool = False
    slides: float = 0.0
    """How far the head still slides once the robot lies."""
    bent: NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, 3)))
    """Ankle, knee and hip of each leg, positive where they bend."""
    trunk: float = 0.0
    """How far the trunk leans forward."""
    head: tuple[float, float, float] = (0.0, ANKLE + SHIN + THIGH + HEAD_UP, HEAD_AHEAD)
    """Position of the head: x, height, z."""


class ASeriesWorld:
    """One agent, "ASeries", with 42 inputs (an angle and a torque for each motor) and 37 outputs."""

    events = ()
    time_step = TIME_STEP

    def __init__(self) -> None:
        self._facts = RobotFacts("ASeries")
        agent = self._facts.agent
        self.agents = [agent]
        self._joints = [value.name.removesuffix("/DesiredAngle") for value in agent.interface.inputs[0::2]]
        self._axes = [self._board_axis(value.name) for value in agent.interface.outputs[len(self._joints) :]]
        limits = [
            [self._facts.number(f"/Sim/ASeries{joint}/{end}Angle") for joint in self._joints]
            for end in ("Min", "Max")
        ]
        self._low, self._high = np.radians(limits)
        legs = [[self._joints.index(f"/{side}/{joint}") for joint in PITCHES] for side in SIDES]
        self._legs = np.array(legs, np.intp)
        """int[2, 3]: which joints are ankle, knee and hip of the right and the left leg."""
        self._bends = np.array([[SIGNS[joint][side] for joint in PITCHES] for side in range(2)])
        self._swaying = [
            self._joints.index(f"/{side}/{joint}") for side in SIDES for joint in ("HipRoll", "AnkleYaw")
        ]
        self._shoulders = [self._joints.index(f"/{side}/ShoulderPitch") for side in SIDES]
        self.variables = self._facts.variables(
            {HEAD: lambda: _vector_text(*self.body.head) if self.body.steps > 1 else None}
        )
        self.reset(0)

    def _board_axis(self, name: str) -> tuple[str, int, str, float]:
        """Of an acceleration sensor: part of the body, side, direction of the axis, and value while standing.

        "/ABFL/AccelAxis1" is on the left foot; the other parts are the femurs (H), the lower arms (A) and the trunk.
        """
        first = self._facts.number(f"/Sim/ASeries{name[:-1]}1")
        standing = self._facts.number(f"/Sim/ASeries{name}")
        across = "forward" if name.endswith("1") or abs(first) > 1.0 else "side"
        axis = "vertical" if abs(standing) > 1.0 else across
        return name[3], int(name[4] == "L"), axis, standing

    def reset(self, seed: int) -> None:
        """Stand upright, at rest. No seed reaches the noise."""
        joints = len(self._joints)
        self._random = np.random.default_rng()
        self.body = Body(np.zeros(joints), np.zeros(joints), self._balance(np.zeros(joints)))
        self.agents[0].outputs[:] = 0.0

    def _balance(self, angles: NDArray[np.float64]) -> float:
        """How far ahead of the hip the center of mass is while the trunk is upright."""
        right, left = np.sin(angles[self._shoulders])
        return CENTER + PDA_AHEAD * self._facts.number(PDA) / MASS + ARMS_AHEAD * float(left - right)

    def step(self) -> None:
        """Move the joints, then the body, then sense."""
        body = self.body
        body.steps += 1
        gravity = self._facts.number("/Simulation/Gravitation")
        self._move_joints(gravity)
        body.bent = body.angles[self._legs] * self._bends
        if body.lying:
            # Along the ground, a little further in the direction of the fall.
            side, height, ahead = body.head
            body.slides *= 0.9
            body.head = side, height, ahead + 0.1 * body.slides
        else:
            self._carry()
            self._tip(gravity)
        self._sense(gravity)

    # --- joints -------------------------------------------------------------------------------------------------------

    def _move_joints(self, gravity: float) -> None:
        """A motor reaches its desired velocity within its torque; what that does not hold, the load moves."""
        body = self.body
        facts = self._facts
        inputs = self.agents[0].inputs.astype(np.float64)
        desired = np.clip(inputs[0::2] * RANGE, self._low, self._high)
        strength = max(facts.number("/AngularMotor/FMaxFactor") / STRENGTH, 0.0)
        fastest = abs(facts.number("/AngularMotor/MaxVelocity"))
        wanted = np.clip(GAIN * (desired - body.angles), -fastest, fastest)
        if facts.flag("/AngularMotor/IncludeNoise"):
            wanted += self._random.normal(0.0, abs(facts.number("/AngularMotor/MotorNoise")), len(wanted))
        free = body.velocities * FRICTION
        reach = inputs[1::2] * (LIGHT * strength)
        inertia, load = self._loads(gravity)
        held = inputs[1::2][self._legs] * (TORQUE * strength)
        excess = np.sign(load) * np.maximum(np.abs(load) - held, 0.0)
        free[self._legs] += self._bends * excess * TIME_STEP / (BACKWARD * inertia)
        reach[self._legs] = np.maximum(held - np.abs(load), 0.0) * TIME_STEP / inertia
        body.velocities = free + np.clip(wanted - free, -reach, reach)
        angles = body.angles + body.velocities * TIME_STEP
        body.angles = np.clip(angles, self._low, self._high)
        body.velocities[angles != body.angles] = 0.0

    def _loads(self, gravity: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Inertia, and torque of the weight in the direction that bends, at ankle, knee and hip of each leg."""
        body = self.body
        inertia, load = np.empty((2, 3)), np.zeros((2, 3))
        for side, share in enumerate((body.share, 1.0 - body.share)):
            inertia[side] = [LIMB + share * carried for carried in LOADED]
            if body.lying:
                continue
            thigh = body.trunk - body.bent[side, 2]
            force = share * MASS * gravity
            load[side, 0] = force * body.ahead
            load[side, 1] = -force * (THIGH * math.sin(thigh) + body.center)
            load[side, 2] = force * body.center
        return inertia, load

    # --- body ---------------------------------------------------------------------------------------------------------

    def _carry(self) -> None:
        """Where feet, hip and center of mass are, with the feet where they were on the ground."""
        body = self.body
        shares = body.share, 1.0 - body.share
        leans = body.bent @ (1.0, -1.0, 1.0)
        # Where one leg is ahead of the other, their soles roll: only what both have in common leans the trunk.
        body.trunk = trunk = body.pitch + float(leans.sum()) / 2
        limbs = [(trunk - hip, trunk - hip + knee) for _, knee, hip in body.bent.tolist()]
        right, left = (-THIGH * math.sin(thigh) - SHIN * math.sin(shin) for thigh, shin in limbs)
        reaches = [THIGH * math.cos(thigh) + SHIN * math.cos(shin) for thigh, shin in limbs]
        body.hip -= shares[0] * (right - body.feet[0]) + shares[1] * (left - body.feet[1])
        body.feet = right, left
        body.height = ANKLE + max(shares[0] * reaches[0] + shares[1] * reaches[1], 0.0)
        # The longer leg carries; the weight needs a few steps to go over to it.
        longer = min(max((reaches[0] - reaches[1]) / LONGER, -30.0), 30.0)
        body.share += SHIFT * (1.0 / (1.0 + math.exp(-longer)) - body.share)
        body.center = TRUNK * math.sin(trunk) + self._balance(body.angles) * math.cos(trunk)
        body.ahead = body.center - (body.share * right + (1.0 - body.share) * left)

    def _tip(self, gravity: float) -> None:
        """Over the edges of the feet that carry, forward, backward or to a side; then the head's position."""
        body = self.body
        shares = body.share, 1.0 - body.share
        # At least one of them carries.
        carrying = [foot for foot, share in zip(body.feet, shares, strict=True) if not share <= CARRIES]
        tall = body.height - ANKLE + TRUNK
        ahead = body.center - (max(carrying) + TOE)
        behind = body.center - (min(carrying) + HEEL)
        pull = gravity / (tall * tall)
        body.pitch, body.pitch_rate = _tipped(body.pitch, body.pitch_rate, ahead, behind, pull)
        sway = float(body.angles[self._swaying].sum()) / 4
        beside = (tall + ANKLE) * math.sin(sway + body.roll)
        body.roll, body.roll_rate = _tipped(body.roll, body.roll_rate, beside - SIDE, beside + SIDE, pull)
        up = HEAD_UP * math.cos(body.trunk) - HEAD_AHEAD * math.sin(body.trunk)
        ahead_of_hip = HEAD_UP * math.sin(body.trunk) + HEAD_AHEAD * math.cos(body.trunk)
        sunk = SETTLES * (1.0 - math.exp(-body.steps / 3.0))
        height = (body.height + up) * math.cos(body.roll) - sunk
        if height < LYING:
            body.lying, height = True, LYING
            body.slides = SLIDES * math.sin(body.trunk)
        side = (body.height + HEAD_UP) * math.sin(sway + body.roll)
        body.head = side, height, body.hip + ahead_of_hip

    # --- sensors ------------------------------------------------------------------------------------------------------

    def _sense(self, gravity: float) -> None:
        """Joint angles in degrees, and what the acceleration boards show of gravity; both with their noise."""
        facts = self._facts
        angles = np.degrees(self.body.angles)
        if facts.flag("/AngularMotor/IncludeNoise"):
            deviation = abs(facts.number("/AngularMotor/SensorNoiseDeviation"))
            angles += self._random.normal(0.0, deviation, len(angles))
        shown = self._accelerations(gravity)
        deviation = abs(facts.number("/AccelSensor/Deviation"))
        if deviation > 0.0:
            shown += self._random.normal(0.0, deviation, len(shown))
        outputs = self.agents[0].outputs
        outputs[: len(angles)] = angles
        outputs[len(angles) :] = shown

    def _accelerations(self, gravity: float) -> NDArray[np.float64]:
        """Gravity along each axis of the boards, which is vertical, forward or sideways while the robot stands."""
        body = self.body
        thighs = [body.trunk - leg[2] for leg in body.bent.tolist()]
        leans = {"F": [body.pitch] * 2, "H": thighs}
        shown = []
        for part, side, axis, standing in self._axes:
            forward = leans.get(part, [body.trunk] * 2)[side]
            if axis == "vertical":
                shown.append(math.copysign(gravity, standing) * math.cos(forward) * math.cos(body.roll))
            else:
                shown.append(gravity * math.sin(forward if axis == "forward" else body.roll))
        return np.array(shown)

    def take_events(self) -> list[str]:
        """None: this world fires no event of its own."""
        return []


ROBOTS: Final[dict[str, type[ASeriesWorld | VolksbotWorld]]] = {
    "ASeries": ASeriesWorld,
    "Volksbot": VolksbotWorld,
}


def _tipped(angle: float, rate: float, ahead: float, behind: float, pull: float) -> tuple[float, float]:
    """Angle and rate of the feet, a step later: ``ahead`` and ``behind`` say how far beyond an edge the weight is."""
    if angle > 0.0 or (angle == 0.0 and ahead > 0.0):
        rate += pull * ahead * TIME_STEP
    elif angle < 0.0 or behind < 0.0:
        rate += pull * behind * TIME_STEP
    else:
        return 0.0, 0.0
    after = angle + rate * TIME_STEP
    return (0.0, 0.0) if angle * after < 0.0 else (after, rate)
