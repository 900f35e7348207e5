"""``ospbridge sink``: an RLlink server that records episodes and hands out a policy."""

from __future__ import annotations

import signal
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ospbridge.cli.options import log_options
from ospbridge.cli.server_options import largest_option
from ospbridge.cli.serving import collect_seldom
from ospbridge.cli.stopping import run_until_asked

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from ospbridge.interface import Endpoint
    from ospbridge.sink.serving import Sink

__all__ = ["sink"]


@click.command()
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:5555",
    show_default=True,
    help="Where clients connect; port 0 takes a free one. Beyond this host only with TLS, or --insecure.",
)
@click.option(
    "--record",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write every episode that comes to DIR, one file each. Default: experience is counted only.",
)
@click.option(
    "--policy",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The policy for clients: an .onnx file, or an .npz file of weights. Read again when it changes.",
)
@click.option(
    "--env-steps",
    type=click.IntRange(1, 10_000_000),
    metavar="N",
    default=1000,
    show_default=True,
    help="How many steps a client is to send at once.",
)
@largest_option()
@click.option("--tls-cert", metavar="FILE", help="The sink's certificate, as PEM: it speaks TLS then.")
@click.option("--tls-key", metavar="FILE", help="The key of that certificate, as PEM.")
@click.option("--tls-ca", metavar="FILE", help="The CA that the clients' certificates must come from.")
@click.option("--insecure", is_flag=True, help="Listen for other hosts even without TLS.")
@log_options
def sink(  # noqa: PLR0917  # click passes options by name
    listen: str,
    record: Path | None,
    policy: Path | None,
    env_steps: int,
    largest_message: int,
    tls_cert: str | None,
    tls_key: str | None,
    tls_ca: str | None,
    insecure: bool,
    log_level: str,
    log_json: bool | None,
) -> None:
    """Run an RLlink server that records episodes and hands out a policy from a file.

    Use it where there is no RLlib. It prints its address, speaks both dialects, and learns nothing. SIGTERM and
    Ctrl-C end it with exit code 0.
    """
    from ospbridge.errors import ConfigurationError
    from ospbridge.observe import logs
    from ospbridge.sink.policy_file import PolicyFile
    from ospbridge.sink.serving import Sink
    from ospbridge.sink.store import Store
    from ospbridge.transport.addresses import is_loopback, parse_endpoint
    from ospbridge.transport.tls import DEFAULT_PORT, TlsFiles

    logs.configure(json=log_json, level=log_level)
    files = (tls_cert, tls_key, tls_ca)
    context = TlsFiles.of(*files).context(server=True) if any(files) else None
    hint = f"write HOST:PORT, for instance 127.0.0.1:{DEFAULT_PORT}"
    endpoint = parse_endpoint(
        listen, what="an address to listen at", hint=hint, default_port=DEFAULT_PORT, least_port=0
    )
    if context is None and not (insecure or endpoint.host == "localhost" or is_loopback(endpoint.host)):
        raise ConfigurationError(
            f"{endpoint} can be reached by other hosts, and without TLS anybody between could read and change what is "
            "sent",
            hint="name a certificate, its key and a CA, or insist with --insecure",
        )
    with nullcontext() if record is None else Store(record) as store:
        collect_seldom()
        served = Sink(
            store,
            None if policy is None else PolicyFile(policy),
            env_steps=env_steps,
            largest=largest_message,
        )
        run_until_asked(partial(_serve, served, endpoint, context), signal.SIGTERM, signal.SIGINT)


async def _serve(
    sink: Sink, endpoint: Endpoint, context: ssl.SSLContext | None, signals: AsyncIterator[int]
) -> None:
    import trio

    from ospbridge.errors import ConfigurationError
    from ospbridge.interface import Endpoint
    from ospbridge.observe import logs

    try:
        listeners = await trio.open_tcp_listeners(endpoint.port, host=endpoint.host)
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(
            f"cannot listen at {endpoint}: {getattr(error, 'strerror', None) or error}",
            hint="choose another HOST:PORT with --listen",
        ) from None
    host, port = listeners[0].socket.getsockname()[:2]
    click.echo(str(Endpoint(host, port)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sink.serve, listeners, context)
        async for _ in signals:
            break
        nursery.cancel_scope.cancel()
    logs.get(__name__).info("left", steps=sink.steps, repeated=sink.repeated, fragments=sink.fragments)
