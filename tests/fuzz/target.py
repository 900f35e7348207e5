"""What a fuzz target is, and where its corpus lies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.fuzz.mutating import Mutate, bend

CORPUS = Path(__file__).parent / "corpus"
"""A directory a target: files as they are, or `.hex` with an input a line. In `recorded.hex` is the shortest input of
each shape that recordings of real peers and the examples of tests have, in `found.hex` what fuzzing found."""


@dataclass(frozen=True)
class Target:
    """``run`` takes any bytes and lets only bugs out: what it is documented to raise, it swallows itself."""

    name: str
    run: Callable[[bytes], None]
    mutate: Mutate = bend
    inputs: int = 20_000
    """How many an ordinary test run tries."""
    long: int = 1_000_000
    """How many the long check tries."""

    @cached_property
    def corpus(self) -> dict[str, bytes]:
        """By name: the lines of hexadecimal files, and other files as they are."""
        found: dict[str, bytes] = {}
        for path in sorted((CORPUS / self.name).iterdir()):
            if path.suffix != ".hex":
                found[path.name] = path.read_bytes()
                continue
            for number, line in enumerate(path.read_text().splitlines(), start=1):
                text = line.partition("#")[0].strip()
                if text or not line:
                    found[f"{path.name}:{number}"] = bytes.fromhex(text)
        return found
