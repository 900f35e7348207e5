"""``ospbridge check``: every mistake of a scenario, before it costs a training run."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ospbridge.cli.completion import scenarios
from ospbridge.cli.options import (
    SimulatorAccess,
    SimulatorAddress,
    json_option,
    profile_option,
    timeout_option,
    trace_option,
)
from ospbridge.cli.output import note, print_json, say
from ospbridge.cli.stopping import stoppable
from ospbridge.text import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.envs.checking import Findings
    from ospbridge.interface import Endpoint
    from ospbridge.task.scenario import Scenario

__all__ = ["check"]


@click.command()
@click.argument("file", shell_complete=scenarios)
@click.option(
    "--simulator",
    type=SimulatorAddress(),
    metavar="HOST:PORT",
    help="Look there too whether all agents, names, values and events exist.",
)
@profile_option("Which kind of OSP server it is; auto finds out.")
@timeout_option()
@trace_option()
@json_option(
    'Print {"file", "mistakes", "lines", "agents", "unchecked"}: lists of texts; lines has the number of the line of '
    "each mistake, or null."
)
def check(
    *,
    file: str,
    simulator: Endpoint | None,
    profile: str,
    timeout: float,
    trace: Path | None,
    as_json: bool,
) -> None:
    """Find the mistakes of a scenario.

    FILE is a TOML file, or the name of a scenario that comes with ospbridge. Each mistake is printed on a line of its
    own, with its line and key path; the exit code is then 78. A class that the scenario names is imported. If events
    cannot be tried safely at the simulator, the result says so in place of "no mistakes".
    """
    from ospbridge.envs.checking import Findings, held_against, importable, misused_vectors
    from ospbridge.errors import ScenarioInvalid
    from ospbridge.task.loading import find, load

    if simulator is None:
        _refuse_of_simulator()
    path = find(file)
    findings = Findings()
    scenario: Scenario | None = None
    try:
        scenario = load(file)
        findings.mistakes += importable(scenario) + misused_vectors(scenario)
    except ScenarioInvalid as error:
        findings.mistakes += error.mistakes or [error.message]
    if simulator is not None and scenario is not None and not findings.mistakes:
        with stoppable(), SimulatorAccess(simulator, profile, trace, timeout).session() as session:
            findings = held_against(scenario, session)
    findings.mistakes, lines = _in_order(findings.mistakes, _lines(path, findings.mistakes))
    if as_json:
        print_json(
            {
                "file": str(path),
                "mistakes": findings.mistakes,
                "lines": lines,
                "agents": findings.agents,
                "unchecked": findings.unchecked,
            }
        )
    else:
        _show(path, findings, lines, simulator)
    if findings.mistakes:
        raise click.exceptions.Exit(ScenarioInvalid.exit_code)


def _refuse_of_simulator() -> None:
    """Raises UsageError for an option that says how to speak to a simulator, where none is named."""
    from ospbridge.errors import UsageError

    context = click.get_current_context()
    for name in ("profile", "timeout", "trace"):
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise UsageError(
                f"--{name} was given, but no simulator to look at", hint="add --simulator HOST:PORT"
            )


def _lines(path: Path, mistakes: Sequence[str]) -> list[int | None]:
    """Of each mistake; None where it has none, as in a file that is no TOML."""
    import tomllib

    from ospbridge.toml.lines import Lines

    try:
        text = path.read_text(encoding="utf-8-sig")
        tomllib.loads(text)
    except (OSError, ValueError, RecursionError):
        return [None for _ in mistakes]
    lines = Lines(text)
    return [lines.of(mistake) for mistake in mistakes]


def _in_order(mistakes: Sequence[str], lines: Sequence[int | None]) -> tuple[list[str], list[int | None]]:
    """Both in the order of the lines; behind them what has none."""
    order = sorted(range(len(lines)), key=lambda at: lines[at] or inf)
    return [mistakes[at] for at in order], [lines[at] for at in order]


def _show(path: Path, findings: Findings, lines: Sequence[int | None], simulator: Endpoint | None) -> None:
    for mistake, line in zip(findings.mistakes, lines, strict=True):
        place = path if line is None else f"{path}:{line}"
        say(f"{place}: {' '.join(mistake.split())}")
    if findings.mistakes:
        for what in findings.unchecked:
            note(what)
        return
    if simulator is None:
        click.echo(f"{path}: no mistakes")
        return
    # What was not tried may be a mistake.
    result = "; ".join(findings.unchecked) or "no mistakes"
    say(f"{path}: {result}; {simulator} has {listed(findings.agents)}")
