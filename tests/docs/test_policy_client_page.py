"""The page on PolicyClient: ``tests/peers/run_policy_client_page.py`` runs its programs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "policy-client.md"
PROGRAMS = re.findall(r"<!-- program: (\w+) -->\n```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


def test_it_has_a_server_and_a_client_that_meet_at_one_port() -> None:
    programs = dict(PROGRAMS)
    assert sorted(programs) == ["client", "server"]
    for name, program in programs.items():
        compile(program, name, "exec")
        assert "9900" in program


@pytest.mark.parametrize("link", re.findall(r"\]\(([^):#]+\.md)\)", PAGE.read_text()))
def test_its_links_lead_somewhere(link: str) -> None:
    assert (PAGE.parent / link).exists()
