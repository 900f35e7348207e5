"""Values of one name are told apart by their positions, and who names one that could be either is told so."""

from __future__ import annotations

import numpy as np
import pytest

from ospbridge.errors import ScenarioInvalid
from ospbridge.interface import AgentInterface, BoxSpace, InterfaceValue, StepOutcome
from ospbridge.task.making import make_task
from ospbridge.task.plain import PlainTask
from ospbridge.task.reading import read
from ospbridge.task.scenario_task import ScenarioTask


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


def task(table: str) -> ScenarioTask:
    made = make_task(read(f'name = "test"\n[[agent]]\n{table}'), twins(), bounded=True)
    assert isinstance(made, ScenarioTask)
    return made


def brought() -> StepOutcome:
    return StepOutcome(np.array([0.1, 0.2, 0.3], np.float32), np.array([1, 2, 3], np.float32))


def highest(space: object) -> list[float]:
    assert isinstance(space, BoxSpace)
    found: list[float] = space.high.tolist()
    return found


@pytest.mark.parametrize("globs, order", [('["*"]', [1.0, 2.0, 3.0]), ('["/M*", "*"]', [1.0, 3.0, 2.0])])
def test_a_glob_acts_on_each_input_once(globs: str, order: list[float]) -> None:
    tried = task(f"[agent.action]\ninputs = {globs}\n")
    assert highest(tried.action_space) == order
    assert tried.inputs(np.array([0.25, 0.5, 0.75], np.float32)).tolist() == [each / 4 for each in order]


def test_who_names_one_of_several_is_told_where_they_are() -> None:
    with pytest.raises(ScenarioInvalid) as caught:
        task(
            '[agent.names]\nx = "output:/Angle"\ny = "input:/Motor"\nz = "info:/Heat"\nw = "output:/Depth"\n'
            '[agent.action]\ninputs = ["/Fin", "/Motor"]\n'
            '[agent.observe]\noutputs = ["/Angle"]\ninfos = ["/Heat"]\n'
            '[agent.episode]\nneutral = { "/Motor" = 0.5 }\n'
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


def test_infos_of_one_name_are_told_apart_by_a_number() -> None:
    heats = tuple(InterfaceValue(name, 0.0, 1.0) for name in ("/Heat", "/Heat (2)", "/Heat", "/Heat"))
    assert AgentInterface(1, "a", (), (), heats).info_names == [
        "/Heat",
        "/Heat (2)",
        "/Heat (3)",
        "/Heat (4)",
    ]
    for tried in (task(""), PlainTask(twins(), bounded=True)):
        told = tried.begin(brought(), seed=1)
        assert told.info["infos"] == {"/Depth": 1.0, "/Heat": 2.0, "/Heat (2)": 3.0}
        assert tried.cut(told.observation, "why", seed=1).info["infos"].keys() == told.info["infos"].keys()
