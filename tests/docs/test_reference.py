"""Tables to look things up in: what they list is what there is, with the defaults and limits of the code."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, Field, fields
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import gymnasium
import numpy as np
import orjson
import pytest
from gymnasium.vector import AutoresetMode

from ospbridge import errors
from ospbridge.diagnosis.checks import State
from ospbridge.diagnosis.deviations import DEVIATIONS
from ospbridge.envs import AGENT_ID, SCENARIO_IDS
from ospbridge.envs.agent_env import AgentEnv
from ospbridge.envs.vector import OspVectorEnv
from ospbridge.policy.acting import Policy
from ospbridge.policy.rlmodule import ACTIVATIONS
from ospbridge.record.collecting import EpisodeCollector, at_once
from ospbridge.record.writing import EpisodeWriter
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.task import scenario
from ospbridge.task.expressions import CONSTANTS, FUNCTIONS
from ospbridge.task.guarding import _TOLD
from tests.docs.pages import page, section, words_of
from tests.record.episodes import feedback, whose

# --- limits and terms -------------------------------------------------------------------------------------------------

UNITS: Final = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "s": 1}


def value_of(name: str) -> Any:
    """``module.NAME``, or ``module.Class(parameter)`` for a parameter's default."""
    place, _, parameter = name.rstrip(")").partition("(")
    module, _, found = place.rpartition(".")
    thing = getattr(import_module(f"ospbridge.{module}"), found)
    return inspect.signature(thing).parameters[parameter].default if parameter else thing


def number(text: str) -> float:
    digits, _, unit = text.partition(" ")
    return float(digits.replace(",", "")) * UNITS.get(unit, 1)


def test_a_limit_is_what_the_code_says() -> None:
    text = page("reference/limits")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| `([^`|]+)` \| ([^|]+) \|$", text, re.MULTILINE)
    lines = [line for line in text.splitlines() if line.startswith("| ") and "`" in line]
    assert len(lines) == len(rows) > 40
    wrong = [name for _, most, name, beyond in rows if number(most) != value_of(name) or not beyond.strip()]
    assert wrong == []


# --- simulators -------------------------------------------------------------------------------------------------------


def test_the_page_has_every_deviation_as_it_is_probed() -> None:
    text = page("reference/deviations")
    rows = re.findall(r"^\| (D\d+) \| (.*) \| (.*) \| (.*) \| (.*) \|$", text, re.MULTILINE)
    wanted = []
    for each in DEVIATIONS:
        needs = [*["invasive"] * each.invasive, *["alone"] * each.alone]
        if each.agents:
            needs.append(f"{each.agents} agent{'s' * (each.agents != 1)}")
        wanted.append((each.id, each.title, each.document, each.server, ", ".join(needs)))
    assert rows == wanted
    (added,) = re.findall(r"`--invasive` adds (.*?\))\. ", words_of("how-to/diagnose"))
    assert set(re.findall(r"D\d+", added)) == {each.id for each in DEVIATIONS if each.invasive}
    for state in State:
        assert f"| `{state.value}` |" in page("how-to/diagnose")


# --- environments -----------------------------------------------------------------------------------------------------

ENVIRONMENTS = page("reference/environments")


def test_every_id_is_listed_with_its_scenario_and_whether_noise_is_to_be_expected() -> None:
    row = r"^\| `(ospbridge/[\w-]+)` \| (?:scenario `(\w+)`|none).* \| (yes|no) \|$"
    told = re.findall(row, ENVIRONMENTS, re.MULTILINE)
    wanted = [(AGENT_ID, "", True), *((env_id, *said) for env_id, said in SCENARIO_IDS.items())]
    assert told == [(env_id, name, "yes" if noisy else "no") for env_id, name, noisy in wanted]
    for env_id, _, noisy in wanted:
        assert gymnasium.spec(env_id).nondeterministic is noisy
    listed = dict(re.findall(r"^\| `(\w+)` \| `([\w/-]+)` \|", page("how-to/scenarios"), re.MULTILINE))
    assert listed == {name: env_id for env_id, (name, _) in SCENARIO_IDS.items()}


def parameters(kind: type[Any]) -> dict[str, Any]:
    return {name: each.default for name, each in inspect.signature(kind).parameters.items()}


def test_every_argument_is_listed_with_its_default_and_who_takes_it() -> None:
    row = r"^\| `(\w+)` \| `(.+?)` \| ([\w, ]+) \| .+ \|$"
    rows = re.findall(row, section(ENVIRONMENTS, "Arguments"), re.MULTILINE)
    told = {name: (default, takers.split(", ")) for name, default, takers in rows}
    kinds = {"one": parameters(AgentEnv), "vector": parameters(OspVectorEnv)}
    try:
        from ospbridge.envs.parallel import AgentsParallelEnv
    except errors.ConfigurationError:  # this one needs the extra; the others tell enough
        pass
    else:
        kinds["parallel"] = parameters(AgentsParallelEnv)
    assert set(told) == set().union(*kinds.values())
    for name, (default, takers) in told.items():
        wanted = [kind for kind in kinds if name in kinds[kind]]
        assert [kind for kind in takers if kind in kinds] == wanted, name
        for said in (kinds[kind][name] for kind in wanted):
            shown = said.name if isinstance(said, AutoresetMode) else repr(said).replace("'", '"')
            assert default == shown, name


@pytest.mark.loopback
def test_the_keys_of_infos_are_those_of_the_page_in_their_types() -> None:
    told = re.findall(r"^\| `(\w+)` \| (\w+) \|", section(ENVIRONMENTS, "Infos"), re.MULTILINE)
    assert {name for name, _ in told} == _TOLD
    with UdpSimulator(SyntheticWorld(2, 3, 1), port=0) as simulator:
        env = gymnasium.make(AGENT_ID, simulator=str(simulator.address))
        _, first = env.reset(seed=1)
        *_, second = env.step(np.zeros(2, np.float32))
        env.close()
    for info in (first, second):
        assert [(name, type(value).__name__) for name, value in info.items()] == told


# --- scenarios --------------------------------------------------------------------------------------------------------

KEYS = page("reference/scenario-keys")
TABLES: Final[dict[str, type[Any]]] = {
    "The file": scenario.Scenario,
    "`[[agent]]`": scenario.AgentScenario,
    "`match`": scenario.Match,
    "`[agent.action]`": scenario.Action,
    "`[agent.observe]`": scenario.Observe,
    "`[agent.episode]`": scenario.Episode,
    '`kind = "gym"`': scenario.GymTable,
    '`kind = "arena"`': scenario.ArenaTable,
    '`kind = "synthetic"`': scenario.SyntheticTable,
    '`kind = "robot"`': scenario.RobotTable,
}


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
def test_every_key_of_a_table_is_documented_with_its_default_and_no_other(heading: str) -> None:
    documented = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section(KEYS, heading), re.MULTILINE))
    there = [field for field in fields(TABLES[heading]) if field.name != "origin"]
    assert sorted(documented) == sorted(field.name for field in there)
    for field in there:
        if field.name != "kind" and said(field) is not None:
            assert documented[field.name] == said(field), field.name


def test_every_word_source_and_function_of_scenarios_is_documented() -> None:
    choices = (scenario.NotFinite, scenario.OutOfBounds, scenario.OutOfRange)
    for words in (*choices, scenario.Ranges, scenario.ResetObservation):
        assert [word for word in words if f'`"{word}"`' not in KEYS] == []
    assert [kind for kind in scenario.SourceKind if f'`"{kind}:/' not in KEYS] == []
    text = section(KEYS, "Expressions")
    listed = text.split("functions:")[1].split("\n\n")[1]
    assert re.findall(r"`(\w+)`", listed) == list(FUNCTIONS)
    assert [name for name in CONSTANTS if f"`{name}`" not in text] == []


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("actions", [0, 2], ids=["discrete", "box"])
def test_the_arrays_of_a_recording_are_those_of_its_page(tmp_path: Path, actions: int) -> None:
    table = page("how-to/record").partition("For N steps:")[2]
    rows = dict(re.findall(r"^\| (`[^|]*`) \| (.*) \|$", table, re.MULTILINE))
    arrays = {name for names in rows for name in re.findall(r"`(\w+)`", names)}
    collector = EpisodeCollector(whose(actions=actions), at_once(EpisodeWriter(tmp_path).write))
    collector.begin(feedback(0.0), weights_seq_no=3)
    drawn_from = np.zeros(2 * actions or 2, np.float32)
    action = np.zeros(actions, np.float32) if actions else 1
    drawn = 2 * np.ones(actions, np.float32) if actions else None
    collector.step(action, feedback(1.0, terminated=True), logp=-0.5, dist_inputs=drawn_from, drawn=drawn)
    (file,) = tmp_path.glob("*.npz")
    with np.load(file, allow_pickle=False) as archive:
        absent = set() if actions else {"action_low", "action_high", "drawn_actions"}
        assert set(archive.files) == arrays - absent
        about = orjson.loads(archive["about"].tobytes())
    assert set(about) == set(re.findall(r"`(\w+)`", rows["`about`"])) - {"continued"}


def test_the_options_of_a_policy_file_are_those_of_the_code_with_the_same_defaults() -> None:
    table = page("how-to/policy-files").partition("| option | RLlib's setting | default |")[2]
    rows = re.findall(r"\| `(\w+)` \| (.*?) \| (\S+) \|", table.partition("\n\n")[0])
    given = parameters(Policy)
    words = {True: "on", False: "off"}
    for option, _, default in rows:
        value = given[option]
        assert default == (words[value] if isinstance(value, bool) else f"`{value}`")
    told = {option: meaning for option, meaning, _ in rows}
    assert told.keys() == {"activation", "head_activation", "normalize_actions", "clip_actions"}
    named = re.findall(r"`(\w+)`", told["activation"])
    assert set(named) - {"fcnet_activation"} == set(ACTIVATIONS)
