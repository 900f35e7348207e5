"""Scenario files: what is read from them, and what is said about those that are wrong."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from ospbridge.errors import ScenarioInvalid, ScenarioNotFound
from ospbridge.task.loading import find, load
from ospbridge.task.reading import read
from ospbridge.task.scenario import (
    Action,
    ActionKind,
    AgentScenario,
    ArenaTable,
    Match,
    NotFinite,
    OutOfBounds,
    OutOfRange,
    Range,
    Ranges,
    ResetObservation,
    Scenario,
    Source,
    SourceKind,
)
from ospbridge.task.shipped import shipped
from tests.task.agents import arm

AGENT = 'name = "x"\n[[agent]]\n'


def mistakes(text: str) -> tuple[str, ...]:
    with pytest.raises(ScenarioInvalid) as caught:
        read(text, "file.toml")
    assert str(caught.value).startswith("file.toml has ")
    return caught.value.mistakes


# --- what is read -----------------------------------------------------------------------------------------------------


def test_the_smallest_scenario_has_every_default() -> None:
    assert read(AGENT) == Scenario(name="x", agent=(AgentScenario(),), origin=read(AGENT).origin)


TOP = {
    'description = "all of it"': ("description", "all of it"),
    "action_repeat = 2": ("action_repeat", 2),
    "time_step = 0.02": ("time_step", 0.02),
    '[values]\n"/g" = 9.81\n"/on" = true': ("values", {"/g": "9.81", "/on": "T"}),
    '[values]\n"/id" = 12345678901234567': ("values", {"/id": "12345678901234567"}),
    '[randomise]\n"/m" = { low = 0.5, high = 2 }': ("randomise", {"/m": Range(0.5, 2.0)}),
    '[world]\nkind = "arena"\nrobots = 3\nobstacles = 1\ntime_step = 0.1': (
        "world",
        ArenaTable(robots=3, obstacles=1, time_step=0.1),
    ),
}
OF_AGENT = {
    'match = { name = "robot*", type = "Agent" }': ("match", Match(name="robot*", type="Agent")),
    'env_id = "mine/Full-v3"': ("env_id", "mine/Full-v3"),
    'env_id = "mine/Full-v3"\nnondeterministic = true': ("nondeterministic", True),
    'task = "a.b:C"': ("task", "a.b:C"),
    '[agent.names]\nx = "output:/x"': ("names", {"x": Source(SourceKind.OUTPUT, "/x")}),
    '[agent.names]\nh = "value:/body#2"': ("names", {"h": Source(SourceKind.VALUE, "/body", 2)}),
    '[agent.action]\nkind = "discrete"\nchoices = [[1, 2], [3, 4.5]]': (
        "action",
        Action(kind=ActionKind.DISCRETE, choices=((1.0, 2.0), (3.0, 4.5))),
    ),
    '[agent.action]\ninputs = ["/b", "/a*"]': ("action.inputs", ("/b", "/a*")),
    "[agent.action]\nnormalised = true": ("action.normalised", True),
    "[agent.action]\nlow = -1": ("action.low", -1.0),
    "[agent.action]\nhigh = [1, inf]": ("action.high", (1.0, float("inf"))),
    "[agent.action]\nrate = 0.5": ("action.rate", 0.5),
    '[agent.action]\nout_of_bounds = "error"': ("action.out_of_bounds", OutOfBounds.ERROR),
    '[agent.observe]\noutputs = ["/x"]': ("observe.outputs", ("/x",)),
    '[agent.observe]\ninfos = ["/i"]': ("observe.infos", ("/i",)),
    '[agent.observe]\nvalues = ["/v"]': ("observe.values", ("/v",)),
    '[agent.observe]\nranges = "announced"': ("observe.ranges", Ranges.ANNOUNCED),
    '[agent.observe.range]\n"/x" = { low = -1, high = 1 }': ("observe.range", {"/x": Range(-1.0, 1.0)}),
    '[agent.observe]\nout_of_range = "clip"': ("observe.out_of_range", OutOfRange.CLIP),
    '[agent.observe]\nnot_finite = "zero"': ("observe.not_finite", NotFinite.ZERO),
    "[agent.observe]\nscale = true": ("observe.scale", True),
    "[agent.observe]\nhistory = 3": ("observe.history", 3),
    "[agent.episode]\nreward = 1": ("episode.reward", "1.0"),
    '[agent.episode]\nterminated = "step > 1"': ("episode.terminated", "step > 1"),
    '[agent.episode]\ntruncated = "step > 9"': ("episode.truncated", "step > 9"),
    '[agent.episode]\nterminated_on = ["/fallen"]': ("episode.terminated_on", ("/fallen",)),
    "[agent.episode]\nmax_steps = 5": ("episode.max_steps", 5),
    '[agent.episode]\nneutral = { "/a*" = 0.5 }': ("episode.neutral", {"/a*": 0.5}),
    "[agent.episode]\nsettle_steps = 4": ("episode.settle_steps", 4),
    '[agent.episode]\nreset_observation = "zeros"': ("episode.reset_observation", ResetObservation.ZEROS),
}


@pytest.mark.parametrize("text", [*TOP, *OF_AGENT])
def test_every_key_is_read(text: str) -> None:
    if text in TOP:
        key, value = TOP[text]
        scenario = read(f'name = "x"\n{text}\n[[agent]]\n')
    else:
        key, value = OF_AGENT[text]
        key, scenario = f"agent.0.{key}", read(f"{AGENT}{text}\n")
    found: Any = scenario
    for part in key.split("."):
        found = found[0] if part == "0" else getattr(found, part)
    assert found == value


@pytest.mark.parametrize(
    "text, only",
    [
        ("match = { name = 'leg*' }\n[agent.action]\nnormalised = true\n", True),
        ("match = { name = 'arm' }\nenv_id = 'a/B-v0'\nnondeterministic = true\n", True),
        ("[agent.action]\nnormalised = true\n", False),
    ],
)
def test_a_scenario_may_only_choose_an_agent_and_say_nothing_of_its_task(text: str, only: bool) -> None:
    assert read(AGENT + text).only_chooses(arm()) is only
    assert not read("action_repeat = 2\n" + AGENT + text).only_chooses(arm())


def test_a_shipped_scenario_is_found_by_name_and_a_file_by_path(tmp_path: Path) -> None:
    assert load("cartpole").name == "cartpole"
    assert find("cartpole").suffix == ".toml"
    file = tmp_path / "cartpole.toml"
    # Some editors begin a file with this mark.
    file.write_bytes(b"\xef\xbb\xbf" + AGENT.encode())
    assert load(str(file)).name == "x"
    assert load(str(file)).origin == str(file)
    assert load(file) == load(str(file))
    assert load(Path("cartpole")) == load("cartpole")


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_scenario_is_called_as_its_file(name: str) -> None:
    scenario = load(name)
    assert scenario.name == name
    assert scenario.description.endswith(".")
    assert scenario.world is not None


# --- mistakes ---------------------------------------------------------------------------------------------------------

RANGE = "expected two finite numbers, low below high ({ low = 0.5, high = 2.0 })"
CHOICES = "expected a list with a list of inputs for each choice, such as [[-1.0], [1.0]], got"
SOURCES = "expected 'output:NAME', 'info:NAME', 'input:NAME' or 'value:NAME', got"
TOO_LARGE = "is too large for a float32, which ends at 3.40282e+38"
HUGE = f"1{'0' * 400}"


@pytest.mark.parametrize(
    "text, mistake",
    [
        ("[[agent]]\n", 'name: a scenario needs a name (for instance name = "cartpole")'),
        ('name = "x"\n', "agent: a scenario needs an agent (begin its table with [[agent]])"),
        ('naem = "y"\n' + AGENT, "naem: unknown key (did you mean 'name'?)"),
        ("action_repeat = true\n" + AGENT, "action_repeat: expected a whole number, 1 to 10000, got true"),
        ("time_step = 0\n" + AGENT, "time_step: expected a positive number of seconds, got 0"),
        (
            f"time_step = {HUGE}\n{AGENT}",
            "time_step: expected a positive number of seconds, got an integer of 1329 bits",
        ),
        (
            f"{AGENT}[values]\n'/a b' = []\n",
            "values.'/a b': expected a text, a number, true or false, or a list of numbers, got a list of 0",
        ),
        (
            f"{AGENT}[world]\nkind = 'gym'\n",
            'world.env: a gym world needs an environment (env = "CartPole-v1")',
        ),
        (
            f"{AGENT}[values]\n'/v' = {HUGE}\n",
            "values.'/v': expected an integer of 64 bits at most, got an integer of 1329 bits",
        ),
        (
            f"{AGENT}[values]\n'/Simulation/TimeStepSize' = 'nan'\n",
            "values.'/Simulation/TimeStepSize': 'nan' is no positive number of seconds",
        ),
        (f'{AGENT}[randomise]\n"/m" = {{ low = 1, high = 1 }}\n', f"randomise.'/m': {RANGE}"),
        (
            f"{AGENT}[world]\nkind = 'robot'\n",
            "world.robot: a robot world needs a robot ('ASeries' or 'Volksbot')",
        ),
        (
            f"{AGENT}[world]\nkind = 'robot'\nrobot = 'ASerie'\n",
            "world.robot: expected 'ASeries' or 'Volksbot', got 'ASerie' (did you mean 'ASeries'?)",
        ),
        (
            f'{AGENT}[world]\nkind = "arena"\nrobot = 1\n',
            "world.robot: unknown key (did you mean 'robots'?)",
        ),
        ("world = 3\n" + AGENT, "world: expected a table, got 3"),
        (
            f"{AGENT}[world]\nkind = 'moon'\n",
            "world.kind: expected 'gym' or 'arena' or 'synthetic' or 'robot', got 'moon'",
        ),
        (
            f"{AGENT}[world]\nrobots = 3\n",
            "world.kind: a world needs a kind ('gym' or 'arena' or 'synthetic' or 'robot')",
        ),
        (
            f"{AGENT}env_id = 'a/B-v0'\n[[agent]]\nenv_id = 'a/B-v0'\n",
            "agent: env_id 'a/B-v0' is given to more than one agent",
        ),
    ],
)
def test_a_mistake_is_told_with_its_key_and_a_way_out(text: str, mistake: str) -> None:
    assert mistakes(text) == (mistake,)


@pytest.mark.parametrize(
    "text, mistake",
    [
        ("env_id = 'cart'", "env_id: expected an id such as 'ospbridge/CartPole-v0', got 'cart'"),
        ("[agent.names]\nx = 'outputs:/x'", f"names.x: {SOURCES} 'outputs:/x' (did you mean 'output'?)"),
        (
            # It is not called unknown as well.
            "[agent.names]\nx = 'output:'\n[agent.episode]\nreward = 'x'",
            f"names.x: {SOURCES} 'output:'",
        ),
        (
            "[agent.names]\n_x = 'output:/x'",
            "names._x: no short name (letters, digits and single _, beginning with a letter)",
        ),
        ("[agent.action]\nkind = 'discrete'", f"action.choices: {CHOICES} a list of 0"),
        (
            "[agent.action]\nchoices = [[1]]\nlow = 0",
            'action.low: belongs to continuous actions (kind = "continuous")',
        ),
        ("[agent.action]\nrate = [0.5, 0]", "action.rate: must be greater than 0"),
        ("[agent.observe]\noutputs = ['b', 'a', 'c', 'a']", "observe.outputs: 'a' stands there twice"),
        (
            "[agent.episode]\ntruncated = 'time > 1'",
            "episode.truncated: time needs time_step (say at the top how many seconds a step takes: time_step = 0.01)",
        ),
        ("[agent.episode]\nreward = true", "episode.reward: expected an expression as a text, got true"),
        ("[agent.episode]\nneutral = inf", "episode.neutral: must be finite, since the agent is given it"),
        (
            "[agent.episode]\nsettle_steps = 0",
            'episode.settle_steps: an observation needs a step (at least 1, or reset_observation = "zeros")',
        ),
        ("[agent.action]\nhigh = [1, 1e39]", f"action.high: 1e+39 {TOO_LARGE}"),
        ('[agent.action]\nrate = { "*" = 1e300 }', f"action.rate: 1e+300 {TOO_LARGE}"),
        ("[agent.action]\nchoices = [[1], [-1e300]]", f"action.choices[1]: -1e+300 {TOO_LARGE}"),
        ("[agent.episode]\nneutral = [4e38]", f"episode.neutral: 4e+38 {TOO_LARGE}"),
        (
            "[agent.observe.range]\nx = { low = 0, high = 1e39 }",
            f"observe.range.x.high: 1e+39 {TOO_LARGE}",
        ),
    ],
)
def test_a_mistake_in_a_table_of_an_agent_is_told_with_its_key_and_a_way_out(text: str, mistake: str) -> None:
    assert mistakes(f"{AGENT}{text}\n") == (f"agent[0].{mistake}",)


def test_what_has_no_limit_may_be_infinite_and_the_largest_number_is_none_too_large() -> None:
    read(f"{AGENT}[agent.action]\nlow = -inf\nhigh = 3.4028234e38\nrate = inf\n")
    read(f'{AGENT}[randomise]\n"/v" = {{ low = 0, high = 1e300 }}\n')


def test_several_mistakes_are_told_on_lines_of_their_own_each_with_its_line_in_the_file(
    tmp_path: Path,
) -> None:
    file = tmp_path / "two.toml"
    file.write_text('name = "x"\n[[agent]]\n[agent.episode]\nreward = "y"\nmax_step = 1\n')
    with pytest.raises(ScenarioInvalid) as caught:
        load(str(file))
    assert str(caught.value).splitlines() == [
        f"{file} has 2 mistakes:",
        "  line 4: agent[0].episode.reward: unknown name 'y' ([agent.names] has none)",
        "  line 5: agent[0].episode.max_step: unknown key (did you mean 'max_steps'?)",
        f"(`ospbridge check {file}` tells whether all are mended)",
    ]
    # A log has a line for all.
    assert "\n" not in caught.value.message
    assert all(mistake in caught.value.message for mistake in caught.value.mistakes)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # as other processes get it


# --- what is no scenario ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["values = {\n", f"action_repeat = 1{'0' * 5000}\n", f"name = {'[' * 100_000}"]
)
def test_what_is_no_toml_is_told_as_that_and_no_crash(text: str) -> None:
    (found,) = mistakes(text)
    assert found.startswith("no TOML: ")


def test_what_is_not_utf_8_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "latin.toml"
    file.write_bytes(b'name = "x"\ndescription = "\xe4"\n[[agent]]\n')
    with pytest.raises(ScenarioInvalid, match="line 2: not UTF-8"):
        load(str(file))


def test_a_huge_file_is_no_scenario(tmp_path: Path) -> None:
    file = tmp_path / "huge.toml"
    file.write_bytes(b"#" * 1_000_001)
    with pytest.raises(ScenarioInvalid, match="it has 1000001 bytes"):
        load(str(file))


@pytest.mark.parametrize(
    "name, hint",
    [("cartpol", "did you mean 'cartpole'"), ("none.toml", "shipped are"), ("a/b", "shipped are")],
)
def test_what_is_not_there_is_told_with_what_is(name: str, hint: str) -> None:
    with pytest.raises(ScenarioNotFound) as caught:
        load(name)
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize(
    "name, told",
    [
        ("", "no scenario is called ''"),
        ("/proc/self/mem", "cannot be read: Input/output error"),
        ("x" * 5000, "File name too long"),
        ("/dev/null", "/dev/null is not a regular file"),
        ("/", "/ is a directory"),
    ],
    ids=["empty", "unreadable", "long", "device", "directory"],
)
def test_what_can_be_no_scenarios_file_is_told_as_what_it_is(name: str, told: str) -> None:
    with pytest.raises(ScenarioNotFound, match=told):
        load(name)
