"""``ospbridge export``: recordings for other programs."""

from __future__ import annotations

from pathlib import Path

import click

from ospbridge.cli.output import bar_of, note
from ospbridge.cli.stopping import stoppable
from ospbridge.text import pluralize

__all__ = ["export"]


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--minari",
    "name",
    metavar="NAME",
    required=True,
    help="Make a Minari dataset of this name, such as cart/random-v0.",
)
@click.option(
    "--agent",
    "agents",
    metavar="GLOB",
    multiple=True,
    help="Export the agents whose names fit; may be repeated. Default: all.",
)
def export(directory: Path, name: str, agents: tuple[str, ...]) -> None:
    """Make a dataset of recorded episodes.

    DIR is a directory of recordings (record=DIR, or --record). The dataset is written where Minari keeps its own, below
    $MINARI_DATASETS_PATH if that is set; minari.load_dataset(NAME) loads it, and its recover_environment() makes the
    environment again.
    """
    from ospbridge.record.export import export_minari

    said: list[str] = []
    # Whoever is told to end leaves no part of a dataset.
    with stoppable(), bar_of("episodes") as progress:
        episodes, steps, path = export_minari(
            directory, name, agents=agents, progress=progress, say=said.append
        )
    for text in said:
        note(text)
    click.echo(f"{name}: {pluralize(episodes, 'episode')}, {pluralize(steps, 'step')}, in {path}")
