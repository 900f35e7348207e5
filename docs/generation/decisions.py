"""The tables of `docs/explanation/exactly-once.md`: what follows from what was found out behind a silence."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ospbridge.osp.clock import Moved
from ospbridge.osp.reset import RESET_TABLE
from ospbridge.osp.step import SOME, STEP_TABLE, Action

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["page"]

ANY: Final = "any"
ALONE: Final = {None: ANY, True: "control no agent", False: "control agents"}
OVERDUE: Final[dict[object, str]] = {None: ANY, True: "yes", False: "no"}
UNACKNOWLEDGED: Final[dict[object, str]] = {None: ANY, SOME: "some"}
RESET_ACTIONS: Final = {Action.RESTORE: "the reset is done"}
"""Where an action means another thing in a reset."""


def page(there: str) -> str:
    """The page with its tables as the code has them."""
    tables = {"STEP_TABLE": _step_table(), "RESET_TABLE": _reset_table()}
    for name, table in tables.items():
        there = re.sub(
            rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)",
            lambda found, table=table: found[1] + table + found[2],  # type: ignore[misc]  # bound in its own turn
            there,
            flags=re.DOTALL,
        )
    return there


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n" + "".join(f"|{'|'.join(line)}|\n" for line in lines) + "\n"


def _step_table() -> str:
    return _table(
        ("the clock says", "requests not acknowledged", "other clients", "overdue", "then", "because"),
        (
            (
                ANY if row.clock is None else Moved(row.clock).value,
                ANY if row.unacknowledged is None else " or ".join(row.unacknowledged),
                ALONE[row.alone],
                OVERDUE[row.overdue],
                row.action.value,
                row.reason,
            )
            for row in STEP_TABLE
        ),
    )


def _reset_table() -> str:
    return _table(
        (
            "the clock is back at zero",
            "requests not acknowledged",
            "other clients",
            "overdue",
            "then",
            "because",
        ),
        (
            (
                OVERDUE[row.clock],
                UNACKNOWLEDGED[row.unacknowledged],
                ALONE[row.alone],
                OVERDUE[row.overdue],
                RESET_ACTIONS.get(row.action, row.action.value),
                row.reason,
            )
            for row in RESET_TABLE
        ),
    )
