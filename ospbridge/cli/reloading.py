"""What a running daemon does with a configuration that changed: what can be taken over, and what needs a restart."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from ospbridge.cli.configured import configuration
from ospbridge.observe import logs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import click

    from ospbridge.cli.configured import Configuration
    from ospbridge.observe.recent import Recent

__all__ = ["reloader"]

log = logs.get(__name__)
TAKEN_OVER: Final = ("daemon.log_level", "daemon.log_json")


def reloader(
    context: click.Context, file: Path | None, began: Configuration, recent: Recent | None = None
) -> Callable[[], None] | None:
    """Reads ``file`` again, and says what is taken over. Raises ConfigurationError, UsageError for its mistakes.

    None for a daemon at a terminal: SIGHUP tells it that the terminal was closed.
    """
    if sys.stdin is not None and sys.stdin.isatty():
        return None
    before = _said(began)

    def reload() -> None:
        found = configuration(context, file)
        # What cannot work is told now, and not at the next start.
        found.check()
        after = _said(found)
        changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
        logs.configure(json=found.daemon["log_json"], level=found.daemon["log_level"], recent=recent)
        log.info(
            "configuration read again",
            file=str(file) if file is not None else None,
            taken_over=[key for key in changed if key in TAKEN_OVER],
            needs_restart=[key for key in changed if key not in TAKEN_OVER],
        )
        for key in TAKEN_OVER:
            before[key] = after.get(key)

    return reload


def _said(found: Configuration) -> dict[str, Any]:
    """Every value by its key path."""
    said: dict[str, Any] = {}
    counts: dict[str, int] = {}
    for entry in found.entries:
        name = entry.section.name
        at = counts[name] = counts.get(name, -1) + 1
        path = name if entry.section.single else f"{name}[{at}]"
        for key, value in entry.values.items():
            said[f"{path}.{key}"] = value.said
    return said
