"""Moments as points: few, in order, with the ends of episodes, and bounded for whoever does not take them."""

from __future__ import annotations

from ospbridge.dashboard.traces import MOST_CURVES, MOST_WAITING, POINTS_AT_ONCE, Curves, Traces
from ospbridge.hub.replies import Kind
from tests.dashboard.synthetic import description, moment


def test_slow_steps_are_all_shown() -> None:
    traces = Traces()
    traces.add([moment(1), moment(2), moment(3)], 10.0)
    points = traces.take()
    assert [point.step for point in points] == [1, 2, 3]
    assert points[-1].time == 10.0
    assert points[0].observation == [0.001, 0.001]
    assert points[0].inputs == [0.5]
    assert not traces.take()


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
