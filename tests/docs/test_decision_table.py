"""The decision tables in the documents are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ospbridge.osp.clock import Moved
from ospbridge.osp.codes import COMMAND_CLASS
from ospbridge.osp.echo import READ_AT_MOST
from ospbridge.osp.lateness import LATEST
from ospbridge.osp.lost_completions import UNSEEN
from ospbridge.osp.profile import PROFILES
from ospbridge.osp.recovery import RESET_TABLE, STEP_TABLE, Acknowledged, Row
from ospbridge.osp.resetting import LONGEST, USUAL, USUAL_UNSEEN

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "exactly-once.md"
MOVED = {
    Moved.NO: "unchanged",
    Moved.ONCE: "moved by one step",
    Moved.OTHERWISE: "moved otherwise",
    Moved.UNKNOWN: "no clock",
    None: "any",
}


def rendered(table: tuple[Row, ...]) -> str:
    """The table as Markdown."""
    lines = ["| acknowledged | clock | others | what is done | because |", "|---|---|---|---|---|"]
    for row in table:
        acknowledged = "any"
        if row.acknowledged is not None:
            acknowledged = " or ".join(kind.value for kind in Acknowledged if kind in row.acknowledged)
        others = {None: "any", True: "nobody else controls an agent", False: "others control agents"}[
            row.sole
        ]
        conditions = [
            text
            for value, yes, no in (
                (row.resent, "sent again already", "not sent again yet"),
                (row.punctual, "never a late datagram", "datagrams come late"),
                (row.hasty, "not so late yet", ""),
                (row.disowned, "completions were disowned long ago", ""),
                (row.doubled, "a vote acknowledged twice", ""),
                (row.trusted, "on a network without a fault so far", ""),
            )
            if (text := {None: "", True: yes, False: no}[value])
        ]
        what = f"**{row.action.name}**: {row.action.value}"
        cells = [", ".join([acknowledged, *conditions]), MOVED[row.moved], others, what, row.reason]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


@pytest.mark.parametrize("table", [STEP_TABLE, RESET_TABLE], ids=["step", "reset"])
def test_the_page_shows_the_table_of_the_code(table: tuple[Row, ...]) -> None:
    assert rendered(table) in PAGE.read_text()


def test_its_figures_and_classes_are_those_of_the_code() -> None:
    text = " ".join(PAGE.read_text().split())
    assert READ_AT_MOST == 8
    assert "eight of an agent at most" in text
    assert f"for {LATEST:g} s after the latest" in text
    for profile in PROFILES.values():
        assert f"a silence shorter than {1000 * profile.patience:g} ms" in text
    told = re.findall(r"^\| (\w+) \| [A-Z]|^\| (query|idempotent|barrier) \|", PAGE.read_text(), re.MULTILINE)
    assert f"for {USUAL:g} s" in text
    assert f"still be the same {UNSEEN:g} s behind the clock" in text
    assert f"{USUAL_UNSEEN:g} s where" in text
    assert LONGEST == 0.5
    assert "half of the reset limit at most" in text
    assert {one or other for one, other in told} == {kind.name.lower() for kind in COMMAND_CLASS.values()}
