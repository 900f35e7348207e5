"""Entries as the TOML file that says the same, with where each value is from behind it if asked for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ospbridge.config.keys import ABSENT
from ospbridge.text import LINE, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ospbridge.config.effective import Entry

__all__ = ["shown"]


def shown(entries: Iterable[Entry], *, origins: bool) -> str:
    """What nobody said and has no default is left out, as it would be in a file."""
    parts = []
    for entry in entries:
        lines = [entry.section.header]
        for name, value in entry.values.items():
            if value.said is not ABSENT and value.said != []:
                line = f"{name} = {_toml(value.said)}"
                lines.append(f"{line}  # {printable(value.origin, LINE)}" if origins else line)
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _toml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, str):
        # A JSON text is one of TOML, but for what neither shows to anybody. A file's name that is not UTF-8 can stand
        # in neither, and is shown so that no file takes it for another.
        text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        return text.encode("utf-8", "backslashreplace").decode()
    return json.dumps(value)


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("_", "a").replace("-", "a").isalnum()
    return name if bare else _toml(name)
