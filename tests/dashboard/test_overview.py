"""What the page is told: all of it at first, then what has changed."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import msgspec
import pytest

from ospbridge.dashboard.address import Access
from ospbridge.dashboard.assets import page_files
from ospbridge.dashboard.overview import Overview, Parts, changes
from ospbridge.dashboard.serving import Dashboard
from ospbridge.dashboard.traces import MOST_CURVES, MOST_WAITING, POINTS_AT_ONCE, Curves, Traces
from ospbridge.errors import ConfigurationError
from ospbridge.hub.replies import Kind
from ospbridge.hub.status import STEP_BOUNDS, AgentStatus, LaunchStatus, StatusReply, StepTimes
from ospbridge.interface import Endpoint
from ospbridge.observe.recent import Warned
from tests.dashboard.synthetic import description, moment, status


class Told:
    """An overview that is looked at every second."""

    def __init__(self) -> None:
        self.overview = Overview()
        self.now = 0.0
        self.parts: Parts = {}

    def look(self, *statuses: StatusReply, warnings: tuple[Warned, ...] = ()) -> dict[tuple[str, str], Any]:
        """What changed."""
        self.now += 1.0
        self.overview.refresh(statuses, warnings, now=self.now, wall=1000.0 + self.now)
        before, self.parts = self.parts, self.overview.parts
        return {(kind, key): part for kind, key, part in changes(before, self.parts)}


def test_at_first_all_is_told_and_then_what_changes() -> None:
    launched = LaunchStatus("NerdSim", 7, 1, "/log", batch=True, core=1)
    overview = Told()
    told = overview.look(status(launched=launched, uptime=100.0))
    assert {kind for kind, _ in told} == {"daemon", "simulator", "agent", "history", "upstream"}
    simulator = told["simulator", ""]
    assert (simulator.counts, simulator.sent) == (status().step_times.counts, 42)
    assert simulator.launched == launched
    assert told["agent", "/robot"].state == "playing"
    assert told["history", "/robot"].returns == [1.5, 2.5]
    assert not overview.look(status(launched=launched, uptime=101.2))
    gone = msgspec.structs.replace(launched, pid=None)
    assert {key: part.launched for key, part in overview.look(status(launched=gone)).items()} == {
        ("simulator", ""): gone
    }


def test_what_is_gone_is_told() -> None:
    told = Told()
    told.look(status(), warnings=(Warned(1, "", "warning", "x"),))
    found = told.look(status(agents=[], upstreams=[]))
    assert found == {
        ("agent", "/robot"): None,
        ("history", "/robot"): None,
        ("upstream", "observe/127.0.0.1:5555"): None,
        ("warning", "1"): None,
    }


def test_an_upstream_of_several_simulators_is_one() -> None:
    told = Told().look(status(name="left"), status(name="right"))
    (found,) = [part for (kind, _), part in told.items() if kind == "upstream"]
    assert found.simulators == ("left", "right")


def test_agents_of_equal_name_are_told_apart() -> None:
    names = [("a", "b/c"), ("a/b", "c"), ("a%2Fb", "c")]
    told = Told().look(*(status(name=name, agents=[AgentStatus(agent, "free")]) for name, agent in names))
    agents = [part for (kind, _), part in told.items() if kind == "agent"]
    assert [(part.simulator, part.name) for part in agents] == names


def test_names_are_short_and_visible_and_agents_are_told_apart_all_the_same() -> None:
    names = ["A" * 20_000 + end + "A" * 20_000 for end in ("left", "right")] + ["e\x1b[2J\u202e"]
    told = Told().look(status(agents=[AgentStatus(name, "free", name) for name in names]))
    agents = [part for (kind, _), part in told.items() if kind == "agent"]
    assert len({part.name for part in agents}) == 3
    assert all(part.name.isprintable() and part.driver.isprintable() for part in agents)
    assert len(msgspec.json.encode([(*key, part) for key, part in told.items()])) < 10_000


def test_the_rate_is_that_of_the_latest_seconds() -> None:
    told = Told()
    told.look(status(steps=1000))
    for steps in (1010, 1020, 1030, 1130, 1230, 1330):
        told.look(status(steps=steps))
    assert told.parts["simulator", ""].rate == 100.0


def test_the_time_of_a_step_is_the_mean_of_the_latest_ones() -> None:
    told = Told()
    told.look(status(step_times=StepTimes((0, 10) + (0,) * 17, 1.0)))
    assert told.parts["simulator", ""].step_seconds is None
    told.look(status(step_times=StepTimes((0, 20) + (0,) * 17, 1.5)))
    assert told.parts["simulator", ""].step_seconds == 0.05


def test_all_of_it_is_json_whatever_it_holds() -> None:
    nan = AgentStatus("<b>\u2028\n", "playing", returns=[float("nan"), float("inf")])
    parts = Told().look(status(agents=[nan]))
    data = msgspec.json.encode([(*key, part) for key, part in parts.items()])
    assert b"\n" not in data
    history = next(part for kind, _, part in json.loads(data) if kind == "history")
    assert history["returns"] == [None, None]


# --- moments as points: few, in order, with the ends of episodes, and bounded for whoever does not take them --------


def test_fast_steps_are_thinned_evenly_and_the_last_one_is_among_them() -> None:
    traces = Traces()
    traces.add([moment(number) for number in range(1, 129)], 10.0)
    points = traces.take()
    assert len(points) == POINTS_AT_ONCE
    assert [point.step for point in points] == list(range(16, 129, 16))
    assert sorted(point.time for point in points) == [point.time for point in points]


def test_ends_of_episodes_are_never_left_out() -> None:
    moments = [moment(number) for number in range(1, 101)]
    moments[40] = moment(41, terminated=True)
    moments[41] = moment(42, Kind.RESET, step=0)
    traces = Traces()
    traces.add(moments, 10.0)
    assert {(41, Kind.STEP), (0, Kind.RESET)} <= {(point.step, point.kind) for point in traces.take()}


def test_who_takes_nothing_loses_the_oldest() -> None:
    traces = Traces()
    for number in range(1, 1001):
        traces.add([moment(number)], float(number))
    points = traces.take()
    assert len(points) == MOST_WAITING
    assert points[-1].step == 1000


def test_of_very_many_sensors_the_first_are_shown_and_the_others_counted() -> None:
    curves = Curves.of(description(outputs=1000))
    assert len(curves.observation) == MOST_CURVES
    assert curves.more == (1000 - MOST_CURVES, 0, 0)
    traces = Traces()
    traces.add([moment(1, sensors=1000)], 0.0)
    assert len(traces.take()[0].observation) == MOST_CURVES


# --- the files of the page: nothing in them is run or loaded that did not come with the package ---------------------


PAGE = page_files()


def test_the_page_has_no_script_or_style_of_its_own_and_loads_nothing_from_elsewhere() -> None:
    for name, data in PAGE.items():
        text = data.decode()
        if name.endswith(".html"):
            assert not re.search(r"<style|style=|\son\w+=|<script(?![^>]*src=)", text), name
        assert not re.search(r"(?:src|href)=\"(?!/|#)", text), name
        assert not re.search(r"@import|url\(", text), name


@pytest.mark.parametrize("name", [name for name in PAGE if name.endswith(".js")])
def test_what_a_simulator_says_never_becomes_markup(name: str) -> None:
    text = PAGE[name].decode()
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
    )
    assert len(text.splitlines()) < 400


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypercorn", None)
    with pytest.raises(ConfigurationError, match="hypercorn") as caught:
        Dashboard(Endpoint("127.0.0.1", 0), Access())
    assert "ospbridge[dashboard]" in caught.value.hint


def test_the_chart_of_times_has_the_bounds_that_the_daemon_counts_by() -> None:
    (bounds,) = re.findall(r"BOUNDS = \[([^]]+)\]", PAGE["charts.js"].decode())
    assert tuple(map(float, bounds.split(","))) == STEP_BOUNDS
