"""The pages that explain: their tables and figures are those of the code."""

from __future__ import annotations

import re
from dataclasses import fields
from enum import Enum
from typing import Any

import pytest

from ospbridge.cli.conformance import DEVIATIONS
from ospbridge.cli.upstream import LEARNING
from ospbridge.daemon.attachment import State
from ospbridge.daemon.awaited_reset import GRACE
from ospbridge.daemon.relay.link import LEARN_WITHIN, LINGER, LINGER_LESS
from ospbridge.interface import DEFAULT_PORT
from ospbridge.osp.client.clock import Moved
from ospbridge.osp.client.resetting import LONGEST, USUAL, USUAL_UNSEEN
from ospbridge.osp.codes import COMMAND_CLASS
from ospbridge.osp.profile import DOCUMENT, NERD, PROFILES, Profile
from ospbridge.osp.step.lateness import LATEST
from ospbridge.osp.step.lost_completions import UNSEEN
from ospbridge.osp.step.recovery import RESET_TABLE, STEP_TABLE, Acknowledged, Action, Row
from ospbridge.osp.timing import Limits as OspLimits
from ospbridge.rllink.connecting import LONGEST_PAUSE, LONGEST_REFUSED, REFUSED_AGAIN
from ospbridge.rllink.framing import LARGEST_BODY
from ospbridge.rllink.timing import POLL, RECYCLING, Limits
from tests.docs.pages import page, words_of

FIGURES = {
    "exactly-once": [
        f"for {LATEST:g} s after the latest anomaly",
        *(f"a silence shorter than {1000 * profile.patience:g} ms" for profile in PROFILES.values()),
        f"for {USUAL:g} s",
        f"still be the same {UNSEEN:g} s after the clock moved",
        f"{USUAL_UNSEEN:g} s where",
        "at most half of the reset limit" if LONGEST == 0.5 else f"at most {LONGEST} of the reset limit",
    ],
    "barrier-reset-seeds": [
        f"| `step_timeout` | {OspLimits().step:g} s |",
        f"| `reset_timeout` | {OspLimits().reset:g} s |",
        f"are given {GRACE:g} s to ask for it too",
    ],
    "osp": [
        f"in {DEVIATIONS} points",
        f"the well-known port, {DEFAULT_PORT},",
        f"a silence shorter than {1000 * NERD.patience:g} ms",
        f"An answer takes {1000 * NERD.init_takes:g} ms",
        f"cuts what it sends at {NERD.datagram_limit} bytes",
    ],
    "rllink": [
        f"more than {LARGEST_BODY:,} bytes",
        f"begins at {RECYCLING:g} s where a connection ended, and doubles up to "
        + ("a minute" if LONGEST_PAUSE == 60.0 else f"{LONGEST_PAUSE:g} s"),
        f"begins at {REFUSED_AGAIN:g} s and stops at {LONGEST_REFUSED:g} s",
        f"{Limits().pong:g} s for a PONG, {Limits().config:g} s for the settings, {Limits().answer:g} s for weights",
        "may take half an hour more" if LEARNING == 1800.0 else f"may take {LEARNING:g} s more",
        f"for {LEARN_WITHIN:g} s; then it ends its own direction",
        f"asked every {1000 * POLL:g} ms",
        f"{LINGER_LESS:g} s or, for a daemon that ends, {LINGER:g} s at most",
    ],
}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_of_a_page_are_those_of_the_code(name: str) -> None:
    text = words_of(f"explanation/{name}")
    assert [figure for figure in FIGURES[name] if figure not in text] == []


def test_the_states_of_an_attachment_are_those_that_there_are() -> None:
    table = page("explanation/barrier-reset-seeds").partition("| state |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE) == [state.value for state in State]


# --- what a silence means ---------------------------------------------------------------------------------------------

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


def test_the_decision_tables_are_those_of_the_code() -> None:
    text = page("explanation/exactly-once")
    for table in (STEP_TABLE, RESET_TABLE):
        assert rendered(table) in text
    explained = [f"| {action.name} | {action.value} |" for action in Action]
    assert "\n".join(["| action | what ospbridge does |", "|---|---|", *explained]) in text
    told = re.findall(r"^\| (\w+) \| [A-Z]|^\| (query|idempotent|barrier) \|", text, re.MULTILINE)
    assert {one or other for one, other in told} == {kind.name.lower() for kind in COMMAND_CLASS.values()}


# --- profiles --------------------------------------------------------------------------------------------------------


def words(value: Any) -> str:
    """A property as the page has it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Enum):
        return f"`{value.name}`" if isinstance(value, int) else value.value
    if value is None or not value:
        return "none" if value is None else "0 s" if isinstance(value, float) else "the same"
    if isinstance(value, float):
        return f"{value:g} s"
    if isinstance(value, int):
        return str(value)
    return ", ".join(f"`{mine}` is `{theirs}`" for mine, theirs in value.items())


def test_the_table_of_profiles_has_every_property_of_both() -> None:
    names = [field.name for field in fields(Profile) if field.name != "name"]
    wanted = [(name, words(getattr(DOCUMENT, name)), words(getattr(NERD, name))) for name in names]
    assert re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \|$", page("explanation/osp"), re.MULTILINE) == wanted
