"""The simulation of a server: a world with its clock and its variable repository.

The repository has simulated time, step size, seed, every interface value, and the world's own variables. Names and
types as observed on a NERD server; the document has its own words for two of the types (OSP 1.1, section 4.5). Texts:
doubles with up to 15 significant digits, as C++ prints them, so that a float32 read back from its text is bit-equal.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from math import inf, isfinite
from typing import TYPE_CHECKING, Final, TypeVar

import re2

from ospbridge.errors import WorldFailed
from ospbridge.osp.codes import ITERATIONS, SEED, SIMULATION_TIME, TIME_STEP_SIZE
from ospbridge.osp.wire import INT_MAX, INT_MIN
from ospbridge.osp.world import Variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ospbridge.osp.profile import Profile
    from ospbridge.osp.world import World, WorldAgent

T = TypeVar("T")
LONGEST_EXPRESSION: Final = 1024
"""Longer expressions find nothing."""
EXPRESSION_MEMORY: Final = 64 * 1024
"""Bytes that a compiled expression may take: room for thousands of characters, not for products of repetitions."""

CONTROL_EVENTS: Final = (
    "/Control/NextStep",
    "/Control/StepCompleted",
    "/Control/ResetSimulation",
    "/Control/ResetSimulationFinalized",
)
"""Events of the server itself, named as on a NERD server: around those of a step, and around those of a reset."""

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
    return Variable(name, "Double", lambda: format_double(read()), _setter(parse_double, write))


def int_variable(
    name: str, read: Callable[[], int], write: Callable[[int], bool | None] | None = None
) -> Variable:
    """A variable of type Int, 32 bits. Without ``write`` clients cannot set it; ``write`` returns False to refuse."""
    return Variable(name, "Int", lambda: str(read()), _setter(parse_integer, write))


def bool_variable(
    name: str, read: Callable[[], bool], write: Callable[[bool], bool | None] | None = None
) -> Variable:
    """A variable of type Bool, "T" or "F". Without ``write`` clients cannot set it; it returns False to refuse."""
    return Variable(name, "Bool", lambda: "T" if read() else "F", _setter({"T": True, "F": False}.get, write))


def _setter(
    parse: Callable[[str], T | None], write: Callable[[T], bool | None] | None
) -> Callable[[str], bool]:
    def set_text(text: str) -> bool:
        value = parse(text)
        # A world that only assigns what it is given returns None.
        return write is not None and value is not None and write(value) in (None, True)

    return set_text


def text_variable(name: str, content: str = "") -> Variable:
    """A variable of type String, which keeps what clients set it to; its ``get()`` tells the world what that is."""
    held = [content]
    return Variable(name, "String", lambda: held[0], _setter(str, partial(held.__setitem__, 0)))


class Clock:
    """Simulated time: steps times step size, computed anew each time so that it does not drift."""

    def __init__(self, step_size: float) -> None:
        self.steps = 0
        """Steps since simulated time was zero."""
        self.seed = 0
        self.randomize_seed = False
        self.now = 0.0
        """The driver's time, as of the last datagram."""
        self.restarted_at: float | None = None
        self._base, self._base_steps = 0.0, 0
        self.step_size, self.iterations = step_size, 1

    @property
    def time(self) -> float:
        """Simulated seconds since the reset."""
        return self._base + (self.steps - self._base_steps) * (self.step_size * self.iterations)

    def restart(self) -> None:
        """Zero simulated time."""
        self.steps = 0
        self._go_on(time=0.0)
        self.restarted_at = self.now

    def _go_on(
        self, *, time: float | None = None, step_size: float | None = None, iterations: int | None = None
    ) -> bool:
        """Count on from a time in steps of a size; False for what no clock can show."""
        time = self.time if time is None else time
        step_size = self.step_size if step_size is None else step_size
        iterations = self.iterations if iterations is None else iterations
        possible = isfinite(time) and 0.0 < step_size < inf and 1 <= iterations <= 10_000
        if possible:
            self._base, self._base_steps = time, self.steps
            self.step_size, self.iterations = step_size, iterations
        return possible

    def variables(self) -> list[Variable]:
        """The entries below ``/Simulation``."""

        def real_time() -> float:
            return 0.0 if self.restarted_at is None else self.now - self.restarted_at

        return [
            double_variable(SIMULATION_TIME, lambda: self.time, lambda to: self._go_on(time=to)),
            double_variable("/Simulation/RealTime", real_time),
            double_variable(TIME_STEP_SIZE, lambda: self.step_size, lambda to: self._go_on(step_size=to)),
            int_variable(ITERATIONS, lambda: self.iterations, lambda to: self._go_on(iterations=to)),
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
        self._whole = profile.matches_whole_names
        variables = [*clock.variables(), text_variable("/CommandLineArguments/help")]
        for agent in world.agents:
            variables += _interface_variables(agent, profile)
        variables += world.variables
        self.variables: dict[str, Variable] = {}
        # A stable order: of two with the same name the first counts.
        for variable in sorted(variables, key=lambda each: each.name):
            kind = profile.integer_type if variable.type == "Int" else variable.type
            self.variables.setdefault(variable.name, replace(variable, type=kind))

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


class Simulation:
    """The world with its clock, its repository and the events that it may tell."""

    def __init__(self, world: World, profile: Profile) -> None:
        self.world = world
        self.clock = Clock(world.time_step)
        self.repository = Repository(world, self.clock, profile)
        self.event_names = frozenset((*CONTROL_EVENTS, *world.events))
        self._profile = profile

    def seed(self, requested: Sequence[int] = ()) -> int:
        """The seed of a reset; 0 for "don't care". Of several the last that is not 0 wins (OSP 1.1, section 4.6)."""
        seed = next((seed for seed in reversed(requested) if seed), 0)
        if seed and not self._profile.seeds_by_variable:
            return seed
        return 0 if self.clock.randomize_seed else self.clock.seed

    def reset(self, seed: int) -> list[str]:
        """Reset the world; returns the events that occurred, in order."""
        self._restart(seed)
        return [CONTROL_EVENTS[2], *self._world_events(), CONTROL_EVENTS[3]]

    def step(self) -> list[str]:
        """Run a step with the agents' inputs; returns the events that occurred, in order."""
        if self.clock.restarted_at is None:
            # The first step ever, with no reset before it. A NERD server loses its inputs.
            kept = [agent.inputs.copy() for agent in self.world.agents]
            self._restart(self.seed())
            if not self._profile.steps_before_reset:
                for agent, inputs in zip(self.world.agents, kept, strict=True):
                    agent.inputs[:] = inputs
        for _ in range(self.clock.iterations):
            self.world.step()
        self.clock.steps += 1
        return [CONTROL_EVENTS[0], *self._world_events(), CONTROL_EVENTS[1]]

    def _restart(self, seed: int) -> None:
        for agent in self.world.agents:
            agent.inputs[:] = agent.neutral
        self.world.reset(seed)
        self.clock.restart()

    def _world_events(self) -> list[str]:
        events = self.world.take_events()
        for event in events:
            if event not in self.event_names:
                declared = ", ".join(self.world.events) or "none"
                raise WorldFailed(
                    f"the world told of the event {event!r}; those it said it has: {declared}",
                    hint="name in the world's `events` all that its `take_events` may tell",
                )
        return events
