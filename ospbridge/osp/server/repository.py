"""The variable repository of a server: simulated time, step size, seed, every interface value, the world's own.

Names and types as observed on a NERD server; the document has its own words for two of the types (OSP 1.1, section
4.5). Texts: doubles with up to 15 significant digits, as C++ prints them, so that a float32 read back from its text
is bit-equal.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ospbridge.osp.client.clock import ITERATIONS, SIMULATION_TIME, TIME_STEP_SIZE
from ospbridge.osp.patterns import compiled
from ospbridge.osp.profile import Expression
from ospbridge.osp.wire import INT_MAX, INT_MIN
from ospbridge.osp.world import ValueKind, Variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ospbridge.osp.profile import Profile
    from ospbridge.osp.world import World, WorldAgent

__all__ = [
    "LONGEST_EXPRESSION",
    "Clock",
    "Repository",
    "bool_variable",
    "double_variable",
    "format_double",
    "int_variable",
    "parse_double",
    "text_variable",
]

LONGEST_EXPRESSION: Final = 1024
"""Longer expressions find nothing. Python's ``re`` has no time limit; a bound on the length is what there is."""

_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)", re.ASCII)
_INTEGER: Final = re.compile(r"[+-]?\d{1,10}", re.ASCII)


def format_double(value: float) -> str:
    """``value`` with up to 15 significant digits; "inf", "-inf" and "nan" as they are."""
    return f"{value:.15g}"


def parse_double(text: str) -> float | None:
    """The number in ``text``, also "inf" and "nan"; None if it is none."""
    return float(text) if _NUMBER.fullmatch(text) else None


def double_variable(
    name: str, read: Callable[[], float], write: Callable[[float], bool | None] | None = None
) -> Variable:
    """A variable of type Double. Without ``write`` clients cannot set it; ``write`` returns False to refuse."""

    def set_text(text: str) -> bool:
        value = parse_double(text)
        return value is not None and write is not None and _taken(write(value))

    return Variable(name, ValueKind.DOUBLE, lambda: format_double(read()), set_text)


def int_variable(
    name: str, read: Callable[[], int], write: Callable[[int], bool | None] | None = None
) -> Variable:
    """A variable of type Int, 32 bits. Without ``write`` clients cannot set it; ``write`` returns False to refuse."""

    def set_text(text: str) -> bool:
        if write is None or not _INTEGER.fullmatch(text):
            return False
        value = int(text)
        return INT_MIN <= value <= INT_MAX and _taken(write(value))

    return Variable(name, ValueKind.INT, lambda: str(read()), set_text)


def bool_variable(
    name: str, read: Callable[[], bool], write: Callable[[bool], bool | None] | None = None
) -> Variable:
    """A variable of type Bool, "T" or "F". Without ``write`` clients cannot set it; it returns False to refuse."""

    def set_text(text: str) -> bool:
        return write is not None and text in ("T", "F") and _taken(write(text == "T"))

    return Variable(name, ValueKind.BOOL, lambda: "T" if read() else "F", set_text)


def _taken(answer: bool | None) -> bool:
    """Whether a world took what it was given: one that only assigns it returns None."""
    return answer is None or bool(answer)


def text_variable(name: str, content: str = "") -> Variable:
    """A variable of type String, which keeps what clients set it to; its ``get()`` tells the world what that is."""
    held = [content]

    def set_text(text: str) -> bool:
        held[0] = text
        return True

    return Variable(name, ValueKind.STRING, lambda: held[0], set_text)


class Clock:
    """Simulated time: steps times step size, computed anew each time so that it does not drift."""

    def __init__(self, step_size: float) -> None:
        self.steps = 0
        """Steps since simulated time was zero."""
        self.step_size = step_size
        self.iterations = 1
        self.seed = 0
        self.randomize_seed = False
        self.real_start: float | None = None
        self.now = 0.0
        self._base = 0.0
        self._base_steps = 0

    @property
    def time(self) -> float:
        """Simulated seconds since the reset."""
        return self._base + (self.steps - self._base_steps) * (self.step_size * self.iterations)

    @property
    def real_time(self) -> float:
        """Seconds on the driver's clock since the reset, as of the last datagram."""
        return 0.0 if self.real_start is None else self.now - self.real_start

    def restart(self) -> None:
        """Zero simulated time."""
        self.steps = self._base_steps = 0
        self._base = 0.0
        self.real_start = self.now

    def _rebase(self) -> None:
        self._base, self._base_steps = self.time, self.steps

    def _set_step_size(self, value: float) -> bool:
        if not 0.0 < value < float("inf"):
            return False
        self._rebase()
        self.step_size = value
        return True

    def _set_iterations(self, value: int) -> bool:
        if not 1 <= value <= 10_000:
            return False
        self._rebase()
        self.iterations = value
        return True

    def _set_seed(self, value: int) -> bool:
        self.seed = value
        return True

    def _set_randomize(self, value: bool) -> None:
        self.randomize_seed = value

    def variables(self) -> list[Variable]:
        """The entries below ``/Simulation``."""
        return [
            double_variable(SIMULATION_TIME, lambda: self.time),
            double_variable("/Simulation/RealTime", lambda: self.real_time),
            double_variable(TIME_STEP_SIZE, lambda: self.step_size, self._set_step_size),
            int_variable(ITERATIONS, lambda: self.iterations, self._set_iterations),
            int_variable("/Simulation/Seed", lambda: self.seed, self._set_seed),
            bool_variable(
                "/Simulation/RandomizeSeedAtReset", lambda: self.randomize_seed, self._set_randomize
            ),
        ]


class Repository:
    """All variables of a server, by name."""

    def __init__(self, world: World, clock: Clock, profile: Profile) -> None:
        self._whole = profile.expression is Expression.WHOLE
        found: dict[str, Variable] = {}
        for variable in self._all(world, clock, profile):
            found.setdefault(variable.name, variable)
        self.variables: dict[str, Variable] = {name: found[name] for name in sorted(found)}

    @staticmethod
    def _all(world: World, clock: Clock, profile: Profile) -> Iterable[Variable]:
        def named(variables: Iterable[Variable]) -> Iterable[Variable]:
            return (replace(one, type=profile.type_names.get(one.type, one.type)) for one in variables)

        yield from named((*clock.variables(), text_variable("/CommandLineArguments/help")))
        for agent in world.agents:
            yield from _interface_variables(agent, profile)
        yield from named(world.variables)

    def find(self, expression: str) -> list[Variable]:
        """Variables whose name matches; none for an expression that is wrong or too long."""
        if len(expression) > LONGEST_EXPRESSION:
            return []
        try:
            pattern = compiled(expression)
        except re.error:
            return []
        match = pattern.fullmatch if self._whole else pattern.search
        return [variable for name, variable in self.variables.items() if match(name)]


def _interface_variables(agent: WorldAgent, profile: Profile) -> Iterable[Variable]:
    """Every interface value of an agent, readable as text; inputs also writeable, within their range."""
    face = agent.interface
    for values, array in (
        (face.inputs, agent.inputs),
        (face.outputs, agent.outputs),
        (face.infos, agent.infos),
    ):
        for index, value in enumerate(values):
            path = value.name if value.name.startswith("/") else "/" + value.name

            def read(index: int = index, array: object = array) -> str:
                return format_double(float(array[index]))  # type: ignore[index]  # one of the three arrays

            def write(text: str, index: int = index) -> bool:
                number = parse_double(text)
                if number is None:
                    return False
                low, high = float(agent.low[index]), float(agent.high[index])
                # Written so that NaN stays NaN, as it does in a request.
                agent.inputs[index] = min(max(number, low), high)
                return True

            yield Variable(
                f"/Sim/{face.name}{path}",
                value.name if profile.typed_by_interface else "NormalizedDouble",
                read,
                write if array is agent.inputs else None,
            )
