"""Worlds that cannot be told in OSP are refused before a client could stumble over them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ospbridge.errors import ConfigurationError
from ospbridge.interface import InterfaceValue
from ospbridge.osp.profile import DOCUMENT, NERD
from ospbridge.osp.repository import text_variable
from ospbridge.osp.world import WorldAgent
from ospbridge.simulator.hosting import check_world
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator

WHOLE = InterfaceValue("/whole", -1.0, 1.0)


def world(**changes: Any) -> Any:
    made = SyntheticWorld(1, 1)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize("time_step", [0, -0.01, math.nan, math.inf, "0.01"])
def test_a_step_takes_a_positive_number_of_seconds(time_step: object) -> None:
    with pytest.raises(ConfigurationError, match="time_step must be a positive number of seconds, got"):
        check_world(world(time_step=time_step), DOCUMENT)


@pytest.mark.parametrize(
    "kind, low, high",
    [
        ("input", 1.0, -1.0),
        ("output", math.nan, 1.0),
        ("info", -1.0, math.nan),
        ("output", math.inf, math.inf),
        ("input", -math.inf, -math.inf),
    ],
)
def test_a_range_has_its_smaller_number_first(kind: str, low: float, high: float) -> None:
    values = {each: [WHOLE] for each in ("input", "output", "info")}
    values[kind] = [WHOLE, InterfaceValue("/wrong", low, high)]
    agent = WorldAgent("a", values["input"], values["output"], values["info"])
    with pytest.raises(
        ConfigurationError, match=f"{kind} '/wrong' of agent 'a' has the range from"
    ) as caught:
        check_world(world(agents=[agent]), DOCUMENT)
    assert "smaller number comes first" in caught.value.hint


def test_events_are_several_names_and_no_text() -> None:
    with pytest.raises(
        ConfigurationError, match="events must be a list or tuple of names, got the text"
    ) as caught:
        check_world(world(events=("/Bump")), DOCUMENT)
    assert "('/Bump',)" in caught.value.hint


@pytest.mark.parametrize("name", [3, None, "a\0b"])
def test_names_are_texts(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="the name of an agent must be a text without NUL"):
        check_world(world(agents=[WorldAgent(name, [], [])]), DOCUMENT)
    with pytest.raises(ConfigurationError, match="the name of an event must be a text"):
        check_world(world(events=["/Bump", name]), DOCUMENT)
    with pytest.raises(ConfigurationError, match="the name of an output of agent 'a' must be a text"):
        check_world(world(agents=[WorldAgent("a", [], [InterfaceValue(name, 0, 1)])]), DOCUMENT)


def test_a_simulator_is_not_made_for_such_a_world() -> None:
    with pytest.raises(ConfigurationError, match="time_step"):
        UdpSimulator(world(time_step=0), port=0)


@pytest.mark.parametrize(
    "named",
    [
        {"agents": [WorldAgent("Knöchel", [WHOLE], [WHOLE])]},
        {"agents": [WorldAgent("a", [WHOLE], [InterfaceValue("/Knöchel", -1.0, 1.0)])]},
        {"events": ("/Stoß",)},
        {"variables": [text_variable("/Größe")]},
    ],
)
def test_names_of_a_nerd_server_are_ascii(named: dict[str, Any]) -> None:
    check_world(world(**named), DOCUMENT)
    with pytest.raises(ConfigurationError, match="sends zeros for all but ASCII"):
        check_world(world(**named), NERD)
