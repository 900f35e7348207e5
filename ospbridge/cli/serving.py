"""What `ospbridge connect` is told of itself, beside simulators and upstreams: its log, and what it lets others see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ospbridge.cli.options import log_options, with_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.interface import Endpoint

    ListeningType = click.ParamType[Endpoint]
else:
    ListeningType = click.ParamType  # became generic after the oldest click that serves

__all__ = ["ListeningAddress", "serving_options"]


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
