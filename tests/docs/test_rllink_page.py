"""The pages on RLlink: the figures are those of the code, the tests that are named exist, and programs are Python."""

from __future__ import annotations

import re
from pathlib import Path

from ospbridge.cli.upstream import LEARNING
from ospbridge.daemon.relay.link import LEARN_WITHIN, LINGER, LINGER_LESS
from ospbridge.rllink.connecting import LONGEST_PAUSE, LONGEST_REFUSED, REFUSED_AGAIN
from ospbridge.rllink.framing import HEADER_LENGTH, LARGEST_BODY
from ospbridge.rllink.timing import POLL, RECYCLING, Limits

TESTS = Path(__file__).parents[1]
HOW_TO = (TESTS.parent / "docs" / "how-to" / "rllink.md").read_text("utf-8")
PAGE = " ".join((TESTS.parent / "docs" / "explanation" / "rllink.md").read_text("utf-8").split())


def test_every_test_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    there = "".join(file.read_text("utf-8") for file in TESTS.rglob("*.py"))
    assert len(named) > 10
    assert [name for name in sorted(named) if f"def {name}(" not in there] == []


def test_its_figures_are_those_of_the_code() -> None:
    limits = Limits()
    assert HEADER_LENGTH == 8
    assert "a header of eight ASCII digits" in PAGE
    assert f"more than {LARGEST_BODY:,} bytes" in PAGE
    assert f"begins at {RECYCLING:g} s where a connection ended, and doubles up to a minute" in PAGE
    assert LONGEST_PAUSE == 60.0
    assert f"begins at {REFUSED_AGAIN:g} s and stops at {LONGEST_REFUSED:g} s" in PAGE
    assert (
        f"{limits.pong:g} s for a PONG, {limits.config:g} s for the settings, {limits.answer:g} s for weights that "
        "only have to be sent" in PAGE
    )
    assert LEARNING == 1800.0
    assert "may take half an hour more than the world is held for them" in PAGE
    assert f"for {LEARN_WITHIN:g} s; then it ends its own direction" in PAGE
    assert f"asked every {1000 * POLL:g} ms" in PAGE
    assert f"{LINGER_LESS:g} s or, for a daemon that ends, {LINGER:g} s at most" in PAGE


def test_the_program_that_saves_and_restores_goes_behind_what_the_first_program_configures() -> None:
    first, restoring = re.findall(r"```python\n(.*?)```", HOW_TO, re.DOTALL)
    start = "algorithm = config.build_algo()\n"
    assert first.count(start) == restoring.count(start) == 1
    compile(first.partition(start)[0] + restoring, "learn.py", "exec")
