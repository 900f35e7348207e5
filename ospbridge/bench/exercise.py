"""What the subjects of a measurement do in each of their turns, and so what a user may ask for.

The module imports nothing that takes long: the options of ``ospbridge bench`` have their defaults from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["AGENTS", "FLEET", "HUB", "STEP", "Exercise"]


@dataclass(frozen=True, slots=True)
class Exercise:
    """So many steps, of agents with so many inputs and outputs, at a server of this kind."""

    inputs: int = 8
    outputs: int = 16
    steps: int = 200
    profile: str = "document"

    def parameters(self, runs: int) -> dict[str, int | str]:
        """For a report of so many runs."""
        return {
            "inputs": self.inputs,
            "outputs": self.outputs,
            "steps": self.steps,
            "runs": runs,
            "profile": self.profile,
        }


STEP: Final = Exercise(steps=500)
AGENTS: Final = Exercise(steps=200)
FLEET: Final = Exercise(steps=100)
HUB: Final = Exercise(steps=200)
"""Of each measurement of that name, unless something else is asked for."""
