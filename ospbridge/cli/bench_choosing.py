"""``--only``: some of the subjects of a measurement, by how their names begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.cli.options import Decorator

__all__ = ["chosen", "only_option"]


def only_option(help_text: str) -> Decorator:
    """``--only``, as often as it is given; ``chosen`` makes names of it."""
    return click.option("--only", multiple=True, metavar="NAME", help=help_text)


def chosen(only: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """The names that are wanted; a usage error for what begins none of them."""
    wanted: list[str] = []
    for start in only:
        found = [name for name in names if name.lower().startswith(start.lower())]
        if not found:
            raise click.BadParameter(
                f"{start!r} begins no name; there are {', '.join(map(repr, names))}.", param_hint="--only"
            )
        # A name in full means that one alone, although others begin with it.
        exact = [name for name in found if name.lower() == start.lower()]
        wanted += exact or found
    return tuple(wanted)
