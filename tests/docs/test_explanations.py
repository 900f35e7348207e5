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
from ospbridge.daemon.lockstep import GRACE
from ospbridge.daemon.relay.link import LEARN_WITHIN, LINGER, LINGER_LESS
from ospbridge.interface import DEFAULT_PORT
from ospbridge.osp import client, clock_reading, notices, reset, restore, step
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.timing import LONGEST_WAIT, RESTART_SETTLES, SILENCE
from ospbridge.osp.timing import Limits as OspLimits
from ospbridge.rllink.connecting import LONGEST_PAUSE, LONGEST_REFUSED, POLL, RECYCLING, REFUSED_AGAIN, Limits
from ospbridge.rllink.framing import LARGEST_BODY
from ospbridge.session import rebuild
from tests.docs.pages import page, words_of

IN_WORDS = {0.5: "half a second", 2: "two", 3: "three", 10: "ten"}
FIGURES = {
    "exactly-once": [
        f"A silence is {1000 * SILENCE:g} ms without a datagram, doubling up to {LONGEST_WAIT:g} s",
        f"or {IN_WORDS[step.UNANSWERED]} questions had no answer",
        f"what that frees has {1000 * step.FREED:g} ms to come",
        f"after {step.SILENT_BETWEEN_REQUESTS:g} s without an answer, too",
        f"two readings {1000 * clock_reading.SECOND_LOOK:g} ms apart",
        f"followed by {1000 * step.STALL_PASSES:g} ms without questions",
        f"older than {1000 * SILENCE:g} ms and than twice the longest of the latest {notices.RECENT} steps",
        f"than {step.FIRST_STEP:g} s in the first step of all",
        f"sent again {IN_WORDS[step.SENT_AGAIN_AT_MOST]} times at most",
        f"count after {restore.UNCHANGED:g} s at the earliest",
        f"after {IN_WORDS[client.ACKNOWLEDGES_LAST]} such steps in a row",
        f"a clock at zero is set to {reset.ABOVE_ZERO:g} before",
        f"the latest {IN_WORDS[client.Learned().reset_times.maxlen or 0]} resets took ({reset.FIRST_RESET:g} s before",
        f"{IN_WORDS[RESTART_SETTLES]} later, where others had ended the session",
        f"{IN_WORDS[rebuild.CAPACITY].title()} such rebuilds",
        f"one `reset` tries {IN_WORDS[rebuild.BEGINNINGS]} times at most",
    ],
    "barrier-reset-seeds": [
        f"| `step_timeout` | {OspLimits().step:g} s |",
        f"| `reset_timeout` | {OspLimits().reset:g} s |",
        f"are given {GRACE:g} s to ask for it too",
    ],
    "osp": [
        f"in {DEVIATIONS} points",
        f"the well-known port, {DEFAULT_PORT},",
        f"a silence shorter than {1000 * SILENCE:g} ms",
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
    return str(value)


def test_the_table_of_profiles_has_every_property_of_both() -> None:
    names = [field.name for field in fields(Profile) if field.name != "name"]
    wanted = [(name, words(getattr(DOCUMENT, name)), words(getattr(NERD, name))) for name in names]
    assert re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \|$", page("explanation/osp"), re.MULTILINE) == wanted
