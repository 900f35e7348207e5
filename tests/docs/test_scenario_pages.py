"""The pages about scenarios say what the code does."""

from __future__ import annotations

import re
from dataclasses import MISSING, Field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from click.testing import CliRunner

from ospbridge.cli import main
from ospbridge.envs.registration import SCENARIO_IDS
from ospbridge.simulator.arena import ArenaWorld
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.task.expressions import CONSTANTS, FUNCTIONS
from ospbridge.task.reading import read
from ospbridge.task.scenario import (
    Action,
    AgentScenario,
    ArenaTable,
    Episode,
    GymTable,
    Match,
    NotFinite,
    Observe,
    OutOfBounds,
    OutOfRange,
    Ranges,
    ResetObservation,
    Scenario,
    SourceKind,
    SyntheticTable,
)

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = (DOCS / "reference" / "scenario-keys.md").read_text()
HOW_TO = (DOCS / "how-to" / "scenarios.md").read_text()

TABLES = {
    "The file": Scenario,
    "`[[agent]]`": AgentScenario,
    "`match`": Match,
    "`[agent.action]`": Action,
    "`[agent.observe]`": Observe,
    "`[agent.episode]`": Episode,
    '`kind = "gym"`': GymTable,
    '`kind = "arena"`': ArenaTable,
    '`kind = "synthetic"`': SyntheticTable,
}


def section(heading: str) -> str:
    found = re.search(rf"^##+ {re.escape(heading)}\n(.*?)(?=^##|\Z)", REFERENCE, re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1]


def rows(heading: str) -> dict[str, str]:
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section(heading), re.MULTILINE))


@pytest.mark.parametrize("heading", TABLES)
def test_every_key_of_a_table_is_documented_and_no_other(heading: str) -> None:
    wanted = [field.name for field in fields(TABLES[heading]) if field.name != "origin"]
    assert sorted(rows(heading)) == sorted(wanted)


def said(field: Field[Any]) -> str | None:
    """A default as TOML; None where words say it."""
    value = field.default
    if value is MISSING or value is None or value in ("", ()):
        return None
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if isinstance(value, str):
        return f'`"{value}"`'
    if isinstance(value, tuple):
        return "`[" + ", ".join(f'"{text}"' for text in value) + "]`"
    return f"`{value}`"


@pytest.mark.parametrize("heading", TABLES)
def test_the_defaults_are_those_of_the_code(heading: str) -> None:
    documented = rows(heading)
    for field in fields(TABLES[heading]):
        if field.name not in ("origin", "kind") and said(field) is not None:
            assert documented[field.name] == said(field), field.name


@pytest.mark.parametrize("words", [NotFinite, OutOfBounds, OutOfRange, Ranges, ResetObservation])
def test_every_word_of_a_choice_is_documented(words: type[StrEnum]) -> None:
    for word in words:
        assert f'`"{word}"`' in REFERENCE, word


def test_every_source_of_a_name_is_documented() -> None:
    for kind in SourceKind:
        assert f'`"{kind}:/' in REFERENCE


def test_every_function_and_constant_of_expressions_is_documented_and_no_other() -> None:
    text = section("Expressions")
    listed = text.split("functions:")[1].split("\n\n")[1]
    assert re.findall(r"`(\w+)`", listed) == list(FUNCTIONS)
    for name in CONSTANTS:
        assert f"`{name}`" in text


def test_the_examples_are_scenarios() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", HOW_TO, re.DOTALL)
    assert blocks
    for block in blocks:
        read(block)


def test_the_shipped_scenarios_are_listed_with_their_ids() -> None:
    listed = dict(re.findall(r"^\| `(\w+)` \| `([\w/-]+)` \|", HOW_TO, re.MULTILINE))
    assert listed == {scenario: env_id for env_id, (scenario, _) in SCENARIO_IDS.items()}


@pytest.mark.loopback
def test_the_example_is_checked_and_played_against_the_simulator_that_the_page_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "ospbridge sim --arena --robots 1" in HOW_TO
    (example,) = re.findall(r"```toml\n(.*?)```", HOW_TO, re.DOTALL)
    (program, _) = [
        text for text in re.findall(r"```python\n(.*?)```", HOW_TO, re.DOTALL) if "class " in text
    ]
    (task,) = re.findall(r'`(task = "my_package.tasks:\w+")`', HOW_TO)
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "tasks.py").write_text(program)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    Path("explore.toml").write_text(example)
    Path("of_class.toml").write_text(example.replace("[[agent]]\n", f"[[agent]]\n{task}\n"))
    for name in ("explore.toml", "of_class.toml"):
        with UdpSimulator(ArenaWorld(1), port=0) as simulator:
            address = str(simulator.address)
            told = CliRunner().invoke(main, ["check", name, "--simulator", address])
            assert told.exit_code == 0, told.stdout
            assert told.stdout.endswith("has robot1\n")
            env = gymnasium.make("ospbridge:ospbridge/Agent-v0", simulator=address, scenario=name)
            env.reset(seed=1)
            env.action_space.seed(1)
            rewards = [float(env.step(env.action_space.sample())[1]) for _ in range(40)]
            env.close()
        assert any(rewards)
        assert (min(rewards) >= 0.0) is (name == "of_class.toml")


@pytest.mark.loopback
def test_the_curriculum_makes_the_world_harder_from_episode_to_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (program,) = [
        text for text in re.findall(r"```python\n(.*?)```", HOW_TO, re.DOTALL) if "Curriculum" in text
    ]
    (tmp_path / "schooling.py").write_text(program)
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "school.toml"
    file.write_text(
        'name = "school"\n[[agent]]\ntask = "schooling:Curriculum"\n'
        '[agent.names]\nspeed = "value:/Sim/Arena/TopSpeed"\n[agent.episode]\nreward = "speed"\n'
    )
    with UdpSimulator(ArenaWorld(1), port=0) as simulator:
        env = gymnasium.make(
            "ospbridge:ospbridge/Agent-v0", simulator=str(simulator.address), scenario=str(file)
        )
        speeds = []
        for _ in range(21):
            env.reset(seed=1)
            speeds.append(round(float(env.step(env.action_space.sample())[1]), 6))
        env.close()
    assert speeds == [0.2] * 10 + [0.3] * 10 + [0.4]
