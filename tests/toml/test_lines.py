"""The line of a key path: the right one or none."""

from __future__ import annotations

import pytest

from ospbridge.toml import lines as module
from ospbridge.toml.lines import Lines

TEXT = '''\
name = "x"   # agent[0].reward = 1

[[agent]]
match = { name = "a", type = "b" }
names.far = "output:/a"
[agent.episode]
reward = """
[values]
max_steps = 3
"""
max_steps = 4
[agent.observe]
outputs = [
  "/a",  # "/b" = 1
  "/c",
]

# [agent.action]
[[agent]]
  [agent.action]
  low = 1
[values]
"/Sim/a.b" = 2
'/Sim/"c"' = 3
"/Sim/\\u00e9\\n" = 4
'''


@pytest.mark.parametrize(
    "path, line",
    [
        ("name", 1),
        ("agent[0]", 3),
        ("agent[0].match", 4),
        ("agent[0].match.type", 4),
        ("agent[0].names", 5),
        ("agent[0].names.far", 5),
        ("agent[0].episode", 6),
        ("agent[0].episode.reward", 7),
        ("agent[0].episode.max_steps", 11),
        ("agent[0].observe.outputs", 13),
        ("agent[0].observe.outputs[1]", 13),
        ("agent[1]", 19),
        ("agent[1].action", 20),
        ("agent[1].action.low", 21),
        ("values", 22),
        ("values.'/Sim/a.b'", 23),
        ("values." + repr('/Sim/"c"'), 24),
        ("values." + repr("/Sim/\u00e9\n"), 25),
        # What is not there, or not in one place, or is no path at all.
        ("agent", None),
        ("agent[2]", None),
        ("agent[0].episode.neutral", None),
        ("agent[0].name", None),
        ("max_steps", None),
        ("no TOML", None),
        ("agent 'cart'", None),
        ("name 'x' is taken", None),
        ("values.unheard of", None),
        ("", None),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["unix", "dos"])
def test_a_path_has_the_line_on_which_its_statement_begins(path: str, line: int | None, end: str) -> None:
    assert Lines(TEXT.replace("\n", end)).of(f"{path}: expected something else: not this") == line


def test_a_file_that_would_be_read_too_often_has_no_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'a = """' + "\n" * 200 + '"""\nb = 1\n'
    assert Lines(text).of("b: wrong") == 202
    monkeypatch.setattr(module, "PATIENCE", 3)
    assert Lines(text).of("a: wrong") is None
