"""The site as a whole: its links, its index, and that what its pages name and write is there."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

from ospbridge.cli import main
from ospbridge.cli.connect import connect
from ospbridge.cli.keys import sections
from ospbridge.config.reading import read as read_configuration
from ospbridge.task.reading import read as read_scenario
from tests.docs.pages import DOCS, PAGES, ROOT, blocks, commands, page

LINK = re.compile(r"!?\[(?:[^\]\\]|\\.)*\]\(([^)\s]+)\)")
WRITTEN = [f"docs/{name}" for name in PAGES if name != "reference/python.md"] + ["README.md"]


def prose(path: Path) -> str:
    """A page without its code."""
    return re.sub(r"`[^`\n]*`", "", without_blocks(path))


def without_blocks(path: Path) -> str:
    return re.sub(r"^( *)(```+).*?^\1\2 *$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(path: Path) -> set[str]:
    """Of its headings, as code hosts make them."""
    titles = re.findall(r"^#+ (.+)$", without_blocks(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    known = {path: anchors(path) for path in [*DOCS.rglob("*.md"), *ROOT.glob("*.md")]}
    for name in [*(f"docs/{each}" for each in PAGES), "README.md", "CONTRIBUTING.md"]:
        source = ROOT / name
        for link in LINK.findall(prose(source)):
            if re.match(r"[a-z]+:", link):
                continue
            file, _, anchor = link.partition("#")
            target = (source.parent / file).resolve() if file else source
            assert target.exists(), (name, link)
            assert target.is_relative_to(DOCS if name.startswith("docs/") else ROOT), (name, link)
            assert not anchor or anchor in known[target], (name, link)


def test_the_index_lists_every_page_and_its_table_of_contents_every_folder() -> None:
    listed = [link.partition("#")[0] for link in LINK.findall(prose(DOCS / "index.md"))]
    assert sorted({*listed, "index.md"}) == PAGES
    globs = re.findall(r"^([\w/-]+\*?)$", page("index"), re.MULTILINE)
    for name in (name.removesuffix(".md") for name in PAGES):
        assert name == "index" or name in globs or f"{name.rpartition('/')[0]}/*" in globs, name


@pytest.mark.parametrize("name", ["autoreset", "barrier-reset-seeds", "faults", "rllink", "trust"])
def test_every_test_that_a_page_names_is_there(name: str) -> None:
    text = page(f"explanation/{name}")
    named = re.findall(r"`(?:(tests/[\w/]+\.py)(?:::)?)?(test_\w+)?`", text)
    named = [(file, test) for file, test in named if file or test]
    assert len(named) > 5
    everywhere = "\n".join(file.read_text("utf-8") for file in (ROOT / "tests").rglob("*.py"))
    for file, test in named:
        code = (ROOT / file).read_text("utf-8") if file else everywhere
        assert not test or re.search(rf"^\s*(?:async )?def {test}\(", code, re.MULTILINE), (file, test)


@pytest.mark.parametrize("name", WRITTEN)
def test_commands_programs_and_files_of_a_page_can_be_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / name).read_text("utf-8")
    for program in blocks(text, "python"):
        compile(program, name, "exec")
    for words in commands(text):
        if not words:
            continue
        command: click.Command = main
        context = click.Context(main)
        said = " ".join(words)
        while isinstance(command, click.Group):
            found = command.get_command(context, words.pop(0))
            assert found is not None, said
            command = found
        for path in (Path(word) for word in words if word.endswith(".jsonl") or word.startswith("runs/")):
            path.mkdir(parents=True, exist_ok=True) if path.suffix == "" else path.touch()
        # Parsed, and not run.
        command.make_context(said, words)
    for file in blocks(text, "toml"):
        if re.match(r"name = .*\[\[agent\]\]", file, re.DOTALL):
            read_scenario(file)
        elif re.search(r"^\[\[simulator\]\]", file, re.MULTILINE):
            read_configuration(file, list(sections(connect).values()), origin=name, directory=Path("/"))


@pytest.mark.skipif(find_spec("sphinx") is None, reason="needs the dependency group docs")
@pytest.mark.timeout(600)
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    options = ["--fail-on-warning", "--keep-going", "--nitpicky", "--quiet", "--fresh-env"]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(DOCS), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    built = list(tmp_path.rglob("*.html"))
    assert len(built) >= len(PAGES)
    for html in built:
        text = html.read_text("utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]* src=\"([^\"]+)\"", text)
        loaded += re.findall(r"<link[^>]* href=\"([^\"]+)\"", text)
        assert [address for address in loaded if "//" in address] == [], html
    for style in tmp_path.rglob("*.css"):
        assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", style.read_text("utf-8")) == [], style
