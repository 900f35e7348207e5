"""A scenario at work: actions, observations, rewards, ends."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ospbridge.errors import AgentNotFound, LocalProtocolError, ScenarioInvalid, TaskError
from ospbridge.interface import (
    BoxSpace,
    DiscreteSpace,
    Feedback,
    StepOutcome,
)
from ospbridge.task.base import ANY_NUMBER
from ospbridge.task.making import make_task, task_maker
from ospbridge.task.plain import PlainTask
from ospbridge.task.reading import read
from ospbridge.task.scenario_task import ScenarioTask
from ospbridge.task.variables import number_in
from tests.task.agents import INFOS, arm, outcome, task

NAMES = '[agent.names]\nleft = "output:/Left/Angle [-1,1]"\nforce = "output:/Force"\n'


def box(space: object) -> tuple[list[float], list[float]]:
    assert isinstance(space, BoxSpace)
    assert space.low.dtype == space.high.dtype == np.float32
    return space.low.tolist(), space.high.tolist()


def step(tried: ScenarioTask, *outputs: float, **more: Any) -> Feedback:
    return tried.evaluate(outcome(*outputs, **more), seed=1)


# --- actions ------------------------------------------------------------------------------------------------------


RANGES = ([-2.0, 0.0], [2.0, 1.0])


@pytest.mark.parametrize(
    "table, space, told",
    [
        ("", RANGES, [([2.5, 0.5], [2, 0.5]), ([-9, -1], [-2, 0]), ([0.25, 0.75], [0.25, 0.75])]),
        ('out_of_bounds = "pass"', RANGES, [([0, 1.5], [0, 1.5])]),
        (
            "normalised = true",
            ([-1, -1], [1, 1]),
            [([-1, -1], [-2, 0]), ([0, 0], [0, 0.5]), ([7, 1], [2, 1])],
        ),
        ("low = -1", ([-1, -1], [2, 1]), [([-2, -2], [-1, -1])]),
        ("low = [-1, 0.5]", ([-1, 0.5], [2, 1]), [([-2, 0], [-1, 0.5])]),
        ('low = { "/Left/*" = -0.5 }', ([-0.5, 0], [2, 1]), [([-1, 0], [-0.5, 0])]),
        (
            'inputs = ["/Right/*"]\n[agent.episode]\nneutral = [1.5, 0.25]',
            ([0], [1]),
            [([0.75], [1.5, 0.75])],
        ),
    ],
    ids=["clipped", "passed", "normalised", "limit for all", "for each", "by name", "chosen, others neutral"],
)
def test_an_action_becomes_the_inputs_that_the_scenario_says(
    table: str, space: Any, told: list[tuple[list[float], list[float]]]
) -> None:
    tried = task(f"[agent.action]\n{table}\n")
    assert box(tried.action_space) == space
    for action, inputs in told:
        assert tried.inputs(action).tolist() == inputs
        assert tried.inputs(np.array(action, np.float32)).tolist() == inputs
    assert task("[agent.episode]\nneutral = [1.5, 0.25]\n").neutral.tolist() == [1.5, 0.25]


def test_what_is_no_action_or_out_of_bounds_is_an_error_where_that_is_wanted() -> None:
    with pytest.raises(LocalProtocolError, match=r"has shape \(2,\), got \(3,\)"):
        task().inputs([0.0, 0.0, 0.0])
    with pytest.raises(
        LocalProtocolError, match=r"gives input '/Right/Motor' 1.5, its bounds are 0.0 and 1.0"
    ):
        task('[agent.action]\nout_of_bounds = "error"\n').inputs([0.0, 1.5])


def test_an_action_that_the_caller_overwrites_is_remembered_as_it_was_given() -> None:
    tried = task(REWARDED)
    tried.begin(outcome(), seed=1)
    action = np.array([1.5, 0.5], np.float32)
    tried.inputs(action)
    action[:] = 0.0
    assert step(tried).reward == 1.5


def test_the_rate_limits_the_change_from_action_to_action_and_begins_at_neutral() -> None:
    tried = task('[agent.action]\nrate = { "/Left/Motor" = 0.5 }\n')
    tried.begin(outcome(), seed=1)
    for action, asked in (([2.0, 1.0], [0.5, 1.0]), ([2.0, 0.0], [1.0, 0.0]), ([-2.0, 0.0], [0.5, 0.0])):
        assert tried.inputs(action).tolist() == asked
        tried.evaluate(outcome(), seed=1)
    tried.begin(outcome(), seed=2)
    with pytest.raises(LocalProtocolError, match="is nan"):
        tried.inputs([0.0, float("nan")])
    assert tried.inputs([-2.0, 0.0]).tolist() == [-0.5, 0.0]


@pytest.mark.parametrize("rows", ["", "choices = [[1.0, 1.0]]\n"])
def test_an_action_without_a_step_is_not_what_the_next_one_is_slowed_from(rows: str) -> None:
    tried = task(f"[agent.action]\n{rows}rate = 0.25\n")
    tried.begin(outcome(), seed=1)
    action = 0 if rows else [1.0, 1.0]
    for _ in range(3):
        # Another agent's action of the same step is refused, and so no step is taken.
        assert tried.inputs(action).tolist() == [0.25, 0.25]
    for _ in range(3):
        # It is repeated.
        tried.evaluate(outcome(), seed=1)
    assert tried.inputs(action).tolist() == [0.5, 0.5]


def test_choices_are_rows_of_inputs() -> None:
    tried = task('[agent.action]\ninputs = ["/Right/Motor", "/Left/Motor"]\nchoices = [[0, 1], [1, -1]]\n')
    assert tried.action_space == DiscreteSpace(2)
    assert tried.inputs(np.int64(1)).tolist() == [-1.0, 1.0]
    for wrong in (2, -1, 0.5, "0", None):
        with pytest.raises(LocalProtocolError, match="is one of 0 to 1"):
            tried.inputs(wrong)


REWARDED = '[agent.names]\nmotor = "input:/Left/Motor"\n[agent.episode]\nreward = "motor"\n'


# --- observations -------------------------------------------------------------------------------------------------


def test_without_a_word_all_outputs_are_observed_in_the_ranges_that_can_be_trusted() -> None:
    inf = float("inf")
    assert box(task().observation_space) == ([-1.0, -1.0, -inf], [1.0, 1.0, inf])
    assert box(task(bounded=False).observation_space) == ([-inf] * 3, [inf] * 3)
    announced = '[agent.observe]\nranges = "announced"\n'
    assert box(task(announced, bounded=False).observation_space) == ([-1.0, -1.0, -inf], [1.0, 1.0, inf])
    assert box(task('[agent.observe]\nranges = "unbounded"\n').observation_space) == ([-inf] * 3, [inf] * 3)


def test_what_is_observed_comes_in_the_order_of_the_globs_then_infos_then_values() -> None:
    tried = task(
        '[agent.observe]\noutputs = ["/Force", "/Left/Angle [-1,1]"]\ninfos = ["/i"]\nvalues = ["/on", "/v#1"]\n',
        infos=["/i"],
    )
    assert tried.values == ("/on", "/v")
    seen = tried.begin(outcome(1.0, 2.0, 3.0, infos=[4.0], on="T", v="(5,6.5,7)"), seed=1).observation
    assert seen.tolist() == [3.0, 1.0, 4.0, 1.0, 6.5]
    # No value announces a range.
    assert box(tried.observation_space) == (
        [-np.inf, -1.0, 0.0, -np.inf, -np.inf],
        [np.inf, 1.0, 1.0, np.inf, np.inf],
    )


def test_ranges_are_scaled_to_one_and_what_has_none_is_left_alone() -> None:
    tried = task('[agent.observe]\nscale = true\n[agent.observe.range]\n"/Left/*" = { low = 0, high = 10 }\n')
    low, high = box(tried.observation_space)
    assert (low[:2], high[:2]) == ([-1.0, -1.0], [1.0, 1.0])
    assert step(tried, 7.5, 0.5, 100.0).observation.tolist() == [0.5, 0.5, 100.0]


def test_history_holds_the_last_frames_oldest_first_and_begins_full() -> None:
    tried = task('[agent.observe]\noutputs = ["/Force"]\nhistory = 3\n')
    assert tried.observation_space.low.shape == (3,)
    assert tried.begin(outcome(0, 0, 1), seed=1).observation.tolist() == [1, 1, 1]
    assert step(tried, 0, 0, 2).observation.tolist() == [1, 1, 2]
    kept = step(tried, 0, 0, 3).observation
    assert step(tried, 0, 0, 4).observation.tolist() == [2, 3, 4]
    assert kept.tolist() == [1, 2, 3]


def test_repetitions_of_an_action_are_one_frame_of_history() -> None:
    tried = task('[agent.observe]\noutputs = ["/Force"]\nhistory = 2\n', "action_repeat = 2")
    tried.begin(outcome(0, 0, 1), seed=1)
    assert [step(tried, 0, 0, force).observation.tolist() for force in (2, 3, 4, 5)] == [
        [1, 2],
        [1, 3],
        [3, 4],
        [3, 5],
    ]


@pytest.mark.parametrize(
    "policy, seen, truncated",
    [("pass", 1.5, False), ("clip", 1.0, False), ("end", 1.0, True)],
)
def test_a_sensor_out_of_range_is_as_the_scenario_says(policy: str, seen: float, truncated: bool) -> None:
    tried = task(f'[agent.observe]\nout_of_range = "{policy}"\n')
    tried.begin(outcome(), seed=1)
    feedback = step(tried, 0.0, 1.5)
    assert feedback.observation.tolist() == [0.0, seen, 0.0]
    assert feedback.truncated is truncated
    assert feedback.reason == feedback.info["reason"]
    assert (
        "'/Right/Angle' of agent 'arm' is 1.5, its range ends at -1 and 1" in feedback.reason
    ) is truncated
    # It is the policy of a step, not of the whole episode.
    assert not step(tried, 0.0, 0.5).truncated


@pytest.mark.parametrize("policy", ["zero", "pass"])
def test_expressions_see_what_is_not_finite_as_it_came_and_can_ask(policy: str) -> None:
    tried = task(
        f'{NAMES}[agent.observe]\nnot_finite = "{policy}"\n[agent.episode]\n'
        'reward = "left if isfinite(left) else -3.0"\ntruncated = "not isfinite(prev.left)"\n'
    )
    tried.begin(outcome(), seed=1)
    told = [step(tried, left) for left in (0.5, float("nan"), 0.25)]
    assert [feedback.reward for feedback in told] == [0.5, -3.0, 0.25]
    assert [feedback.truncated for feedback in told] == [False, False, True]


def test_zeros_as_the_first_observation_need_no_settling() -> None:
    tried = task(
        '[agent.episode]\nreset_observation = "zeros"\n'
        '[agent.observe]\n[agent.observe.range]\n"/Force" = { low = 2, high = 4 }\n'
    )
    assert tried.settle_steps == 0
    assert tried.begin(outcome(9.0, 9.0, 9.0), seed=1).observation.tolist() == [0.0, 0.0, 2.0]


# --- rewards and ends ---------------------------------------------------------------------------------------------


def test_expressions_decide_reward_and_ends() -> None:
    tried = task(
        NAMES
        + '[agent.episode]\nreward = "1 - abs(left)"\nterminated = "left > 0.5"\ntruncated = "force > 9"\n'
    )
    tried.begin(outcome(), seed=1)
    assert step(tried, 0.25).reward == 0.75
    assert step(tried, 0.75).terminated
    assert step(tried, 0.0, 0.0, 10.0).truncated


HALF = '[values]\n"/Simulation/TimeStepSize" = 0.5\n'


@pytest.mark.parametrize(
    "reward, top, forces, told",
    [
        ("force - prev.force", "", [3, 5, 4], [2.0, -1.0]),
        ("100 * step + time", "time_step = 0.25", [0, 0, 0], [100.25, 200.5]),
        ("time", HALF, [0, 0], [0.5]),
        ("time", HALF + '"/Simulation/IterationsPerStep" = 4\n', [0, 0], [2.0]),
    ],
    ids=["prev", "step and time", "the time step that is set", "and its iterations"],
)
def test_prev_step_and_time_count_from_the_reset(
    reward: str, top: str, forces: list[float], told: list[float]
) -> None:
    tried = task(NAMES + f'[agent.episode]\nreward = "{reward}"\n', top)
    for seed in (1, 2):
        tried.begin(outcome(0, 0, forces[0]), seed=seed)
        assert [step(tried, 0, 0, force).reward for force in forces[1:]] == told


def test_names_stand_for_infos_inputs_and_values_too() -> None:
    tried = task(
        '[agent.names]\ni = "info:/i"\nmotor = "input:/Left/Motor"\nheight = "value:/body#2"\n'
        '[agent.episode]\nreward = "i + 10 * motor + 100 * height"\n',
        infos=["/i"],
    )
    assert tried.values == ("/body",)
    tried.begin(outcome(infos=[0.0], body="(0,0,0)"), seed=1)
    tried.inputs([2.0, 0.0])
    assert step(tried, infos=[1.0], body="(7,8,3)").reward == 321.0


@pytest.mark.parametrize(
    "text, told",
    [
        (None, "the simulator sent no '/v'"),
        ("(1,2)", r"value:/v is '\(1,2\)', which is no number \(name a component, for instance value:/v#0"),
        ("#3 of (4,5,6)", r"value:/v#3 is '\(4,5,6\)', which is no number \(its components are #0 to #2"),
        ("#3 of 4", r"value:/v#3 is '4', which is no number \(leave #3 out: it is no vector"),
        ("#0 of (a,b)", r"value:/v#0 is '\(a,b\)', which is no number"),
    ],
)
def test_a_value_that_is_gone_or_no_number_is_an_error_that_names_it(text: str | None, told: str) -> None:
    component, _, number = (text or "").rpartition(" of ")
    tried = task(f'[agent.names]\nv = "value:/v{component}"\n[agent.episode]\nreward = "v"\n')
    tried.begin(outcome(v="(0,1,2,3)" if component else "1"), seed=1)
    with pytest.raises(TaskError, match=told):
        step(tried, **({} if text is None else {"v": number}))


@pytest.mark.parametrize(
    "text, component, expected",
    [
        ("0,05", None, 0.05),
        ("-1.5e-3", None, -1.5e-3),
        ("T", None, 1.0),
        ("F", None, 0.0),
        ("(0.4,0.03,0)", 1, 0.03),
    ],
)
def test_a_number_is_read_with_a_point_or_a_comma(text: str, component: int | None, expected: float) -> None:
    assert number_in(text, component) == expected


def test_what_the_scenario_leaves_open_the_simulator_decides() -> None:
    tried = task('[agent.episode]\nterminated = "False"\n', infos=INFOS)
    tried.begin(outcome(infos=[0, 0, 0]), seed=1)
    feedback = step(tried, infos=[0.5, 1.0, 1.0])
    assert (feedback.reward, feedback.terminated, feedback.truncated) == (0.5, False, True)
    silent = task()
    silent.begin(outcome(), seed=1)
    feedback = step(silent)
    assert (feedback.reward, feedback.terminated, feedback.truncated) == (0.0, False, False)


def test_events_terminate_where_the_scenario_says_so() -> None:
    tried = task('[agent.episode]\nterminated_on = ["/fallen"]\n')
    assert tuple(tried.events) == ("/fallen",)
    tried.begin(outcome(), seed=1)
    assert not step(tried, events=["/other"]).terminated
    assert step(tried, events=["/other", "/fallen"]).terminated


def test_the_horizon_truncates_without_a_reason_of_the_bridges() -> None:
    tried = task("[agent.episode]\nmax_steps = 2\n", "action_repeat = 2")
    for _ in range(2):
        tried.begin(outcome(), seed=1)
        told = [step(tried) for _ in range(4)]
        assert [feedback.truncated for feedback in told] == [False, False, False, True]
        assert told[-1].reason == ""


def test_an_action_that_ends_early_counts_as_one_and_the_next_begins_behind_it() -> None:
    tried = task(
        '[agent.observe]\noutputs = ["/Force"]\nhistory = 2\n[agent.episode]\nmax_steps = 3\n',
        "action_repeat = 4",
    )
    for _ in range(2):
        tried.begin(outcome(0, 0, 1), seed=1)
        step(tried, 0, 0, 2)
        assert step(tried, 0, 0, 3).observation.tolist() == [1, 3]
        assert not tried.cut_action(2)
        told = [step(tried, 0, 0, force) for force in range(4, 12)]
        assert [feedback.observation.tolist() for feedback in told[2:6]] == [[3, 6], [3, 7], [7, 8], [7, 9]]
        assert [feedback.truncated for feedback in told] == [False] * 7 + [True]
    tried.begin(outcome(), seed=1)
    for _ in range(9):
        assert not step(tried).truncated
    assert tried.cut_action(3), "it was the last one"


def test_an_expression_that_fails_is_an_error_with_its_values() -> None:
    tried = task(NAMES + '[agent.episode]\nreward = "1 / force"\n')
    tried.begin(outcome(), seed=1)
    with pytest.raises(TaskError, match=r"agent 'arm': reward = '1 / force' failed: .*zero, with force = 0"):
        step(tried)
    assert step(tried, 0, 0, 2).reward == 0.5


@pytest.mark.parametrize("source", ["inf * force", "force * inf - force * inf"])
def test_a_reward_that_is_no_number_is_an_error(source: str) -> None:
    tried = task(NAMES + f'[agent.episode]\nreward = "{source}"\n')
    tried.begin(outcome(), seed=1)
    with pytest.raises(TaskError, match=r"reward = '.*' is (inf|nan)"):
        step(tried, 0, 0, 1)


# --- the straight path ----------------------------------------------------------------------------------------------


class Roundabout(ScenarioTask):
    """Overrides what the straight path leaves out, and changes nothing."""

    def judge(self, outcome: StepOutcome) -> tuple[float, bool, bool]:
        return super().judge(outcome)

    def inputs(self, action: Any) -> NDArray[np.float32]:
        return self._actor.inputs(action)


ALL_NAMES = NAMES + 'right = "output:/Right/Angle"\n'
TABLES = [
    ALL_NAMES
    + '[agent.episode]\nreward = "left - right * force"\nterminated = "left > 0.5"\nmax_steps = 3\n',
    ALL_NAMES + '[agent.episode]\nreward = "force / right"\nterminated_on = ["/fallen"]\n',
    ALL_NAMES + '[agent.episode]\nreward = "left + step"\ntruncated = "right and force"\n',
    ALL_NAMES + '[agent.observe]\nout_of_range = "end"\n[agent.episode]\nreward = "left + right"\n',
    ALL_NAMES + '[agent.observe]\nnot_finite = "pass"\n[agent.episode]\nreward = "left + right"\n',
    ALL_NAMES + '[agent.action]\nnormalised = true\n[agent.episode]\nreward = "left + prev.right"\n',
    ALL_NAMES + '[agent.action]\nout_of_bounds = "error"\n[agent.episode]\nreward = "left + right"\n',
    ALL_NAMES + '[agent.episode]\nreward = "left > right"\nterminated = "(left - 1) ** 0.5 > right"\n',
    ALL_NAMES + '[agent.episode]\nreward = "1"\nmax_steps = 2\n',
    '[agent.names]\nself = "output:/Right/Angle"\n[agent.episode]\nreward = "(self - step) ** 0.5"\n',
]
numbers = st.one_of(st.floats(-3, 3, width=32), st.sampled_from([np.nan, np.inf, -np.inf]))


def said(call: Callable[[], Any]) -> Any:
    """What it returned, and of which types, or raised."""
    try:
        found = call()
    except (TaskError, LocalProtocolError) as error:
        return type(error), error.message
    if not isinstance(found, Feedback):
        return found
    told = msgspec.structs.asdict(found)
    return told, [type(each).__name__ for each in told.values()]


@given(
    table=st.sampled_from(TABLES),
    steps=st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=4),
    action=st.lists(numbers, min_size=1, max_size=3),
)
def test_the_straight_path_leads_to_the_same(
    table: str, steps: list[list[float]], action: list[float]
) -> None:
    scenario = read(f'name = "test"\n[[agent]]\n{table}')
    one, other = (
        kind(arm(), bounded=True, scenario=scenario, rules=scenario.agent[0])
        for kind in (ScenarioTask, Roundabout)
    )
    given_ = np.array(action, np.float32)
    np.testing.assert_equal(said(lambda: one.inputs(given_)), said(lambda: other.inputs(given_)))
    for tried in (one, other):
        tried.begin(outcome(), seed=1)
    for outputs in steps:
        events = ("/fallen",) if outputs[0] > 2 else ()
        brought = outcome(*outputs, events=events)
        np.testing.assert_equal(
            said(partial(one.evaluate, brought, seed=1)), said(partial(other.evaluate, brought, seed=1))
        )


def test_the_straight_path_is_taken_where_it_can_be() -> None:
    ways = [task(table)._straight is not None for table in TABLES]
    assert ways == [*(True,) * 3, *(False,) * 3, *(True,) * 4]


# --- values -------------------------------------------------------------------------------------------------------


def test_start_values_are_texts_as_the_simulator_writes_them_and_draws_follow_the_seed() -> None:
    tried = task(
        top='[values]\n"/a" = 9.81\n"/b" = true\n"/c" = 3\n"/d" = "(1,2)"\n'
        '[randomise]\n"/mass" = { low = 1, high = 2 }\n"/size" = { low = -1, high = 0 }\n'
    )

    def drawn(seed: int) -> dict[str, str]:
        return dict(tried.start_values(np.random.default_rng(seed)))

    values = drawn(1)
    assert {name: values[name] for name in ("/a", "/b", "/c", "/d")} == {
        "/a": "9.81",
        "/b": "T",
        "/c": "3",
        "/d": "(1,2)",
    }
    assert 1.0 <= float(values["/mass"]) <= 2.0
    assert -1.0 <= float(values["/size"]) <= 0.0
    assert drawn(1) == values != drawn(2)


# --- what does not fit --------------------------------------------------------------------------------------------


def test_all_that_does_not_fit_the_agent_is_told_at_once() -> None:
    with pytest.raises(ScenarioInvalid) as caught:
        task(
            '[agent.names]\nx = "output:/Forcee"\n'
            '[agent.action]\nlow = [1, 2, 3]\nrate = { "/Up/*" = 1 }\n'
            '[agent.observe]\noutputs = ["/Farce", "/Left/*"]\ninfos = ["/none"]\n'
            "[agent.episode]\nneutral = [0]\n"
        )
    assert caught.value.mistakes == (
        "agent 'arm': episode.neutral: expected 2 numbers, got 1 (one for each of /Left/Motor, /Right/Motor)",
        "agent 'arm': action.low: expected 2 numbers, got 3 (one for each of /Left/Motor, /Right/Motor)",
        "agent 'arm': action.rate: no name '/Up/*' (there are /Left/Motor, /Right/Motor)",
        "agent 'arm': observe.outputs: no output '/Farce' (did you mean '/Force'?)",
        "agent 'arm': observe.infos: no info '/none' (there is no info at all)",
        "agent 'arm': names.x: no output '/Forcee' (did you mean '/Force'?)",
    )
    assert caught.value.exit_code == 78
    head, *told = caught.value.lines
    assert head.endswith(" does not fit:")
    assert told == list(caught.value.mistakes)


@pytest.mark.parametrize(
    "table, wrong",
    [
        ("[agent.action]\nchoices = [[1]]\n", "action.choices: expected 2 inputs a choice, got 1"),
        ("[agent.action]\nlow = 3\n", "action.low: is not below high for input '/Left/Motor'"),
        ("[agent.observe]\noutputs = []\n", "observe: observes nothing"),
        ("[agent.action]\nnormalised = true\nhigh = inf\n", "input '/Left/Motor' has no finite range"),
        ('[agent.observe.range]\n"/x" = { low = 0, high = 1 }\n', "observe.range: no observed value '/x'"),
        (
            '[agent.observe]\nscale = true\n[agent.observe.range]\n"/Force" = { low = 1, high = 1.00000001 }\n',
            "observe.scale: the range of '/Force' is too narrow",
        ),
    ],
)
def test_what_else_does_not_fit(table: str, wrong: str) -> None:
    with pytest.raises(ScenarioInvalid) as caught:
        task(table)
    assert any(wrong in mistake for mistake in caught.value.mistakes), caught.value.mistakes


def test_the_first_table_that_matches_name_and_type_counts() -> None:
    scenario = read(
        'name = "two"\n[[agent]]\nmatch = { type = "Agent" }\n'
        '[[agent]]\nmatch = { name = "a*", type = "Robot" }\n[[agent]]\nenv_id = "x/Never-v0"\n'
    )
    assert scenario.for_agent(arm()) is scenario.agent[1]


def test_an_agent_without_a_table_is_refused_alone_and_plain_among_many() -> None:
    scenario = read('name = "other"\n[[agent]]\nmatch = { name = "leg*" }\n')
    with pytest.raises(
        AgentNotFound, match="has no task for agent 'arm' of type 'Robot'; it matches 'leg\\*'"
    ):
        make_task(scenario, arm(), bounded=True)
    assert type(task_maker(scenario)(arm(), bounded=True)) is PlainTask
    assert type(task_maker(read('name = "any"\n[[agent]]\n'))(arm(), bounded=True)) is ScenarioTask


@pytest.mark.parametrize(
    "rows, expected",
    [
        ("", (0.0, 1.0)),
        ('[agent.action]\nout_of_bounds = "error"\n', (0.0, 1.0)),
        ('[agent.action]\nout_of_bounds = "pass"\n', ANY_NUMBER),
        ("[agent.action]\nnormalised = true\n", None),
        ("[agent.action]\nrate = 0.5\n", None),
        ("[agent.action]\nchoices = [[0, 1], [1, -1]]\n", None),
        (REWARDED, None),
    ],
)
def test_a_task_says_between_which_numbers_an_action_is_the_inputs(
    rows: str, expected: tuple[float, float] | None
) -> None:
    tried = task(rows)
    assert tried.as_given == expected
    if expected is not None and expected != ANY_NUMBER:
        action = np.array(expected, np.float32)
        assert tried.inputs(action) is action
