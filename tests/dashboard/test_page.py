"""The files of the page: nothing in them is run or loaded that did not come with the package."""

from __future__ import annotations

import re
import sys

import pytest

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
