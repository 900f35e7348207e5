"""The options that environments of all kinds have, each declared once: its name, its type and its default.

A kind takes them as ``**given: Unpack[Options]``, so that a type checker knows them; ``spelled_out`` lists them in its
signature, for ``help`` and for whoever looks there.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any, Final, TypedDict, TypeVar, cast, get_type_hints

from ospbridge.osp.timing import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DEFAULTS", "MIB", "Options", "spelled_out"]

F = TypeVar("F", bound="Callable[..., object]")
LIMITS: Final = Limits()
MIB: Final = 1024 * 1024


class Options(TypedDict, total=False):
    """Behind each type stands its default. What they mean is told in ``AgentEnv``."""

    scenario: Annotated[str | None, None]
    launch: Annotated[Any, None]
    pin: Annotated[str | int | bool, "auto"]
    batch: Annotated[bool, True]
    not_finite: Annotated[str | None, None]
    profile: Annotated[str, "auto"]
    wait: Annotated[float, 0.0]
    connect_timeout: Annotated[float, LIMITS.connect]
    query_timeout: Annotated[float, LIMITS.query]
    step_timeout: Annotated[float, LIMITS.step]
    reset_timeout: Annotated[float, LIMITS.reset]
    memory_limit: Annotated[int, LIMITS.memory // MIB]
    spin: Annotated[bool, True]
    trace: Annotated[str | None, None]
    record: Annotated[str | None, None]
    tls_cert: Annotated[str | None, None]
    tls_key: Annotated[str | None, None]
    tls_ca: Annotated[str | None, None]
    render_mode: Annotated[str | None, None]
    annotates: Annotated[bool, False]


_PARAMETERS: Final = [
    inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=hint.__metadata__[0], annotation=hint.__origin__
    )
    for name, hint in get_type_hints(Options, include_extras=True).items()
]
DEFAULTS: Final = cast("Options", {each.name: each.default for each in _PARAMETERS})
"""Of all options: ``DEFAULTS | given`` are those that count."""


def spelled_out(function: F) -> F:
    """The same function; its signature lists the options that it takes as ``**given``."""
    signature = inspect.signature(function)
    *own, given = signature.parameters.values()
    assert given.kind is inspect.Parameter.VAR_KEYWORD
    function.__signature__ = signature.replace(parameters=[*own, *_PARAMETERS])  # type: ignore[attr-defined]
    return function
