"""``ospbridge plot``: pictures of recordings and traces."""

from __future__ import annotations

import re
from pathlib import Path

import click

from ospbridge.cli.output import bar_of

__all__ = ["plot"]

SMALLEST, LARGEST = 200, 8000
"""Pixels, in either direction."""


def _size(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """Width and height in pixels."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d{1,5})[xX](\d{1,5})", value.strip())
    if found is None:
        raise click.BadParameter(f"{value!r} is no size such as 1080x720.", ctx, param)
    width, height = int(found[1]), int(found[2])
    if not (SMALLEST <= width <= LARGEST and SMALLEST <= height <= LARGEST):
        raise click.BadParameter(
            f"{value!r}: width and height are between {SMALLEST} and {LARGEST} pixels.", ctx, param
        )
    return width, height


@click.command()
@click.argument("path", metavar="DIR|FILE", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--output",
    "-o",
    "picture",
    required=True,
    metavar="PICTURE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw into this file, whose name ends with .png or .svg; an existing one is replaced.",
)
@click.option(
    "--signal",
    "signals",
    metavar="GLOB",
    multiple=True,
    help="Draw signals of episodes, such as reward, action/0, 'observation/*' or the name of an info; may be repeated.",
)
@click.option(
    "--agent",
    "agents",
    metavar="GLOB",
    multiple=True,
    help="Only episodes of agents whose names fit; may be repeated.",
)
@click.option(
    "--window",
    type=click.IntRange(1, 100_000),
    default=20,
    show_default=True,
    metavar="N",
    help="How many episodes a moving median is of.",
)
@click.option("--size", callback=_size, metavar="WxH", help="Width and height in pixels, such as 1080x720.")
@click.option("--dark", is_flag=True, help="Light lines on a dark ground.")
def plot(  # noqa: PLR0917  # click passes options by name
    path: Path,
    picture: Path,
    signals: tuple[str, ...],
    agents: tuple[str, ...],
    window: int,
    size: tuple[int, int] | None,
    dark: bool,
) -> None:
    """Draw recorded episodes, or the times of a trace.

    DIR is a directory of recordings (record=DIR, or --record): the picture shows the returns and lengths of the
    episodes, or with --signal the signals of the latest. FILE is one recording, for all its signals, or a trace written
    with --trace, for the times of its steps.
    """
    from ospbridge.plot.choosing import plot as draw
    from ospbridge.plot.looks import Looks

    with bar_of("reading") as progress:
        told = draw(
            path,
            picture,
            signals=signals,
            agents=agents,
            window=window,
            looks=Looks(dark=dark, size=size),
            progress=progress,
        )
    click.echo(f"{picture}: {told}")
