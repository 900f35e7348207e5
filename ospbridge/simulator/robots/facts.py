"""What a real robot announces: inputs, outputs and variables, read from the JSON file beside this module.

The files were written from the answers of a NERD server. Variables are held as text, as the server sends it.
"""

from __future__ import annotations

import json
import math
import re
from importlib import resources
from typing import TYPE_CHECKING, Final

from ospbridge.interface import InterfaceValue
from ospbridge.osp.repository import parse_double
from ospbridge.osp.world import Variable, WorldAgent

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["RobotFacts", "vector_text"]

INTEGER: Final = re.compile(r"[+-]?\d{1,10}", re.ASCII)
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

    def variables(self, moving: dict[str, Callable[[], str]]) -> list[Variable]:
        """All variables. ``moving`` reads those that the physics determines; a client cannot set these."""
        return [
            Variable(name, kind, moving[name]) if name in moving else self._stored(name, kind)
            for name, kind in self.types.items()
        ]

    def _stored(self, name: str, kind: str) -> Variable:
        def write(text: str) -> bool:
            if not _parses(kind, text):
                return False
            self.texts[name] = text
            return True

        return Variable(name, kind, lambda: self.texts[name], write)


def _parses(kind: str, text: str) -> bool:
    """Whether ``text`` is a content of that type; nothing is one of a type that only the server writes."""
    if kind == "Double":
        return parse_double(text) is not None
    if kind == "Int":
        return INTEGER.fullmatch(text) is not None
    if kind == "Bool":
        return text in ("T", "F")
    if kind in COMPONENTS:
        numbers = [parse_double(part) for part in text[1:-1].split(",")]
        framed = text.startswith("(") and text.endswith(")")
        # The physics has no answer to an infinite place.
        return framed and len(numbers) == COMPONENTS[kind] and all(map(_is_finite, numbers))
    return kind in TEXTS


def _is_finite(number: float | None) -> bool:
    return number is not None and math.isfinite(number)


def vector_text(*numbers: float) -> str:
    """A vector as a NERD server prints it: 8 significant digits, no spaces."""
    return f"({','.join(f'{number:.8g}' for number in numbers)})"
