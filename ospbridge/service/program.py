"""The program that the service is to run: this very one, by its absolute path."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from ospbridge.errors import UsageError

__all__ = ["needed_places", "quoted", "this_program", "unquoted"]


def this_program() -> tuple[str, ...]:
    """The words that start `ospbridge` from the environment that this process runs in."""
    beside = Path(sys.executable).parent / "ospbridge"
    if beside.is_file() and os.access(beside, os.X_OK):
        return (str(beside),)
    return (sys.executable, "-m", "ospbridge")


def needed_places() -> list[Path]:
    """What the service must be able to read to run this program."""
    interpreter = Path(sys.executable)
    return [
        interpreter,
        interpreter.resolve(),
        Path(sys.prefix),
        Path(sys.base_prefix).resolve(),
        Path(__file__).resolve().parents[1],
    ]


def quoted(word: str) -> str:
    """A word of a command line as a unit has it. Raises UsageError for one that no unit can have."""
    try:
        word.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"{word!r} is not UTF-8, as everything in a unit must be", hint="give it another name"
        ) from None
    if any(character < " " or character == "\x7f" for character in word):
        # Of a program's path systemd takes none, and what follows a line break would be a setting of its own.
        raise UsageError(
            f"{word!r} has a line break or another control character, which no path in a unit may have",
            hint="give it another name",
        )
    said = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    plain = (
        said == word and word and not any(character.isspace() or character in "'\";" for character in word)
    )
    return said if plain else f'"{said}"'


def unquoted(said: str) -> str:
    """The word that ``quoted`` made this of."""
    inner = said[1:-1] if len(said) > 1 and said[0] == said[-1] == '"' else said
    return re.sub(r'\\([\\"])|%(%)|\$(\$)', lambda found: found[found.lastindex or 0], inner)
