"""Which records of a trace a command is about: the options, and what they choose."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from ospbridge.cli.options import with_options
from ospbridge.osp.codes import Code

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.observe.trace import TraceRecord

__all__ = ["Choice", "choosing"]

_DIRECTIONS: Final = {"sent": "c>s", "received": "s>c", "note": "note"}
"""As a shell can be told them: `>` is none of its letters."""

F = TypeVar("F", bound="Callable[..., Any]")


@dataclass(frozen=True, slots=True)
class Choice:
    """Records that fit all that is asked; what is empty asks for nothing."""

    codes: frozenset[int] = frozenset()
    directions: frozenset[str] = frozenset()
    clients: frozenset[str] = frozenset()
    ports: frozenset[int] = frozenset()
    begin: float = -math.inf
    end: float = math.inf

    def __call__(self, record: TraceRecord) -> bool:
        """Whether it is chosen."""
        return (
            (not self.codes or (record.data != b"" and record.data[0] in self.codes))
            and (not self.directions or record.direction.value in self.directions)
            and (not self.clients or record.client in self.clients)
            and (not self.ports or record.port in self.ports)
            and self.begin <= record.time <= self.end
        )

    @property
    def all(self) -> bool:
        """Whether nothing was asked for."""
        return self == Choice()


def choosing(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options; its parameter ``choice`` has what they choose."""
    return with_options(command, _OPTIONS)


def _codes(ctx: click.Context, param: click.Parameter, names: tuple[str, ...]) -> frozenset[int]:
    """Codes by their names in the protocol, in any case, or by their numbers."""
    codes = set()
    for name in names:
        try:
            codes.add(Code(int(name)) if name.isdecimal() else Code[name.upper().removeprefix("UDP_")])
        except (KeyError, ValueError):
            import difflib

            close = difflib.get_close_matches(name.upper(), Code.__members__, n=3)
            way_out = f"Did you mean {' or '.join(close)}?" if close else "Names look like GET_VALUE."
            raise click.BadParameter(f"{name!r} is no code of OSP 1.1. {way_out}", ctx, param) from None
    return frozenset(codes)


def _collect(field: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A callback that puts an option's value into the command's ``choice``."""

    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        from dataclasses import replace

        choice = ctx.params.get("choice", Choice())
        if field == "codes":
            value = _codes(ctx, param, value)
        elif field == "directions":
            value = frozenset(_DIRECTIONS[name] for name in value)
        elif isinstance(value, tuple):
            value = frozenset(value)
        ctx.params["choice"] = choice if value is None else replace(choice, **{field: value})

    return callback


def _option(name: str, field: str, **settings: Any) -> Callable[[F], F]:
    return click.option(name, callback=_collect(field), expose_value=False, **settings)


_OPTIONS: Final[list[Callable[[Any], Any]]] = [
    _option(
        "--code",
        "codes",
        metavar="NAME",
        multiple=True,
        help="Only datagrams with this code, such as SET_VALUE or 52; may be repeated.",
    ),
    _option(
        "--direction",
        "directions",
        type=click.Choice(list(_DIRECTIONS)),
        multiple=True,
        help="Only what the client sent, what it received, or notes; may be repeated.",
    ),
    _option(
        "--client",
        "clients",
        metavar="NAME",
        multiple=True,
        help="Only records of this client; may be repeated.",
    ),
    _option(
        "--port",
        "ports",
        type=click.IntRange(0, 65535),
        metavar="N",
        multiple=True,
        help="Only datagrams from and to this port of the simulator; may be repeated.",
    ),
    _option(
        "--from",
        "begin",
        type=float,
        metavar="SECONDS",
        help="Only what came this late in the trace, or later.",
    ),
    _option(
        "--to",
        "end",
        type=float,
        metavar="SECONDS",
        help="Only what came this late in the trace, or earlier.",
    ),
]
