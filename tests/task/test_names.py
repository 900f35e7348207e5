"""Names in scenarios: such as several values have, and variables that are vectors."""

from __future__ import annotations

from typing import Final

import numpy as np
import pytest

from ospbridge.errors import ScenarioInvalid
from ospbridge.interface import AgentInterface, BoxSpace, InterfaceValue, StepOutcome
from ospbridge.task.making import make_task
from ospbridge.task.reading import read
from ospbridge.task.variables import components_in
from ospbridge.task.vectors import named_vectors, observed_vectors, spelled_out, undecided
from tests.task.agents import arm, outcome, task

# --- values of one name, which are told apart by their positions ---------------------------------------------------


def twins() -> AgentInterface:
    """Two motors and two sensors of one name beside one of another, and infos that are called like a sensor."""
    return AgentInterface(
        1,
        "twins",
        tuple(
            InterfaceValue(name, -high, high) for name, high in (("/Motor", 1), ("/Fin", 2), ("/Motor", 3))
        ),
        tuple(
            InterfaceValue(name, -high, high) for name, high in (("/Angle", 1), ("/Depth", 2), ("/Angle", 3))
        ),
        tuple(InterfaceValue(name, 0.0, high) for name, high in (("/Depth", 4), ("/Heat", 5), ("/Heat", 6))),
    )


def brought() -> StepOutcome:
    return StepOutcome(np.array([0.1, 0.2, 0.3], np.float32), np.array([1, 2, 3], np.float32))


@pytest.mark.parametrize("globs, order", [('["*"]', [1.0, 2.0, 3.0]), ('["/M*", "*"]', [1.0, 3.0, 2.0])])
def test_a_glob_acts_on_each_input_once(globs: str, order: list[float]) -> None:
    tried = task(f"[agent.action]\ninputs = {globs}\n", agent=twins())
    assert isinstance(tried.action_space, BoxSpace)
    assert tried.action_space.high.tolist() == order
    assert tried.inputs(np.array([0.25, 0.5, 0.75], np.float32)).tolist() == [each / 4 for each in order]


def test_who_names_one_of_several_is_told_where_they_are() -> None:
    with pytest.raises(ScenarioInvalid) as caught:
        task(
            '[agent.names]\nx = "output:/Angle"\ny = "input:/Motor"\nz = "info:/Heat"\nw = "output:/Depth"\n'
            '[agent.action]\ninputs = ["/Fin", "/Motor"]\n'
            '[agent.observe]\noutputs = ["/Angle"]\ninfos = ["/Heat"]\n'
            '[agent.episode]\nneutral = { "/Motor" = 0.5 }\n',
            agent=twins(),
        )
    assert [mistake.partition(" (")[0] for mistake in caught.value.mistakes] == [
        "agent 'twins': episode.neutral: 2 names are called '/Motor', at 0 and 2 counted from 0",
        "agent 'twins': action.inputs: 2 inputs are called '/Motor', at 0 and 2 counted from 0",
        "agent 'twins': observe.outputs: 2 outputs are called '/Angle', at 0 and 2 counted from 0",
        "agent 'twins': observe.infos: 2 infos are called '/Heat', at 1 and 2 counted from 0",
        "agent 'twins': names.x: 2 outputs are called '/Angle', at 0 and 2 counted from 0",
        "agent 'twins': names.y: 2 inputs are called '/Motor', at 0 and 2 counted from 0",
        "agent 'twins': names.z: 2 infos are called '/Heat', at 1 and 2 counted from 0",
    ]
    assert caught.value.mistakes[0].endswith("or mean all of them by a glob)")
    assert caught.value.mistakes[-1].endswith("or read it by position in a class)")


# --- vectors, whole in observations and start values, by component in expressions ----------------------------------


HEAD: Final = 'name = "x"\n[[agent]]\n'
NAMES: Final = HEAD + '[agent.names]\npos = "value:/Pos"\ny = "value:/Pos#1"\ng = "value:/G"\n'


def told(text: str) -> tuple[str, ...]:
    with pytest.raises(ScenarioInvalid) as caught:
        read(text)
    return caught.value.mistakes


@pytest.mark.parametrize(
    "text, count",
    [
        ("(0.4,0.03,0)", 3),
        ("(0.7071,-0.7071,0,0)", 4),
        ("(inf,nan,-1e-05)", 3),
        ("(5)", 1),
        ("9.81", 0),
        ("T", 0),
        ("", 0),
        ("()", 0),
        ("(a,b)", 0),
        ("0.4,0.03", 0),
        ("(1,2", 0),
    ],
)
def test_a_vector_is_numbers_in_parentheses(text: str, count: int) -> None:
    assert components_in(text) == count


# --- observations -----------------------------------------------------------------------------------------------------


def test_a_whole_vector_is_observed_component_by_component_in_order() -> None:
    scenario = read(HEAD + '[agent.observe]\noutputs = ["/Force"]\nvalues = ["/G", "/Pos", "/Turn#1"]\n')
    made = make_task(spelled_out(scenario, {"/Pos": 3, "/Other": 2}), arm(), bounded=True)
    assert made.observation_names == ["/Force", "/G", "/Pos#0", "/Pos#1", "/Pos#2", "/Turn#1"]
    seen = made.begin(outcome(0, 0, 7, G="9.5", Pos="(1,2,3)", Turn="(4,5)"), seed=1).observation
    assert seen.tolist() == [7.0, 9.5, 1.0, 2.0, 3.0, 5.0]
    assert made.values == ("/G", "/Pos", "/Turn")


def test_ranges_and_history_are_those_of_each_component() -> None:
    scenario = read(
        HEAD
        + '[agent.observe]\noutputs = ["/Force"]\nvalues = ["/Pos"]\nhistory = 2\n[agent.observe.range]\n'
        '"/Pos#0" = { low = -9, high = 9 }\n"/Pos" = { low = -1, high = 1 }\n"/Pos#2" = { low = -3, high = 3 }\n'
    )
    made = make_task(spelled_out(scenario, {"/Pos": 3}), arm(), bounded=True)
    assert made.observation_names[:4] == ["/Force (-1)", "/Pos#0 (-1)", "/Pos#1 (-1)", "/Pos#2 (-1)"]
    high = made.observation_space.high.tolist()
    assert high == [np.inf, 1.0, 1.0, 3.0] * 2


def test_what_must_be_known_is_what_is_observed_or_judged_whole() -> None:
    scenario = read(
        NAMES + '[agent.observe]\nvalues = ["/Seen", "/Turn#1"]\n[agent.episode]\nreward = "y + prev.g"\n'
    )
    assert undecided(scenario.agent) == ("/Seen", "/G")


def test_the_names_of_an_observation_tell_its_vectors() -> None:
    scenario = read(HEAD + '[agent.observe]\nvalues = ["/Pos", "/G", "/Turn#0"]\n')
    names = ["/Force", "/Pos#0", "/Pos#1", "/Pos#2", "/G", "/Turn#0"]
    assert observed_vectors(scenario.agent, names) == {"/Pos": 3}


# --- expressions ------------------------------------------------------------------------------------------------------

MISTAKE: Final = (
    "agent[0].names.pos: 'value:/Pos' is a vector, and episode.reward takes one number "
    "(name a component: value:/Pos#0, value:/Pos#1"
)


@pytest.mark.parametrize("expression", ["pos + g", "prev.pos", "abs(pos) if pos > 1 else g"])
def test_a_whole_vector_in_an_expression_is_told_where_the_scenario_names_a_component_too(
    expression: str,
) -> None:
    assert told(f'{NAMES}[agent.episode]\nreward = "{expression}"\n') == (MISTAKE + ")",)


@pytest.mark.parametrize("content", ["[0, 0, 1]", '"(0,0,1)"'])
def test_it_is_told_where_the_scenario_sets_the_variable_to_a_vector(content: str) -> None:
    names = NAMES.replace('y = "value:/Pos#1"\n', "")
    text = f'{names}[agent.episode]\nreward = "pos"\n[values]\n"/Pos" = {content}\n'
    assert told(text) == (MISTAKE + ", value:/Pos#2)",)


def test_it_is_told_when_the_simulator_has_said_what_is_a_vector() -> None:
    names = NAMES.replace('y = "value:/Pos#1"\n', "")
    scenario = read(f'{names}[agent.episode]\nterminated = "g > 1"\nreward = "pos"\n')
    assert named_vectors(scenario) == {}
    with pytest.raises(ScenarioInvalid) as caught:
        spelled_out(scenario, {"/Pos": 12})
    assert caught.value.mistakes == (MISTAKE + ", value:/Pos#2, ..., value:/Pos#11)",)
    assert "ospbridge check" in caught.value.hint


def test_the_first_component_alone_may_be_a_single_number() -> None:
    names = NAMES.replace("#1", "#0")
    assert named_vectors(read(f'{names}[agent.episode]\nreward = "pos + y"\n')) == {}


# --- start values -----------------------------------------------------------------------------------------------------


def test_a_list_sets_all_components_as_simulators_write_vectors() -> None:
    scenario = read(
        HEAD + '[values]\n"/Pos" = [0.4, 0.03, 0]\n"/Turn" = [0.7071, -0.7071, 0, 1e-7]\n"/One" = [2]\n'
    )
    assert scenario.values == {"/Pos": "(0.4,0.03,0)", "/Turn": "(0.7071,-0.7071,0,1e-07)", "/One": "(2)"}


@pytest.mark.parametrize("content", ["[]", "[1, true]", '["1", "2"]', "[[1, 2]]", "[1, nan]"])
def test_a_list_of_anything_else_is_a_mistake(content: str) -> None:
    (mistake,) = told(f'{HEAD}[values]\n"/Pos" = {content}\n')
    assert mistake.startswith("values.'/Pos': expected a text, a number, true or false, or a list of numbers")
