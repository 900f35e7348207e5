"""The page of terms: in order, each once, none that no other page uses, and each state of an agent among them."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "reference" / "terms.md"
TERMS = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", PAGE.read_text("utf-8"), re.MULTILINE)[1:]


def test_terms_stand_in_the_order_of_a_dictionary_each_once() -> None:
    assert len(TERMS) > 30
    assert sorted(set(TERMS), key=str.casefold) == TERMS


def test_every_term_is_one_that_another_page_uses() -> None:
    others = " ".join(
        page.read_text("utf-8") for page in sorted(DOCS.rglob("*.md")) if page != PAGE
    ).casefold()
    unused = [term for term in TERMS if not re.search(rf"\b{re.escape(term.casefold())}", others)]
    assert not unused


def test_the_pages_that_a_newcomer_reads_first_lead_here() -> None:
    for page in ("index.md", "tutorial/first-policy.md", "../README.md"):
        assert "reference/terms.md" in (DOCS / page).read_text("utf-8"), page
