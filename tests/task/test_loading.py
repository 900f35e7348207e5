"""Scenario files: what is read from them, and what is said about those that are wrong."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ospbridge.errors import ScenarioInvalid, ScenarioNotFound
from ospbridge.task.loading import find, load
from ospbridge.task.reading import read
from ospbridge.task.scenario import (
    ActionKind,
    ArenaTable,
    GymTable,
    Match,
    Range,
    Source,
    SourceKind,
    SyntheticTable,
)
from ospbridge.task.shipped import shipped

AGENT = 'name = "x"\n[[agent]]\n'


def mistakes(text: str) -> tuple[str, ...]:
    with pytest.raises(ScenarioInvalid) as caught:
        read(text, "file.toml")
    assert str(caught.value).startswith("file.toml has ")
    return caught.value.mistakes


def test_the_smallest_scenario() -> None:
    scenario = read(AGENT)
    assert scenario.name == "x"
    (agent,) = scenario.agent
    assert agent.match == Match(name="*", type="*")
    assert agent.action.kind is ActionKind.CONTINUOUS
    assert scenario.world is None


def test_everything_at_once() -> None:
    scenario = read(
        """
name = "full"
description = "all of it"
action_repeat = 2
time_step = 0.02
[values]
"/g" = 9.81
[randomise]
"/m" = { low = 0.5, high = 2 }
[world]
kind = "arena"
robots = 3
[[agent]]
match = { name = "robot*", type = "Agent" }
env_id = "mine/Full-v3"
nondeterministic = true
task = "a.b:C"
[agent.names]
x = "output:/x"
h = "value:/body#2"
[agent.action]
kind = "discrete"
choices = [[1, 2], [3, 4.5]]
[agent.observe.range]
"/x" = { low = -1, high = 1 }
[agent.episode]
reward = 1
max_steps = 5
"""
    )
    agent = scenario.agent[0]
    assert scenario.values == {"/g": "9.81"}
    assert scenario.randomise == {"/m": Range(0.5, 2.0)}
    assert scenario.world == ArenaTable(robots=3)
    assert agent.names == {
        "x": Source(SourceKind.OUTPUT, "/x"),
        "h": Source(SourceKind.VALUE, "/body", 2),
    }
    assert agent.action.kind is ActionKind.DISCRETE
    assert agent.action.choices == ((1.0, 2.0), (3.0, 4.5))
    assert agent.episode.reward == "1.0"
    assert agent.nondeterministic
    assert [str(source) for source in agent.names.values()] == ["output:/x", "value:/body#2"]


@pytest.mark.parametrize(
    "table, world",
    [
        ('kind = "gym"\nenv = "CartPole-v1"\ncopies = 2', GymTable(env="CartPole-v1", copies=2)),
        ('kind = "arena"', ArenaTable()),
        (
            'kind = "synthetic"\ninputs = ["/a"]\nagents = ["b"]',
            SyntheticTable(agents=("b",), inputs=("/a",)),
        ),
    ],
)
def test_worlds(table: str, world: object) -> None:
    assert read(f'name = "x"\n[world]\n{table}\n[[agent]]\n').world == world


@pytest.mark.parametrize(
    "text, mistake",
    [
        ("[[agent]]\n", 'name: a scenario needs a name (for instance name = "cartpole")'),
        ('name = "x"\n', "agent: a scenario needs an agent (begin its table with [[agent]])"),
        ('name = ""\n[[agent]]\n', "name: expected a text, got ''"),
        ('naem = "y"\n' + AGENT, "naem: unknown key (did you mean 'name'?)"),
        ("action_repeat = true\n" + AGENT, "action_repeat: expected a whole number, 1 to 10000, got true"),
        ("time_step = 0\n" + AGENT, "time_step: expected a positive number of seconds, got 0"),
        ("values = 3\n" + AGENT, "values: expected a table, got 3"),
        (
            'name = "x"\n[values]\n"/a b" = []\n[[agent]]\n',
            "values.'/a b': expected a text, a number, or true or false, got a list of 0",
        ),
        (
            'name = "x"\n[randomise]\n"/m" = { low = 1 }\n[[agent]]\n',
            "randomise.'/m': expected two finite numbers, low below high ({ low = 0.5, high = 2.0 })",
        ),
        (
            'name = "x"\n[randomise]\n"/m" = { low = 1, high = 1 }\n[[agent]]\n',
            "randomise.'/m': expected two finite numbers, low below high ({ low = 0.5, high = 2.0 })",
        ),
        (
            'name = "x"\n[randomise]\n"/m" = { low = -inf, high = 1 }\n[[agent]]\n',
            "randomise.'/m': expected two finite numbers, low below high ({ low = 0.5, high = 2.0 })",
        ),
        (
            'name = "x"\n[world]\nkind = "gym"\n[[agent]]\n',
            'world.env: a gym world needs an environment (env = "CartPole-v1")',
        ),
        (
            'name = "x"\n[world]\nkind = "arena"\nrobot = 1\n[[agent]]\n',
            "world.robot: unknown key (did you mean 'robots'?)",
        ),
        (AGENT + "match = 'cart'\n", "agent[0].match: expected a table, got 'cart'"),
        (
            AGENT + "[agent.names]\nx = 'outputs:/x'\n",
            (
                "agent[0].names.x: expected 'output:NAME', 'info:NAME', 'input:NAME' or 'value:NAME', "
                "got 'outputs:/x' (did you mean 'output'?)"
            ),
        ),
        (
            AGENT + "[agent.names]\nx = 'output:'\n",
            (
                "agent[0].names.x: expected 'output:NAME', 'info:NAME', 'input:NAME' or 'value:NAME', "
                "got 'output:'"
            ),
        ),
        (
            AGENT + "[agent.names]\nstep = 'output:/x'\n",
            "agent[0].names.step: is a word of expressions already (choose another one)",
        ),
        (
            AGENT + "[agent.names]\n_x = 'output:/x'\n",
            "agent[0].names._x: no short name (letters, digits and single _, beginning with a letter)",
        ),
        (
            AGENT + "[agent.action]\nchoices = 3\n",
            (
                "agent[0].action.choices: expected a list with a list of inputs for each choice, "
                "such as [[-1.0], [1.0]], got 3"
            ),
        ),
        (
            AGENT + "[agent.action]\nkind = 'discrete'\n",
            (
                "agent[0].action.choices: expected a list with a list of inputs for each choice, "
                "such as [[-1.0], [1.0]], got a list of 0"
            ),
        ),
        (
            AGENT + "[agent.action]\nkind = 'continuous'\nchoices = [[1]]\n",
            'agent[0].action.choices: belongs to discrete actions (kind = "discrete")',
        ),
        (
            AGENT + "[agent.action]\nchoices = [[1]]\nlow = 0\n",
            'agent[0].action.low: belongs to continuous actions (kind = "continuous")',
        ),
        (
            AGENT + "[agent.action]\nlow = 'a'\n",
            "agent[0].action.low: expected a number, a list of numbers, or a table of numbers by name or glob, got 'a'",
        ),
        (AGENT + "[agent.action]\nrate = [0.5, 0]\n", "agent[0].action.rate: must be greater than 0"),
        (
            AGENT + "[agent.action]\nlow = nan\n",
            "agent[0].action.low: expected a number, a list of numbers, or a table of numbers by name or glob, got nan",
        ),
        (
            AGENT + "[agent.observe]\noutputs = ['b', 'a', 'c', 'a']\n",
            "agent[0].observe.outputs: 'a' stands there twice",
        ),
        (AGENT + "[agent.observe]\nscale = 1\n", "agent[0].observe.scale: expected true or false, got 1"),
        (
            AGENT + "[agent.episode]\nreward = true\n",
            "agent[0].episode.reward: expected an expression as a text, got true",
        ),
        (
            AGENT + "[agent.episode]\nterminated = 'x > 1'\n",
            "agent[0].episode.terminated: unknown name 'x' ([agent.names] has none)",
        ),
        (
            AGENT + "[agent.episode]\ntruncated = 'time > 1'\n",
            (
                "agent[0].episode.truncated: time needs time_step "
                "(say at the top how many seconds a step takes: time_step = 0.01)"
            ),
        ),
        (
            AGENT + "[agent.episode]\nreset_observation = 'zeros'\nsettle_steps = 2\n",
            "agent[0].episode.settle_steps: there is no settling with reset_observation = 'zeros' (leave it out)",
        ),
        (
            AGENT + "[agent.episode]\nsettle_steps = 0\n",
            (
                "agent[0].episode.settle_steps: an observation needs a step "
                '(at least 1, or reset_observation = "zeros")'
            ),
        ),
        (
            AGENT + "env_id = 'a/B-v0'\n[[agent]]\nenv_id = 'a/B-v0'\n",
            "agent: env_id 'a/B-v0' is given to more than one agent",
        ),
    ],
)
def test_a_mistake_is_told_with_its_key_and_a_way_out(text: str, mistake: str) -> None:
    assert mistakes(text) == (mistake,)


@pytest.mark.parametrize(
    "table, told",
    [
        ("x = { lo = 0.5, high = 2.0 }", ".lo: unknown key (did you mean 'low'?)"),
        ('x = { low = "a", high = 2.0 }', ".low: expected a number,"),
        ("x = { low = 2.0, high = 1.0 }", ": expected two finite numbers, low below high"),
        ("x = { low = 2.0 }", ": expected two finite numbers, low below high"),
        ("x = {}", ": expected two finite numbers, low below high"),
        ("x = 3", ": expected a table, got 3"),
    ],
)
def test_one_mistake_of_a_range_is_told_once(table: str, told: str) -> None:
    for text, path in (
        (f"{AGENT}[agent.observe.range]\n{table}\n", "agent[0].observe.range.x"),
        (f"{AGENT}[randomise]\n{table}\n", "randomise.x"),
    ):
        (found,) = mistakes(text)
        assert found.startswith(path + told)


@pytest.mark.parametrize(
    "world, told",
    [
        ("[world]\nkind = 3\n", "world.kind: expected 'gym' or 'arena' or 'synthetic', got 3"),
        ("[world]\nrobots = 3\n", "world.kind: a world needs a kind ('gym' or 'arena' or 'synthetic')"),
        ("[world]\n", "world.kind: a world needs a kind ('gym' or 'arena' or 'synthetic')"),
    ],
)
def test_a_kind_of_world_that_is_none_is_told_once(world: str, told: str) -> None:
    assert mistakes(AGENT + world) == (told,)


@pytest.mark.parametrize("name", ["in", "lambda", "print", "printed"])
def test_a_name_that_no_expression_could_say_is_a_mistake_by_itself(name: str) -> None:
    assert mistakes(f"{AGENT}[agent.names]\n{name} = 'output:/x'\n") == (
        f"agent[0].names.{name}: is a word of expressions already (choose another one)",
    )


def test_every_mistake_of_an_expression_is_told_once() -> None:
    found = mistakes(
        f'{AGENT}[agent.names]\nx = "output:/x"\n[agent.episode]\n'
        'reward = "y + y * foo(z, *x) - clip(x) + prev.q + x[0] + (w if x & y else x.real)"\n'
    )
    assert [each.partition(" (")[0] for each in found] == [
        f"agent[0].episode.reward: {what}"
        for what in (
            "unknown name 'y'",
            "unknown function 'foo'",
            "unknown name 'z'",
            "clip takes 3 arguments, got 1",
            "unknown name 'q' behind prev",
            "an expression may not hold an index [...]",
            "an expression may not hold '&'; write 'and'",
            "unknown name 'w'",
            "an expression may not hold 'x.real'; only prev.NAME has a dot",
        )
    ]


def test_all_mistakes_are_told_at_once() -> None:
    found = mistakes(
        'nam = 1\n[[agent]]\n[agent.action]\nkind = "x"\n[agent.episode]\nreward = "y"\nmax_steps = -1\n'
    )
    assert len(found) == 5


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


def test_a_single_mistake_is_told_on_one_line() -> None:
    with pytest.raises(ScenarioInvalid) as caught:
        read('name = "x"\n[[agent]]\ntsk = 1\n')
    assert caught.value.lines == (
        "scenario has 1 mistake: line 3: agent[0].tsk: unknown key (did you mean 'task'?)",
    )


def test_a_name_with_a_wrong_source_is_not_called_unknown_as_well() -> None:
    (found,) = mistakes(AGENT + "[agent.names]\nx = 'output'\n[agent.episode]\nreward = 'x'\n")
    assert found.startswith("agent[0].names.x: expected")


def test_what_is_no_toml_is_told_with_line_and_column() -> None:
    (found,) = mistakes('name = "x"\nvalues = {\n')
    assert found.startswith("no TOML: ")
    assert "line " in found


def test_what_is_not_utf_8_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "latin.toml"
    file.write_bytes(b'name = "x"\ndescription = "\xe4"\n[[agent]]\n')
    with pytest.raises(ScenarioInvalid, match="line 2: not UTF-8"):
        load(str(file))


def test_the_hint_is_a_command_that_can_be_copied(tmp_path: Path) -> None:
    file = tmp_path / "my scenario.toml"
    file.write_text("title = 1\n")
    with pytest.raises(ScenarioInvalid) as caught:
        load(str(file))
    assert caught.value.hint.startswith(f"`ospbridge check '{file}'` tells")
    with pytest.raises(ScenarioInvalid) as caught:
        read("title = 1\n")
    assert "ospbridge check FILE" in caught.value.hint


def test_the_mark_that_some_editors_begin_a_file_with_is_no_part_of_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_bytes(b"\xef\xbb\xbf" + AGENT.encode())
    assert load(str(file)).name == "x"


def test_a_huge_file_is_no_scenario(tmp_path: Path) -> None:
    file = tmp_path / "huge.toml"
    file.write_bytes(b"#" * 1_000_001)
    with pytest.raises(ScenarioInvalid, match="it has 1000001 bytes"):
        load(str(file))


HUGE = f"1{'0' * 400}"


@pytest.mark.parametrize(
    "text, told",
    [
        (
            f"{AGENT}[agent.action]\nlow = {HUGE}\n",
            (
                "agent[0].action.low: expected a number, a list of numbers, or a table of numbers by name or glob, "
                "got an integer of 1329 bits"
            ),
        ),
        (f"{AGENT}[agent.action]\nchoices = [[{HUGE}]]\n", "agent[0].action.choices: expected a list"),
        (f"{AGENT}[agent.episode]\nreward = {HUGE}\n", "agent[0].episode.reward: expected an expression"),
        (
            f"{AGENT}[agent.episode]\nmax_steps = 0x{'f' * 5000}\n",
            "agent[0].episode.max_steps: expected a whole number, 1 or more, got an integer of 20000 bits",
        ),
        (f"time_step = {HUGE}\n{AGENT}", "time_step: expected a positive number of seconds, got an integer"),
        (
            f"{AGENT}[values]\n'/v' = {HUGE}\n",
            "values.'/v': expected an integer of 64 bits at most, got an integer of 1329 bits",
        ),
        (
            f"{AGENT}[agent.action]\nkind = 0x{'f' * 5000}\n",
            "agent[0].action.kind: expected 'continuous' or 'discrete', got an integer of 20000 bits",
        ),
        (f"{AGENT}[agent.episode]\nmax_steps = 1{'0' * 5000}\n", "no TOML: "),
    ],
)
def test_an_integer_that_nothing_can_hold_is_a_mistake_and_no_crash(text: str, told: str) -> None:
    (mistake,) = mistakes(text)
    assert mistake.startswith(told)


@pytest.mark.parametrize(
    "text, where",
    [
        ("[agent.action]\nlow = -1e39\n", "action.low: -1e+39"),
        ("[agent.action]\nhigh = [1, 1e39]\n", "action.high: 1e+39"),
        ('[agent.action]\nrate = { "*" = 1e300 }\n', "action.rate: 1e+300"),
        ("[agent.action]\nchoices = [[1], [-1e300]]\n", "action.choices[1]: -1e+300"),
        ("[agent.episode]\nneutral = [4e38]\n", "episode.neutral: 4e+38"),
        ("[agent.observe.range]\nx = { low = 0, high = 1e39 }\n", "observe.range.x.high: 1e+39"),
    ],
)
def test_a_number_that_would_become_infinite_on_its_way_is_told(text: str, where: str) -> None:
    assert mistakes(AGENT + text) == (
        f"agent[0].{where} is too large for a float32, which ends at 3.40282e+38",
    )


def test_what_has_no_limit_may_be_infinite_and_the_largest_number_is_none_too_large() -> None:
    read(f"{AGENT}[agent.action]\nlow = -inf\nhigh = 3.4028234e38\nrate = inf\n")
    read(f'{AGENT}[randomise]\n"/v" = {{ low = 0, high = 1e300 }}\n')


@pytest.mark.parametrize(
    "text, told",
    [
        ("neutral = inf", "agent[0].episode.neutral: must be finite, since the agent is given it"),
        ("reward = inf", "agent[0].episode.reward: expected an expression as a text, got inf"),
    ],
)
def test_what_must_be_finite_is_told_where_it_is_not(text: str, told: str) -> None:
    assert mistakes(f"{AGENT}[agent.episode]\n{text}\n") == (told,)


@pytest.mark.parametrize("seconds", ["nan", "inf", "-0.1", "0"])
def test_a_time_step_among_the_values_must_be_one(seconds: str) -> None:
    assert mistakes(f"{AGENT}[values]\n'/Simulation/TimeStepSize' = '{seconds}'\n") == (
        f"values.'/Simulation/TimeStepSize': '{seconds}' is no positive number of seconds",
    )


def test_a_whole_number_is_set_with_all_of_its_digits() -> None:
    scenario = read(f"{AGENT}[values]\n'/id' = 12345678901234567\n'/n' = -3\n'/g' = 9.81\n")
    assert scenario.values == {"/id": "12345678901234567", "/n": "-3", "/g": "9.81"}


def test_deep_nesting_is_a_mistake_and_no_crash() -> None:
    mistakes(f"name = {'[' * 100_000}")


def test_a_shipped_scenario_is_found_by_name_and_a_file_by_path(tmp_path: Path) -> None:
    assert load("cartpole").name == "cartpole"
    assert find("cartpole").suffix == ".toml"
    file = tmp_path / "cartpole.toml"
    file.write_text(AGENT)
    assert load(str(file)).name == "x"
    assert load(str(file)).origin == str(file)
    assert load(file) == load(str(file))
    assert load(Path("cartpole")) == load("cartpole")


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


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_scenario_is_called_as_its_file(name: str) -> None:
    scenario = load(name)
    assert scenario.name == name
    assert scenario.description.endswith(".")
    assert scenario.world is not None


VALUES = st.recursive(
    st.one_of(st.integers(), st.floats(), st.booleans(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = [
    *(
        "name",
        "values",
        "randomise",
        "world",
        "agent",
        "match",
        "env_id",
        "task",
        "names",
        "action",
        "observe",
    ),
    *("episode", "kind", "choices", "low", "high", "rate", "inputs", "outputs", "infos", "range", "ranges"),
    *("history", "reward", "terminated", "terminated_on", "max_steps", "neutral", "settle_steps"),
    *("action_repeat", "time_step", "scale", "normalised", "reset_observation", "out_of_range"),
]


@given(st.dictionaries(st.sampled_from(KEYS), VALUES), st.dictionaries(st.sampled_from(KEYS), VALUES))
def test_any_tables_are_a_scenario_or_mistakes_and_nothing_else(
    top: dict[str, object], agent: dict[str, object]
) -> None:
    from ospbridge.task import reading
    from ospbridge.task.scenario import Scenario
    from ospbridge.toml.tables import Mistakes, Table

    found = Mistakes()
    inner = {"action": agent, "observe": agent, "episode": agent, "names": agent, **agent}
    for tables in (top, {**top, "agent": [agent]}, {**top, "agent": [inner], "world": agent}):
        reading._scenario(Table(tables, "", reading._keys(Scenario), found), "any")
