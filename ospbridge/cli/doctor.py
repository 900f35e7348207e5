"""``ospbridge doctor``: what keeps ospbridge from working here, and the fix for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ospbridge.cli.options import (
    SimulatorAddress,
    json_option,
    timeout_option,
    tls_options,
    trace_option,
    tracing,
    waiting_told,
)
from ospbridge.cli.output import Column, note, print_json, print_table
from ospbridge.cli.stopping import stoppable
from ospbridge.text import LINE, pluralize

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ospbridge.daemon.settings import Settings
    from ospbridge.diagnosis.checks import Check
    from ospbridge.interface import Endpoint
    from ospbridge.observe.trace import TraceWriter
    from ospbridge.transport.tls import TlsFiles

__all__ = ["doctor"]

EXIT_PROBLEM: Final = 1
"""Something needs mending."""
LOOPBACK: Final = ("127.", "::1", "localhost")


@click.command()
@click.option(
    "--simulator",
    type=SimulatorAddress(),
    metavar="HOST:PORT",
    help="See whether this simulator answers.",
)
@click.option(
    "--hub",
    metavar="ADDRESS",
    help="See whether a daemon answers at this hub: unix:PATH, or tls://HOST:PORT on another host.",
)
@tls_options
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Check this configuration of `ospbridge connect`, and the simulators that it names.",
)
@trace_option("Write every datagram that is exchanged with a simulator, with its meaning, to FILE.")
@timeout_option(5.0, when="a simulator or daemon has not answered")
@json_option(
    'Print a list of {"subject", "state", "detail", "fix"} with the state "ok", "advice", "problem" or "skipped".'
)
def doctor(
    *,
    simulator: Endpoint | None,
    hub: str | None,
    tls: TlsFiles | None,
    config: Path | None,
    trace: Path | None,
    timeout: float,
    as_json: bool,
) -> None:
    """Find what keeps ospbridge from working here.

    Checks what is installed, the machine, the places that ospbridge writes to, and what you name. Each problem comes
    with its fix. It changes nothing, and only asks a simulator questions.

    The exit code is 0 if there is no problem, else 1; advice is no problem.
    """
    from ospbridge.diagnosis.checks import State

    with stoppable(), waiting_told("looking around"), tracing(trace) as writer:
        found = list(_checks(simulator, hub, tls, config, trace=writer, timeout=timeout))
    if as_json:
        print_json(
            [{"subject": c.subject, "state": c.state.value, "detail": c.detail, "fix": c.fix} for c in found]
        )
    else:
        _show(found)
    if any(check.state is State.PROBLEM for check in found):
        raise click.exceptions.Exit(EXIT_PROBLEM)


def _checks(
    simulator: Endpoint | None,
    hub: str | None,
    tls: TlsFiles | None,
    config: Path | None,
    *,
    trace: TraceWriter | None,
    timeout: float,
) -> Iterator[Check]:
    from ospbridge.diagnosis import installation
    from ospbridge.diagnosis.checks import problem

    root = click.get_current_context().find_root()
    yield from installation.check_installation()
    try:
        from ospbridge.cli.variables import variables_of
        from ospbridge.diagnosis import machine, places, reaching
        from ospbridge.interface import DEFAULT_PORT
    except ImportError as error:
        yield problem("import", f"ospbridge cannot be imported: {error}", "pip install --upgrade ospbridge")
        return
    yield machine.check_variables(frozenset(variables_of(root.command, root)))
    yield machine.check_cores()
    yield machine.check_clock()
    yield machine.check_receive_buffer()
    configured, settings = _configuration(config) if config is not None else (None, [])
    if configured is not None:
        yield configured
    simulators = [simulator] if simulator is not None else []
    to_join = [each.simulator for each in settings if each.launch is None]
    simulators += [each for each in to_join if each not in simulators]
    ports = {each.port for each in simulators if each.host.startswith(LOOPBACK)}
    for port in sorted(ports) or ([] if simulators else [DEFAULT_PORT]):
        yield machine.check_port(port)
    yield places.check_runtime_directory()
    yield places.check_state_directory()
    yield from places.check_hub_sockets()
    yield places.check_leases()
    for each in simulators:
        yield from reaching.check_simulator(each, timeout=timeout, trace=trace)
    if hub is not None:
        yield reaching.check_hub(hub, timeout=timeout, tls=tls)


def _configuration(file: Path) -> tuple[Check, list[Settings]]:
    """What `ospbridge connect` would make of the file, and the simulators that it would join."""
    from ospbridge.cli.configured import configuration
    from ospbridge.cli.connect import connect
    from ospbridge.cli.variables import name_variables, told_plainly
    from ospbridge.diagnosis.checks import problem, well
    from ospbridge.errors import OspBridgeError

    subject = "configuration"
    name_variables(connect, "OSPBRIDGE_CONNECT")
    arguments = ["--config", str(file)]
    try:
        context = connect.make_context("connect", arguments, auto_envvar_prefix="OSPBRIDGE_CONNECT")
    except click.BadParameter as error:
        # Of a variable, which `ospbridge connect` would read too.
        wrong = told_plainly(error).format_message()
        return problem(subject, wrong, "set it to what `ospbridge connect --help` says, or unset it"), []
    try:
        with context:
            found = configuration(context, file)
            # Whether it may listen, and its token be read, is known only where it runs: a service has its own files.
            found.check_daemon()
            settings, feedings = found.settings(), found.feedings()
    except OspBridgeError as error:
        fix = error.hint or f"ospbridge config show --config {file}"
        return problem(subject, error.message, fix, error.lines), []
    told = [
        f"simulator {each.title}" if each.launch is None else f"launched simulator {each.launch.name}"
        for each in settings
    ]
    told += [f"RLlink server {each.upstream.address}" for each in feedings]
    return well(subject, f"{file}: {', '.join(told)}"), settings


def _show(found: list[Check]) -> None:
    from ospbridge.diagnosis.checks import State

    print_table(
        (Column("SUBJECT"), Column("STATE"), Column("WHAT WAS FOUND", most=LINE)),
        [
            (
                check.subject,
                check.state.value,
                check.lines[0].rstrip(":") if check.lines[1:] else check.detail,
            )
            for check in found
        ],
    )
    for check in found:
        for line in check.lines[1:]:
            note(f"{check.state.value}: {check.subject}: {line}")
        if check.fix:
            note(f"{check.state.value}: {check.subject}: {check.fix}")
    problems = sum(check.state is State.PROBLEM for check in found)
    if problems:
        note(f"{pluralize(problems, 'problem')} to mend")
