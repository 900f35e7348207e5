"""The variable repository of a server: simulated time, step size, seed, every interface value, the world's own.

Names and types as observed on a NERD server; the document has its own words for two of the types (OSP 1.1, section
4.5). Texts: doubles with up to 15 significant digits, as C++ prints them, so that a float32 read back from its text
is bit-equal.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Final, TypeVar

import re2

from ospbridge.osp.codes import ITERATIONS, SEED, SIMULATION_TIME, TIME_STEP_SIZE
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
    "compile_expression",
    "double_variable",
    "format_double",
    "int_variable",
    "parse_double",
    "text_variable",
]

T = TypeVar("T")
LONGEST_EXPRESSION: Final = 1024
"""Longer expressions find nothing."""
EXPRESSION_MEMORY: Final = 64 * 1024
"""Bytes that a compiled expression may take: room for thousands of characters, not for products of repetitions."""

_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)", re.ASCII)
_INTEGER: Final = re.compile(r"[+-]?\d{1,10}", re.ASCII)


def compile_expression(expression: str) -> re.Pattern[str]:
    """The pattern of a peer's regular expression, whose matching takes time in proportion to the text.

    Raises re.error for an expression that is wrong or too large. It has no backreferences and does not look around.
    """
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = EXPRESSION_MEMORY
    try:
        pattern: re.Pattern[str] = re2.compile(expression, options)
    except (re2.error, UnicodeEncodeError) as error:
        wrong = error.args[0]
        raise re.error(wrong.decode(errors="replace") if isinstance(wrong, bytes) else str(error)) from None
    finally:
        re2.purge()  # what a peer made up is not kept
    return pattern


def format_double(value: float) -> str:
    """``value`` with up to 15 significant digits; "inf", "-inf" and "nan" as they are."""
    return f"{value:.15g}"


def parse_double(text: str) -> float | None:
    """The number in ``text``, also "inf" and "nan"; None if it is none."""
    return float(text) if _NUMBER.fullmatch(text) else None


def parse_integer(text: str) -> int | None:
    """The 32-bit integer in ``text``; None if it is none."""
    return int(text) if _INTEGER.fullmatch(text) and INT_MIN <= int(text) <= INT_MAX else None


def double_variable(
    name: str, read: Callable[[], float], write: Callable[[float], bool | None] | None = None
) -> Variable:
    """A variable of type Double. Without ``write`` clients cannot set it; ``write`` returns False to refuse."""
    return _variable(name, ValueKind.DOUBLE, lambda: format_double(read()), parse_double, write)


def int_variable(
    name: str, read: Callable[[], int], write: Callable[[int], bool | None] | None = None
) -> Variable:
    """A variable of type Int, 32 bits. Without ``write`` clients cannot set it; ``write`` returns False to refuse."""
    return _variable(name, ValueKind.INT, lambda: str(read()), parse_integer, write)


def bool_variable(
    name: str, read: Callable[[], bool], write: Callable[[bool], bool | None] | None = None
) -> Variable:
    """A variable of type Bool, "T" or "F". Without ``write`` clients cannot set it; it returns False to refuse."""
    return _variable(name, ValueKind.BOOL, lambda: "T" if read() else "F", {"T": True, "F": False}.get, write)


def _variable(
    name: str,
    kind: str,
    read: Callable[[], str],
    parse: Callable[[str], T | None],
    write: Callable[[T], bool | None] | None,
) -> Variable:
    def set_text(text: str) -> bool:
        value = parse(text)
        # A world that only assigns what it is given returns None.
        return write is not None and value is not None and write(value) in (None, True)

    return Variable(name, kind, read, set_text)


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

    def _set_time(self, value: float) -> bool:
        if not isfinite(value):
            return False
        self._base, self._base_steps = value, self.steps
        return True

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

    def variables(self) -> list[Variable]:
        """The entries below ``/Simulation``."""
        return [
            double_variable(SIMULATION_TIME, lambda: self.time, self._set_time),
            double_variable("/Simulation/RealTime", lambda: self.real_time),
            double_variable(TIME_STEP_SIZE, lambda: self.step_size, self._set_step_size),
            int_variable(ITERATIONS, lambda: self.iterations, self._set_iterations),
            int_variable(SEED, lambda: self.seed, partial(setattr, self, "seed")),
            bool_variable(
                "/Simulation/RandomizeSeedAtReset",
                lambda: self.randomize_seed,
                partial(setattr, self, "randomize_seed"),
            ),
        ]


class Repository:
    """All variables of a server, by name."""

    def __init__(self, world: World, clock: Clock, profile: Profile) -> None:
        self._whole = profile.expression is Expression.WHOLE
        found: dict[str, Variable] = {}
        for variable in _all_variables(world, clock, profile):
            found.setdefault(variable.name, variable)
        self.variables: dict[str, Variable] = {name: found[name] for name in sorted(found)}

    def find(self, expression: str) -> list[Variable]:
        """Variables whose name matches; none for an expression that is wrong, too long or too large."""
        if len(expression) > LONGEST_EXPRESSION:
            return []
        try:
            pattern = compile_expression(expression)
        except re.error:
            return []
        match = pattern.fullmatch if self._whole else pattern.search
        # Half of a surrogate pair in a world's name has no bytes to match.
        return [
            variable
            for name, variable in self.variables.items()
            if match(name if name.isascii() else name.encode("utf-8", "replace").decode())
        ]


def _all_variables(world: World, clock: Clock, profile: Profile) -> Iterable[Variable]:
    """Every variable; of two with the same name the first counts."""
    for variable in (*clock.variables(), text_variable("/CommandLineArguments/help")):
        yield _typed(variable, profile)
    for agent in world.agents:
        yield from _interface_variables(agent, profile)
    for variable in world.variables:
        yield _typed(variable, profile)


def _typed(variable: Variable, profile: Profile) -> Variable:
    return replace(variable, type=profile.integer_type) if variable.type == ValueKind.INT else variable


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
            write = partial(_write_input, agent, index) if array is agent.inputs else None
            variable = double_variable(f"/Sim/{face.name}{path}", partial(array.item, index), write)
            yield replace(variable, type=profile.interface_type or value.name)


def _write_input(agent: WorldAgent, index: int, number: float) -> None:
    # Written so that NaN stays NaN, as it does in a request.
    agent.inputs[index] = min(max(number, float(agent.low[index])), float(agent.high[index]))
