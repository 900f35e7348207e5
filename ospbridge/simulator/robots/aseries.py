"""A stand-in for the A-Series: a humanoid of 21 motors that stands, falls, and walks if it is taught to.

The physics is a sketch, made to behave as the real robot was seen to: with all angles at 0 and full torque it stands;
without torque it is down within 150 steps; with random inputs within 50 to 150. Each joint is a motor with a velocity
and a limited torque. The two legs carry a trunk whose weight loads their pitch joints, and the robot tips over the edge
of its feet when its center of mass leaves them. A foot on the ground does not slip, so that legs that push backward
move the robot forward. Nothing else is computed: limbs do not collide, and arms, waist and head only move.

Sensors and motors have noise that no seed reaches, as ``/AccelSensor/Deviation``, ``/AngularMotor/MotorNoise``,
``/AngularMotor/SensorNoiseDeviation`` and ``/AngularMotor/IncludeNoise`` say. Lengths in meters, angles in radians, but
degrees in outputs; z is forward (component 2), x is to the left.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.simulator.robots.facts import RobotFacts, vector_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["ASeriesWorld"]

TIME_STEP: Final = 0.01

# --- the body ---------------------------------------------------------------------------------------------------------

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


class ASeriesWorld:
    """One agent, "ASeries", with 42 inputs (an angle and a torque for each motor) and 37 outputs."""

    def __init__(self) -> None:
        self.time_step = TIME_STEP
        self.events = ()
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
        head = "/Sim/ASeries/Middle/Head/Position"
        moving: dict[str, Callable[[], str]] = {
            head: lambda: vector_text(*self.head) if self._steps > 1 else self._facts.start[head]
        }
        self.variables = self._facts.variables(moving)
        self._random = np.random.default_rng()
        self.reset(0)

    def _board_axis(self, name: str) -> tuple[str, int, str, float]:
        """Of an acceleration sensor: part of the body, side, direction of the axis, and value while standing.

        "/ABFL/AccelAxis1" is on the left foot; the other parts are the femurs (H), the lower arms (A) and the trunk.
        """
        first = self._facts.number(f"/Sim/ASeries{name[:-1]}1")
        standing = self._facts.number(f"/Sim/ASeries{name}")
        if abs(standing) > 1.0:
            axis = "vertical"
        else:
            axis = "forward" if name.endswith("1") or abs(first) > 1.0 else "side"
        return name[3], int(name[4] == "L"), axis, standing

    def reset(self, seed: int) -> None:
        """Stand upright, at rest. No seed reaches the noise."""
        joints = len(self._joints)
        self._random = np.random.default_rng()
        self._angles: NDArray[np.float64] = np.zeros(joints)
        self._velocities: NDArray[np.float64] = np.zeros(joints)
        self._steps = 0
        self._share = 0.5
        """Of the weight, that the right leg carries."""
        self._pitch = self._pitch_rate = 0.0
        """How far the feet are tipped forward."""
        self._roll = self._roll_rate = 0.0
        """How far they are tipped to the left."""
        self._feet = [0.0, 0.0]
        """How far ahead of the hip they are, right and left."""
        self._center = 0.0
        """How far ahead of the hip the center of mass is."""
        self._ahead = self._balance()
        """How far the center of mass is ahead of what carries it."""
        self._hip = 0.0
        """How far the hip has come."""
        self._lying = False
        self._slides = 0.0
        """How far the head still slides once the robot lies."""
        self._bent = np.zeros((2, 3))
        """Ankle, knee and hip of each leg, positive where they bend."""
        self._trunk = 0.0
        """How far the trunk leans forward."""
        self.head = (0.0, ANKLE + SHIN + THIGH + HEAD_UP, HEAD_AHEAD)
        """Position of the head: x, height, z."""
        self.agents[0].outputs[:] = 0.0

    def _balance(self) -> float:
        """How far ahead of the hip the center of mass is while the trunk is upright."""
        arms = self._angles[self._shoulders]
        return (
            CENTER
            + PDA_AHEAD * self._facts.number(PDA) / MASS
            + ARMS_AHEAD * (math.sin(arms[1]) - math.sin(arms[0]))
        )

    def step(self) -> None:
        """Move the joints, then the body, then sense."""
        self._steps += 1
        gravity = self._facts.number("/Simulation/Gravitation")
        self._move_joints(gravity)
        self._bent = self._angles[self._legs] * self._bends
        if self._lying:
            self._slide()
        else:
            self._carry()
            self._tip(gravity)
        self._sense(gravity)

    # --- joints -------------------------------------------------------------------------------------------------------

    def _move_joints(self, gravity: float) -> None:
        """A motor reaches its desired velocity within its torque; what that does not hold, the load moves."""
        facts = self._facts
        inputs = self.agents[0].inputs.astype(np.float64)
        desired = np.clip(inputs[0::2] * RANGE, self._low, self._high)
        strength = max(facts.number("/AngularMotor/FMaxFactor") / STRENGTH, 0.0)
        fastest = abs(facts.number("/AngularMotor/MaxVelocity"))
        wanted = np.clip(GAIN * (desired - self._angles), -fastest, fastest)
        if facts.flag("/AngularMotor/IncludeNoise"):
            wanted += self._random.normal(0.0, abs(facts.number("/AngularMotor/MotorNoise")), len(wanted))
        free = self._velocities * FRICTION
        reach = inputs[1::2] * (LIGHT * strength)
        inertia, load = self._loads(gravity)
        held = inputs[1::2][self._legs] * (TORQUE * strength)
        excess = np.sign(load) * np.maximum(np.abs(load) - held, 0.0)
        free[self._legs] += self._bends * excess * TIME_STEP / (BACKWARD * inertia)
        reach[self._legs] = np.maximum(held - np.abs(load), 0.0) * TIME_STEP / inertia
        self._velocities = free + np.clip(wanted - free, -reach, reach)
        angles = self._angles + self._velocities * TIME_STEP
        self._angles = np.clip(angles, self._low, self._high)
        self._velocities[angles != self._angles] = 0.0

    def _loads(self, gravity: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Inertia, and torque of the weight in the direction that bends, at ankle, knee and hip of each leg."""
        inertia, load = np.empty((2, 3)), np.zeros((2, 3))
        for side, share in enumerate((self._share, 1.0 - self._share)):
            inertia[side] = [LIMB + share * body for body in LOADED]
            if self._lying:
                continue
            thigh = self._trunk - self._bent[side, 2]
            force = share * MASS * gravity
            load[side, 0] = force * self._ahead
            load[side, 1] = -force * (THIGH * math.sin(thigh) + self._center)
            load[side, 2] = force * self._center
        return inertia, load

    # --- body ---------------------------------------------------------------------------------------------------------

    def _carry(self) -> None:
        """Where feet, hip and center of mass are, with the feet where they were on the ground."""
        shares = self._share, 1.0 - self._share
        leans = self._bent @ (1.0, -1.0, 1.0)
        # Where one leg is ahead of the other, their soles roll: only what both have in common leans the trunk.
        self._trunk = trunk = self._pitch + float(leans.sum()) / 2
        before, reaches = self._feet, []
        self._feet = []
        for ankle_knee_hip in self._bent:
            thigh = trunk - ankle_knee_hip[2]
            shin = thigh + ankle_knee_hip[1]
            self._feet.append(-THIGH * math.sin(thigh) - SHIN * math.sin(shin))
            reaches.append(THIGH * math.cos(thigh) + SHIN * math.cos(shin))
        right, left = self._feet
        self._hip -= shares[0] * (right - before[0]) + shares[1] * (left - before[1])
        self._height = ANKLE + max(shares[0] * reaches[0] + shares[1] * reaches[1], 0.0)
        # The longer leg carries; the weight needs a few steps to go over to it.
        longer = min(max((reaches[0] - reaches[1]) / LONGER, -30.0), 30.0)
        self._share += SHIFT * (1.0 / (1.0 + math.exp(-longer)) - self._share)
        self._center = TRUNK * math.sin(trunk) + self._balance() * math.cos(trunk)
        self._ahead = self._center - (self._share * right + (1.0 - self._share) * left)

    def _tip(self, gravity: float) -> None:
        """Over the edges of the feet that carry, forward, backward or to a side; then the head's position."""
        carrying = [
            foot
            for foot, share in zip(self._feet, (self._share, 1.0 - self._share), strict=True)
            if share > CARRIES
        ] or self._feet
        tall = self._height - ANKLE + TRUNK
        ahead = self._center - (max(carrying) + TOE)
        behind = self._center - (min(carrying) + HEEL)
        self._pitch, self._pitch_rate = _tipped(
            self._pitch, self._pitch_rate, ahead, behind, gravity / (tall * tall)
        )
        sway = float(self._angles[self._swaying].sum()) / 4
        beside = (tall + ANKLE) * math.sin(sway + self._roll)
        self._roll, self._roll_rate = _tipped(
            self._roll, self._roll_rate, beside - SIDE, beside + SIDE, gravity / (tall * tall)
        )
        up = HEAD_UP * math.cos(self._trunk) - HEAD_AHEAD * math.sin(self._trunk)
        ahead_of_hip = HEAD_UP * math.sin(self._trunk) + HEAD_AHEAD * math.cos(self._trunk)
        sunk = SETTLES * (1.0 - math.exp(-self._steps / 3.0))
        height = (self._height + up) * math.cos(self._roll) - sunk
        if height < LYING:
            self._lying, height = True, LYING
            self._slides = SLIDES * math.sin(self._trunk)
        side = (self._height + HEAD_UP) * math.sin(sway + self._roll)
        self.head = side, height, self._hip + ahead_of_hip

    def _slide(self) -> None:
        """Along the ground, a little further in the direction of the fall."""
        side, height, ahead = self.head
        self._slides *= 0.9
        self.head = side, height, ahead + 0.1 * self._slides

    # --- sensors ------------------------------------------------------------------------------------------------------

    def _sense(self, gravity: float) -> None:
        """Joint angles in degrees, and what the acceleration boards show of gravity; both with their noise."""
        facts = self._facts
        angles = np.degrees(self._angles)
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
        thighs = [self._trunk - leg[2] for leg in self._bent.tolist()]
        leans = {"F": [self._pitch] * 2, "H": thighs}
        shown = []
        for part, side, axis, standing in self._axes:
            forward = leans.get(part, [self._trunk] * 2)[side]
            if axis == "vertical":
                shown.append(math.copysign(gravity, standing) * math.cos(forward) * math.cos(self._roll))
            else:
                shown.append(gravity * math.sin(forward if axis == "forward" else self._roll))
        return np.array(shown)

    def take_events(self) -> list[str]:
        """None: this world fires no event of its own."""
        return []


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
