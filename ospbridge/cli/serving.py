"""What `ospbridge connect` is told of itself, beside simulators and upstreams: its log, and what it lets others see.

And what programs that run for days settle before they begin: descriptors, and Python's collector of reference cycles.
"""

from __future__ import annotations

import gc
import resource
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click

from ospbridge.cli.options import log_options, with_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.interface import Endpoint

    ListeningType = click.ParamType[Endpoint]
else:
    ListeningType = click.ParamType  # became generic after the oldest click that serves

__all__ = ["ListeningAddress", "allow_many", "collect_seldom", "serving_options"]

AFTER: Final = 20_000
"""Objects that may be made, and not freed, until it looks through them: Python's own 700 are there after a few steps of
many agents, or a fraction of an episode, and hardly any of them is garbage."""
ENOUGH: Final = 65_536
"""Sixteen hubs with all the connections that each takes, and what these share with the daemon."""


class ListeningAddress(ListeningType):
    """PORT of the loopback interface, or HOST:PORT; port 0 takes a free one."""

    name = "HOST:PORT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Endpoint:
        """Parse the address."""
        from ospbridge.errors import ConfigurationError
        from ospbridge.interface import Endpoint
        from ospbridge.transport.addresses import parse_endpoint

        if isinstance(value, Endpoint):
            return value
        text = str(value)
        try:
            return parse_endpoint(
                text if ":" in text else f"127.0.0.1:{text}",
                what="an address to listen at",
                hint="write PORT or HOST:PORT, for instance 127.0.0.1:9464; port 0 takes a free one",
                default_port=None,
                least_port=0,
            )
        except ConfigurationError as error:
            self.fail(f"{error.message}; {error.hint}.", param, ctx)


def serving_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add them."""
    return with_options(log_options(command), _OPTIONS)


_OPTIONS = (
    click.option(
        "--metrics",
        type=ListeningAddress(),
        metavar="[HOST:]PORT",
        help="Serve metrics to Prometheus at http://HOST:PORT/metrics. Default host: 127.0.0.1.",
    ),
)


def collect_seldom() -> None:
    """Have it look after more new objects, and never again at what is there by now: the modules and their code."""
    gc.collect()
    gc.freeze()
    _, *others = gc.get_threshold()
    gc.set_threshold(AFTER, *others)


def allow_many() -> None:
    """As many as the system lets this user have.

    The usual 1,024 are for programs that use ``select``, and the environments of several simulators may need more: the
    one that takes the last would keep the daemon from its simulators and from its recordings.
    """
    # A service manager may forbid it, as in our units, which say LimitNOFILE= themselves.
    with suppress(OSError, ValueError):
        allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = ENOUGH if most == resource.RLIM_INFINITY else min(ENOUGH, most)
        if allowed != resource.RLIM_INFINITY and allowed < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
