"""Arguments of environments that do not exist: a misspelt one is told with what was meant, as any other mistake."""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec

from ospbridge.errors import UsageError
from ospbridge.toml.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["told_apart"]

P = ParamSpec("P")


def told_apart(init: Callable[P, None]) -> Callable[P, None]:
    """An ``__init__`` that raises UsageError for a keyword that it does not take. Its signature stays."""
    known = [name for name in inspect.signature(init).parameters if name != "self"]
    kind = init.__qualname__.partition(".")[0]

    @wraps(init)
    def checked(*arguments: P.args, **options: P.kwargs) -> None:
        for name in options:
            if name not in known:
                raise UsageError(
                    f"{kind} has no argument {name!r}",
                    hint=nearest(name, known) or f"it has {', '.join(known)}",
                )
        init(*arguments, **options)

    return checked
