"""``ospbridge status``: what a running daemon does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from ospbridge.cli.options import NumberRange, hub_named_by_option, json_option, tls_options
from ospbridge.cli.output import say
from ospbridge.text import pluralize, printable

if TYPE_CHECKING:
    from ospbridge.hub.status import LaunchStatus, SpoolStatus, StatusReply, UpstreamStatus
    from ospbridge.transport.tls import TlsFiles

__all__ = ["launched_told", "status"]

PAUSE = 0.1


@click.command()
@click.option(
    "--hub",
    metavar="ADDRESS",
    help="The daemon's hub: unix:PATH, or tls://HOST:PORT on another host. "
    "Default: hub.sock in $RUNTIME_DIRECTORY or $XDG_RUNTIME_DIR/ospbridge, else in /run/ospbridge, where the system's "
    "service has it.",
)
@click.option(
    "--wait",
    type=NumberRange(0.0, 1e9),
    metavar="SECONDS",
    default=0.0,
    help="Wait until the daemon's agents are ready.",
)
@tls_options
@json_option("Print one JSON object.")
def status(
    *,
    hub: str | None,
    wait: float,
    tls: TlsFiles | None,
    as_json: bool,
) -> None:
    """Show what a running daemon does.

    The exit code is 0 once the daemon has joined its simulator and its agents can be attached to, else 69.
    """
    from ospbridge.errors import SimulatorNotFound

    found = _ask(hub, wait, tls)
    if as_json:
        import msgspec
        import orjson

        click.echo(orjson.dumps(msgspec.to_builtins(_plain(found)), option=orjson.OPT_INDENT_2))
    else:
        _show(found)
    if not found.ready:
        raise SimulatorNotFound(
            f"the daemon is not ready: {found.connection}",
            hint=f"wait longer with --wait; else {found.hint or f'see to the simulator at {found.simulator}'}",
        )


def _ask(hub: str | None, wait: float, tls: TlsFiles | None) -> StatusReply:
    """The daemon's answer: the first, or within ``wait`` seconds the one that says it is ready."""
    from ospbridge.errors import HubLost
    from ospbridge.session.hub_client import HubClient

    give_up = time.monotonic() + wait
    while True:
        left = max(give_up - time.monotonic(), 0.0)
        try:
            with hub_named_by_option():
                client = HubClient.connect(hub, wait=left, timeout=max(left, 5.0), spin=False, tls=tls)
            try:
                while not (found := client.status()).ready and time.monotonic() < give_up:
                    time.sleep(PAUSE)
                return found
            finally:
                client.close()
        except HubLost:
            # It went away while it was asked; another may take its place.
            if time.monotonic() >= give_up:
                raise


def _plain(found: StatusReply) -> dict[str, object]:
    import msgspec

    return {
        **msgspec.structs.asdict(found),
        "agents": [msgspec.structs.asdict(agent) for agent in found.agents],
        "upstreams": [msgspec.structs.asdict(upstream) for upstream in found.upstreams],
    }


def _show(found: StatusReply) -> None:
    say(f"daemon      ospbridge {found.version}, pid {found.pid}, up {found.uptime:.0f} s")
    say(f"simulator   {found.simulator}: {found.connection}" + f" ({found.profile})" * bool(found.profile))
    if found.launched is not None:
        say(f"launched    {launched_told(found.launched)}")
    done = (
        pluralize(found.steps, "step"),
        pluralize(found.resets, "reset"),
        pluralize(found.rebuilds, "rebuild"),
    )
    say(f"done        {', '.join(done)}")
    if found.recording is not None:
        say(
            f"recording   {found.recording.directory}: {pluralize(found.recording.recorded, 'episode')}, "
            f"{found.recording.dropped} dropped"
        )
    for upstream in found.upstreams:
        say(f"upstream    {_told(upstream)}")
    names = [printable(agent.name) for agent in found.agents]
    width = max(map(len, names), default=0)
    for name, agent in zip(names, found.agents, strict=True):
        driver = f" by {printable(agent.driver)}" if agent.driver else ""
        say(
            f"agent       {name:{width}}  {agent.state}{driver}, "
            f"{pluralize(agent.steps, 'step')}, {pluralize(agent.episodes, 'episode')} before"
        )


def launched_told(launched: LaunchStatus) -> str:
    """One line about a simulator that the daemon launched."""
    state = "does not run" if launched.pid is None else f"pid {launched.pid}"
    policy = ["SCHED_BATCH"] if launched.batch else []
    policy += [] if launched.core is None else [f"core {launched.core}"]
    how = f" ({', '.join(policy)})" if policy else ""
    return f"{launched.program}: {state}{how}, {pluralize(launched.restarts, 'restart')}, log {launched.log}"


def _told(upstream: UpstreamStatus) -> str:
    state = upstream.trouble or f"connected ({upstream.dialect})"
    if upstream.spool is not None:
        return (
            f"{upstream.mode} {upstream.address}: {state}, {pluralize(upstream.delivered, 'step')} delivered, "
            f"{upstream.discarded} discarded, {_spooled(upstream.spool)}"
        )
    weights = "none yet" if upstream.weights_seq_no is None else upstream.weights_seq_no
    return (
        f"{upstream.mode} {upstream.address}: {state}, weights {weights}, "
        f"{pluralize(upstream.batches, 'batch', 'batches')} of "
        f"{pluralize(upstream.steps, 'step')} learned, {pluralize(upstream.discarded, 'step')} discarded"
    )


def _spooled(spool: SpoolStatus) -> str:
    waiting = spool.entries + spool.unwritten
    wait = "waits" if waiting == 1 else "wait"
    told = (
        f"{pluralize(waiting, 'episode')} {wait} in {spool.file} "
        f"({pluralize(spool.bytes, 'byte')}), {spool.dropped} dropped"
    )
    return f"{told}; {spool.trouble}" if spool.trouble else told
