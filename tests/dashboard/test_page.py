"""The files of the page: nothing in them is run or loaded that did not come with the package."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import ospbridge.dashboard
from ospbridge.dashboard.address import Access
from ospbridge.dashboard.assets import page_files
from ospbridge.dashboard.serving import Dashboard
from ospbridge.errors import ConfigurationError
from ospbridge.hub.status import STEP_BOUNDS
from ospbridge.interface import Endpoint

PAGE = page_files()


def test_the_page_has_no_script_or_style_of_its_own_and_loads_nothing_from_elsewhere() -> None:
    for name, data in PAGE.items():
        text = data.decode()
        if name.endswith(".html"):
            assert not re.search(r"<style|style=|\son\w+=|<script(?![^>]*src=)", text), name
        assert not re.search(r"(?:src|href)=\"(?!/|#)", text), name
        assert not re.search(r"@import|url\(", text), name


@pytest.mark.parametrize("name", [name for name in PAGE if name.endswith(".js")])
def test_what_a_simulator_says_never_becomes_markup(name: str) -> None:
    text = PAGE[name].decode()
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
    )
    assert len(text.splitlines()) < 400


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypercorn", None)
    with pytest.raises(ConfigurationError, match="hypercorn") as caught:
        Dashboard(Endpoint("127.0.0.1", 0), Access())
    assert "ospbridge[dashboard]" in caught.value.hint


def test_the_chart_of_times_has_the_bounds_that_the_daemon_counts_by() -> None:
    (bounds,) = re.findall(r"BOUNDS = \[([^]]+)\]", PAGE["charts.js"].decode())
    assert tuple(map(float, bounds.split(","))) == STEP_BOUNDS


def test_all_files_of_the_page_are_served() -> None:
    folder = Path(ospbridge.dashboard.__file__).parent / "page"
    assert {path.name for path in folder.iterdir()} == set(PAGE)
    assert {"page.html", "door.html", "main.js", "style.css"} <= set(PAGE)


def colours(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block))


def luminance(colour: str) -> float:
    """Relative, as WCAG 2 has it."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


STYLE = PAGE["style.css"].decode()
THEMES = [colours(block) for block in re.findall(r":root[^{]*\{([^{}]*--ground[^{}]*)\}", STYLE)]


@pytest.mark.parametrize("theme", THEMES[:2], ids=["light", "dark"])
def test_text_can_be_read_on_whatever_it_stands(theme: dict[str, str]) -> None:
    pairs = [("ink", on) for on in ("ground", "card", "raised", "accent-soft", "bad-soft")]
    pairs += [("quiet", on) for on in ("ground", "card", "raised", "accent-soft")]
    pairs += [(state, "card") for state in ("good", "wait", "bad", "accent", "second")]
    pairs += [("bad", "bad-soft"), ("card", "accent")]
    faint = {pair: contrast(theme[pair[0]], theme[pair[1]]) for pair in pairs}
    assert {pair: found for pair, found in faint.items() if found < 4.5} == {}
