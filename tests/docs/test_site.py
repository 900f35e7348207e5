"""The site: every page is in its index, and every link of a page leads somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
LINK = re.compile(r"!?\[(?:[^\]\\]|\\.)*\]\(([^)\s]+)\)")


def prose(path: Path) -> str:
    """A page without its code."""
    text = re.sub(r"^( *)(```+).*?^\1\2 *$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(path: Path) -> set[str]:
    """Of its headings, as code hosts make them."""
    text = re.sub(r"^( *)(```+).*?^\1\2 *$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [*(f"docs/{page}" for page in PAGES), "README.md", "CONTRIBUTING.md"])
def test_every_link_leads_to_a_file_and_a_heading(page: str) -> None:
    source = ROOT / page
    for link in LINK.findall(prose(source)):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (source.parent / file).resolve() if file else source
        assert target.exists(), link
        assert target.is_relative_to(DOCS if page.startswith("docs/") else ROOT), link
        assert not anchor or anchor in anchors(target), link


def test_the_index_lists_every_page() -> None:
    listed = [link.partition("#")[0] for link in LINK.findall(prose(DOCS / "index.md"))]
    assert sorted({*listed, "index.md"}) == PAGES


def test_every_folder_of_pages_is_in_the_table_of_contents() -> None:
    globs = re.findall(r"^([\w/-]+\*?)$", (DOCS / "index.md").read_text("utf-8"), re.MULTILINE)
    for page in PAGES:
        name = page.removesuffix(".md")
        assert name == "index" or name in globs or f"{name.rpartition('/')[0]}/*" in globs, page


def test_every_page_begins_with_its_title_and_has_one() -> None:
    for page in PAGES:
        text = re.sub(r"```.*?```", "", (DOCS / page).read_text("utf-8"), flags=re.DOTALL)
        assert text.startswith("# "), page
        assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1, page


@pytest.mark.slow
@pytest.mark.skipif(find_spec("sphinx") is None, reason="needs the dependency group docs")
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    options = ["--fail-on-warning", "--keep-going", "--nitpicky", "--quiet", "--fresh-env"]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(DOCS), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    built = list(tmp_path.rglob("*.html"))
    assert len(built) >= len(PAGES)
    for page in built:
        text = page.read_text("utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]* src=\"([^\"]+)\"", text)
        loaded += re.findall(r"<link[^>]* href=\"([^\"]+)\"", text)
        assert [address for address in loaded if "//" in address] == [], page
    for style in tmp_path.rglob("*.css"):
        assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", style.read_text("utf-8")) == [], style
