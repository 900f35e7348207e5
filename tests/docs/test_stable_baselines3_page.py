"""The page on Stable-Baselines3 lists what there is. ``tests/peers/run_sb3_page.py`` runs its programs."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from ospbridge.envs.vector import OspVectorEnv

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "how-to" / "stable-baselines3.md").read_text()


def test_the_options_are_those_of_the_code_with_the_same_limits() -> None:
    table = PAGE.partition("## The options of OspVecEnv.make")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|$", table, re.MULTILINE)
    documented = [name for names, _ in rows for name in re.findall(r"`(\w+)`", names)]
    options = inspect.signature(OspVectorEnv).parameters
    # OspVecEnv.make says the autoreset mode itself.
    assert sorted(documented) == sorted(set(options) - {"autoreset_mode"})
    limits = [name for name in options if name.endswith("_timeout")]
    (said,) = (meaning for names, meaning in rows if limits[0] in names)
    assert re.findall(r"\d+", said) == [f"{options[name].default:g}" for name in limits]


def test_its_programs_are_python() -> None:
    programs = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(programs) == 5
    for program in programs:
        compile(program, "page", "exec")


@pytest.mark.parametrize("link", re.findall(r"\]\(([^):#]+\.md)\)", PAGE))
def test_its_links_lead_somewhere(link: str) -> None:
    assert (DOCS / "how-to" / link).exists()
