"""What it costs to read and write steps and experience, as ratios to floors measured beside it. Never times."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson

from ospbridge.interface import AgentInterface, InterfaceValue, StepOutcome
from ospbridge.osp.fast_path import FastPath, StepRequest
from ospbridge.osp.messages import (
    NextSimulationStep,
    NextSimulationStepAck,
    StepCompleted,
    decode_request,
)
from ospbridge.osp.profile import DOCUMENT
from ospbridge.rllink.batches import check_fragments
from ospbridge.rllink.dialects import JSON, MSGPACK
from ospbridge.rllink.messages import EpisodesAndGetState
from ospbridge.task.base import Task
from ospbridge.task.making import make_task
from ospbridge.task.plain import PlainTask
from ospbridge.task.reading import read
from tests.bench.patience import ratio
from tests.rllink.episodes import arrays_of, episode

TIMES = 200
"""Calls of a run: less than a millisecond, so that hardly one is interrupted by other programs."""
INPUTS, OUTPUTS, FLOATS = 8, 16, 128
RECOGNITION_LIMIT = 3.0
"""2.1 was measured on one machine and 2.7 on another."""
REQUEST_LIMIT = 2.0
SCENARIO_LIMIT = 2.6
"""What the scenario may add to the task without one, as a multiple of the same arithmetic in plain Python."""
SCENARIO = """
name = "bench"
[[agent]]
[agent.names]
a = "output:/sensor/0"
b = "output:/sensor/1"
c = "output:/sensor/2"
d = "output:/sensor/3"
e = "output:/sensor/4"
[agent.episode]
reward = "1.0 - 0.1 * (a * a + b * b) - 0.01 * abs(c)"
terminated = "abs(d) > 2.4 or abs(e) > 2.4"
"""


def agent(inputs: int = INPUTS, outputs: int = OUTPUTS) -> AgentInterface:
    return AgentInterface(
        1,
        "agent",
        tuple(InterfaceValue(f"/motor/{at}", -1.0, 1.0) for at in range(inputs)),
        tuple(InterfaceValue(f"/sensor/{at}", -1.0, 1.0) for at in range(outputs)),
        (),
        "",
    )


# --- a completion --------------------------------------------------------------------------------------------------

NUMBERS = np.linspace(0.0, 1.0, FLOATS, dtype=np.float32)
COMPLETED = StepCompleted(1, NUMBERS, NUMBERS[:0]).encode()
HEAD = struct.Struct("<Biiiii")


def completion_floor() -> Any:
    """Its head, and a copy of the numbers, of a datagram in which nothing is doubted."""
    HEAD.unpack_from(COMPLETED)
    return np.frombuffer(COMPLETED, "<f4", FLOATS, HEAD.size).copy()


PATH = FastPath((StepRequest(agent(outputs=FLOATS), DOCUMENT),), pipelining=False)
ACKNOWLEDGED = [NextSimulationStepAck(1).encode()]


def completion_recognised() -> StepOutcome:
    """As a session does when nothing else happens, with what it does while the simulator works."""
    PATH.came = came = ACKNOWLEDGED[:]
    PATH.prepare()
    head, size, _, _ = PATH.expected[1]
    assert COMPLETED.startswith(head)
    assert len(COMPLETED) == size
    came.append(COMPLETED)
    return PATH.outcome()


def test_a_completion_on_the_fast_path_is_read_for_little_more_than_its_numbers() -> None:
    np.testing.assert_array_equal(completion_recognised().outputs, NUMBERS)
    promised = RECOGNITION_LIMIT
    assert ratio(completion_recognised, completion_floor, promised=promised, times=TIMES) <= promised


# --- a step request ------------------------------------------------------------------------------------------------

REQUEST = StepRequest(agent(), DOCUMENT)
ACTION = np.linspace(-1.0, 1.0, INPUTS, dtype=np.float32)
PACK = struct.Struct(f"<Bii{INPUTS}f").pack


def request_encoded() -> None:
    REQUEST.fill(ACTION)


def request_floor() -> bytes:
    """The same datagram from the same array, whatever is in it."""
    return PACK(1, 1, INPUTS, *ACTION.tolist())


def test_a_step_request_is_written_and_checked_for_little_more_than_its_numbers() -> None:
    request_encoded()
    written = decode_request(bytes(REQUEST.datagram))
    assert isinstance(written, NextSimulationStep)
    np.testing.assert_array_equal(written.inputs, ACTION)
    assert ratio(request_encoded, request_floor, promised=REQUEST_LIMIT, times=TIMES) <= REQUEST_LIMIT


# --- a scenario ----------------------------------------------------------------------------------------------------

OUTCOME = StepOutcome(np.linspace(0.0, 1.0, OUTPUTS, dtype=np.float32), np.zeros(0, np.float32))
PLAIN = PlainTask(agent(), bounded=True)
JUDGING = make_task(read(SCENARIO), agent(), bounded=True)


def judged(task: Task) -> Callable[[], object]:
    return lambda: task.evaluate(OUTCOME, seed=1)


def arithmetic() -> tuple[float, bool]:
    """The two expressions, with all that they need of an outcome."""
    numbers = OUTCOME.outputs.tolist()
    a, b, c, d, e = numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]
    return 1.0 - 0.1 * (a * a + b * b) - 0.01 * abs(c), abs(d) > 2.4 or abs(e) > 2.4


def test_reward_and_termination_of_five_names_cost_little_more_than_their_arithmetic() -> None:
    feedback = JUDGING.evaluate(OUTCOME, seed=1)
    assert (feedback.reward, feedback.terminated) == arithmetic()
    plain = judged(PLAIN)
    promised = SCENARIO_LIMIT
    without = ratio(plain, arithmetic, promised=0.0, times=TIMES, longest=1.0)
    assert ratio(judged(JUDGING), arithmetic, promised=without + promised, times=TIMES) <= without + promised


# --- experience ----------------------------------------------------------------------------------------------------

EPISODES, STEPS = 20, 200
FRAGMENTS = tuple(
    episode(STEPS, observation=16, action=4, seed=number, id=f"{number:032x}") for number in range(EPISODES)
)
BATCH = EpisodesAndGetState(FRAGMENTS)
JSON_FLOOR_US = 0.76
"""Microseconds a step that orjson alone took for these arrays on two quiet cores, where JSON was to take 1 us at most,
and msgpack 0.15 us. Their ratios to the floor are what other machines are asked for."""


def json_floor() -> bytes:
    """The same arrays by orjson alone."""
    return orjson.dumps([arrays_of(sent) for sent in FRAGMENTS], option=orjson.OPT_SERIALIZE_NUMPY)


def test_json_costs_little_more_than_its_digits() -> None:
    promised = 1.0 / JSON_FLOOR_US
    assert ratio(lambda: JSON.encode(BATCH), json_floor, promised=promised) <= promised


def test_msgpack_costs_a_small_part_of_the_digits_that_it_saves() -> None:
    promised = 0.15 / JSON_FLOOR_US
    assert ratio(lambda: MSGPACK.encode(BATCH), json_floor, promised=promised) <= promised


def test_json_costs_a_small_part_of_what_rays_own_client_spends() -> None:
    def plainly() -> str:
        return json.dumps(
            [{name: array.tolist() for name, array in arrays_of(sent).items()} for sent in FRAGMENTS]
        )

    assert ratio(lambda: JSON.encode(BATCH), plainly, promised=0.12) <= 0.12


def test_the_check_before_sending_costs_a_small_part_of_writing_json() -> None:
    assert ratio(lambda: check_fragments(FRAGMENTS), lambda: JSON.encode(BATCH), promised=0.2) <= 0.2
