"""The decision tables in the documents are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ospbridge.osp.client.clock import Moved
from ospbridge.osp.client.resetting import LONGEST, USUAL, USUAL_UNSEEN
from ospbridge.osp.codes import COMMAND_CLASS
from ospbridge.osp.profile import PROFILES
from ospbridge.osp.step.echo import READ_AT_MOST
from ospbridge.osp.step.lateness import LATEST
from ospbridge.osp.step.lost_completions import UNSEEN
from ospbridge.osp.step.recovery import RESET_TABLE, STEP_TABLE, Acknowledged, Action, Row

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
    lines = [
        "| votes acknowledged | clock | other clients | condition | action | because |",
        "|---|---|---|---|---|---|",
    ]
    for row in table:
        acknowledged = "any"
        if row.acknowledged is not None:
            acknowledged = " or ".join(kind.value for kind in Acknowledged if kind in row.acknowledged)
        others = {None: "any", True: "control no agent", False: "control agents"}[row.sole]
        conditions = [
            text
            for value, yes, no in (
                (row.resent, "vote already repeated", "vote not repeated yet"),
                (row.punctual, "never a late datagram", "datagrams come late"),
                (row.hasty, "completion not overdue", ""),
                (row.disowned, "clock contradicted all completions", ""),
                (row.doubled, "a vote acknowledged twice", ""),
                (row.trusted, "no fault on this network so far", ""),
            )
            if (text := {None: "", True: yes, False: no}[value])
        ]
        cells = [acknowledged, MOVED[row.moved], others, ", ".join(conditions), row.action.name, row.reason]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def explained() -> str:
    """What the actions of both tables are, as Markdown."""
    lines = [f"| {action.name} | {action.value} |" for action in Action]
    return "\n".join(["| action | what ospbridge does |", "|---|---|", *lines])


@pytest.mark.parametrize("table", [STEP_TABLE, RESET_TABLE], ids=["step", "reset"])
def test_the_page_shows_the_table_of_the_code(table: tuple[Row, ...]) -> None:
    assert rendered(table) in PAGE.read_text()


def test_the_page_explains_each_action() -> None:
    assert explained() in PAGE.read_text()


def test_its_figures_and_classes_are_those_of_the_code() -> None:
    text = " ".join(PAGE.read_text().split())
    assert READ_AT_MOST == 8
    assert "at most eight of an agent" in text
    assert f"for {LATEST:g} s after the latest anomaly" in text
    for profile in PROFILES.values():
        assert f"a silence shorter than {1000 * profile.patience:g} ms" in text
    told = re.findall(r"^\| (\w+) \| [A-Z]|^\| (query|idempotent|barrier) \|", PAGE.read_text(), re.MULTILINE)
    assert f"for {USUAL:g} s" in text
    assert f"still be the same {UNSEEN:g} s after the clock moved" in text
    assert f"{USUAL_UNSEEN:g} s where" in text
    assert LONGEST == 0.5
    assert "at most half of the reset limit" in text
    assert {one or other for one, other in told} == {kind.name.lower() for kind in COMMAND_CLASS.values()}
