"""The environment variables that are set: those that begin as ours do, and that nothing reads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from ospbridge.diagnosis.checks import Check, advice, well
from ospbridge.toml.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["check_variables"]

OURS: Final = "OSPBRIDGE_"
SUBJECT: Final = "variables"


def check_variables(known: Collection[str]) -> Check:
    """Whether each that is set is one of those ``known``: a misspelt one is passed over in silence by all commands."""
    given = sorted(name for name in os.environ if name.startswith(OURS))
    strange = [name for name in given if name not in known]
    if strange:
        meant = " ".join(filter(None, (nearest(name, known) for name in strange)))
        return advice(
            SUBJECT,
            f"no option is set by {', '.join(strange)}",
            meant
            or "OSPBRIDGE_, the command, and the option as it is written: docs/reference/cli.md lists them all",
        )
    return well(
        SUBJECT, f"options are set by {', '.join(given)}" if given else f"no option is set by {OURS}..."
    )
