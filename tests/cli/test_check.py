"""`ospbridge check`: every mistake of a scenario on a line of its own, with and without a simulator."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ospbridge.observe.trace import read_trace
from ospbridge.osp.world import Variable, World
from ospbridge.simulator.arena import ArenaWorld
from ospbridge.simulator.gym_world import GymWorld
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.cli.conftest import Served
from tests.cli.programs import invoke

check = partial(invoke, "check")


def written(tmp_path: Path, text: str) -> str:
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\n' + text)
    return str(file)


def test_every_mistake_has_a_line_and_the_exit_code_is_78(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        'action_repeats = 2\n[[agent]]\n[agent.names]\ntheta = "output:/a"\n'
        '[agent.episode]\nreward = "thetaa"\nmax_steps = 0\n',
    )
    assert check(file, exit_code=78).stdout.splitlines() == [
        f"{file}:2: action_repeats: unknown key (did you mean 'action_repeat'?)",
        f"{file}:7: agent[0].episode.reward: unknown name 'thetaa' (did you mean 'theta'?)",
        f"{file}:8: agent[0].episode.max_steps: expected a whole number, 1 or more, got 0",
    ]


def test_json_has_exactly_the_promised_keys(tmp_path: Path) -> None:
    file = written(tmp_path, "[[agent]]\nmatsch = {}\n")
    assert json.loads(check(file, "--json", exit_code=78).stdout) == {
        "file": file,
        "mistakes": ["agent[0].matsch: unknown key (did you mean 'match'?)"],
        "lines": [3],
        "agents": [],
        "unchecked": [],
    }


@pytest.mark.loopback
def test_with_a_simulator_all_that_does_not_exist_there_is_told(
    serve: Callable[[World], Served], tmp_path: Path
) -> None:
    served = serve(GymWorld(["CartPole-v1"]))
    file = written(
        tmp_path,
        "time_step = 0.5\n"
        '[values]\n"/Sim/cart/Parameter/gravty" = 1\n'
        '[[agent]]\nmatch = { name = "robot*" }\n'
        "[[agent]]\n[agent.names]\n"
        'x = "output:/cart/posn"\nv = "value:/Sim/cart/Parameter/lenghtness"\n'
        '[agent.observe]\noutputs = ["/cort/*"]\nvalues = ["/Simulation/Seed#2"]\n'
        "[agent.action]\nlow = [1, 2]\n",
    )
    told = served.run("check", file, exit_code=78).stdout.replace(f"{file}:", "").splitlines()
    begins = [
        "2: time_step: is 0.5 s, a step of the simulator takes 0.01 s",
        "4: values.'/Sim/cart/Parameter/gravty': the simulator has no value '/Sim/cart/Parameter/gravty' (did you mean",
        "6: agent[0].match: no agent is 'robot*' (there are 'cart' of type 'CartPole-v1')",
        "9: agent[1].names.x: no output '/cart/posn' (did you mean '/cart/position'",
        "10: agent[1].names.v: the simulator has no value '/Sim/cart/Parameter/lenghtness' (did you mean",
        "12: agent[1].observe.outputs: no output '/cort/*' (",
        "13: agent[1].observe.values: '/Simulation/Seed#2' is '0', which is no number (leave #2 out",
        "15: agent[1].action.low: expected 1 number, got 2 (one for each of /cart/push), for agent 'cart'",
    ]
    assert [line[: len(begin)] for line, begin in zip(told, begins, strict=False)] == begins
    assert len(told) == len(begins)
    served.assert_all_free()


@pytest.mark.loopback
def test_with_a_simulator_values_that_it_could_not_take_are_told(
    serve: Callable[[World], Served], profile: str, tmp_path: Path
) -> None:
    served = serve(ArenaWorld(1))
    file = written(
        tmp_path,
        '[values]\n"/Simulation/Seed" = 1.5\n"/Simulation/TimeStepSize" = 0.5\n'
        '"/Sim/Arena/Size" = "wide"\n"/Simulation/RandomizeSeedAtReset" = 1\n'
        '[randomise]\n"/Simulation/IterationsPerStep" = { low = 1, high = 9 }\n'
        '"/Simulation/RandomizeSeedAtReset" = { low = 0, high = 1 }\n'
        '"/Sim/Arena/TopSpeed" = { low = 0.5, high = 1 }\n"/Sim/Arena/TopSped" = { low = 0.5, high = 1 }\n'
        "[[agent]]\n",
    )
    kind = "Int" if profile == "nerd" else "Integer"
    told = served.run("check", file, exit_code=78).stdout.replace(f"{file}:", "").splitlines()
    begins = [
        f"3: values.'/Simulation/Seed': expected a whole number ({kind}), got '1.5'",
        "5: values.'/Sim/Arena/Size': expected a number (Double), got 'wide'",
        "6: values.'/Simulation/RandomizeSeedAtReset': expected true or false (Bool), got '1'",
        "8: randomise.'/Simulation/IterationsPerStep': what is drawn has decimals, and the variable is a whole number",
        "9: randomise.'/Simulation/RandomizeSeedAtReset': it is 'F', and no number that could be drawn",
        "11: randomise.'/Sim/Arena/TopSped': the simulator has no value '/Sim/Arena/TopSped' (did you mean",
    ]
    assert [line[: len(begin)] for line, begin in zip(told, begins, strict=True)] == begins


class Placed(SyntheticWorld):
    """With a position, which its simulator tells to be a vector."""

    def __init__(self) -> None:
        super().__init__(1, 1)
        self.variables = [Variable("/Pos", "Vector3D", lambda: "(1,2,3)", lambda _: True)]


@pytest.mark.loopback
def test_with_a_simulator_a_whole_vector_is_a_mistake_where_one_number_is_needed(
    serve: Callable[[World], Served], tmp_path: Path
) -> None:
    served = serve(Placed())
    good = '[[agent]]\n[agent.observe]\nvalues = ["/Pos"]\n[values]\n"/Pos" = [0, 0, 1]\n'
    assert "no mistakes" in served.run("check", written(tmp_path, good)).stdout
    file = written(
        tmp_path,
        '[[agent]]\n[agent.names]\nx = "value:/Pos"\n'
        '[agent.observe]\nvalues = ["/Pos", "/Pos#3"]\n[agent.episode]\nreward = "x"\n',
    )
    # The fourth component says that it has four.
    assert "is a vector" in check(file, exit_code=78).stdout
    Path(file).write_text(Path(file).read_text().replace(', "/Pos#3"', ""))
    check(file)
    assert served.run("check", file, exit_code=78).stdout == (
        f"{file}:4: agent[0].names.x: 'value:/Pos' is a vector, and episode.reward takes one number "
        "(name a component: value:/Pos#0, value:/Pos#1, value:/Pos#2)\n"
    )
    short = written(tmp_path, '[[agent]]\n[values]\n"/Pos" = [0, 1]\n')
    told = served.run("check", short, exit_code=78).stdout
    assert (
        "values.'/Pos': expected 3 components (Vector3D), got '(0,1)' (write them as a list, such as [0, 0, 0])"
        in told
    )


def test_a_whole_vector_of_a_real_robot_is_a_mistake_without_a_simulator(tmp_path: Path) -> None:
    names = '[[agent]]\n[agent.names]\np = "value:/Sim/ASeries/Middle/Head/Position"\n[agent.episode]\n'
    file = written(tmp_path, f'{names}terminated = "p < 0.3"\n')
    assert (
        "Head/Position' is a vector, and episode.terminated takes one number"
        in check(file, exit_code=78).stdout
    )
    file = written(tmp_path, names.replace('Position"', 'Position#1"') + 'terminated = "p < 0.3"\n')
    assert "no mistakes" in check(file).stdout


EVENTFUL = '[[agent]]\nmatch = { name = "robot1" }\n[agent.episode]\nterminated_on = ["/Arena/Bump", "/Arena/Bumps"]\n'


@pytest.mark.loopback
def test_with_a_simulator_events_are_tried_where_that_is_harmless_and_else_the_result_says_that_they_were_not(
    serve: Callable[[World], Served], profile: str, tmp_path: Path
) -> None:
    served = serve(ArenaWorld(1))
    file = written(tmp_path, EVENTFUL)
    if profile == "nerd":
        told = served.run("check", file).stdout
        assert told.startswith(f"{file}: events were not tried (/Arena/Bump, /Arena/Bumps): ")
        assert told.endswith(f"; {served.address} has robot1\n")
        assert "no mistakes" not in told
        assert len(served.json("check", file)["unchecked"]) == 1
        # Beside mistakes too.
        Path(file).write_text(Path(file).read_text() + '[values]\n"/X" = 1\n')
        result = served.run("check", file, exit_code=78)
        assert "no value '/X'" in result.stdout
        assert "events were not tried" in result.stderr
    else:
        (told, *more) = served.run("check", file, exit_code=78).stdout.splitlines()
        assert told.startswith(
            f"{file}:5: agent[0].episode.terminated_on: the simulator has no event '/Arena/Bumps'"
        )
        assert not more
        good = written(tmp_path, EVENTFUL.replace(', "/Arena/Bumps"', ""))
        trace = tmp_path / "t.jsonl"
        told = served.run("check", good, "--trace", str(trace)).stdout
        assert told == f"{good}: no mistakes; {served.address} has robot1\n"
        sent = [record.note.partition(" ")[0] for record in read_trace(trace)]
        tried = [code for code in sent if code in {"REGISTER_FOR_EVENT", "DEREGISTER_FROM_EVENT"}]
        assert tried == ["REGISTER_FOR_EVENT", "DEREGISTER_FROM_EVENT"]
    served.assert_all_free()


@pytest.mark.parametrize("option", ["--trace", "--timeout", "--profile"])
def test_what_is_said_of_a_simulator_needs_one(option: str, tmp_path: Path) -> None:
    value = {"--trace": str(tmp_path / "trace"), "--timeout": "3", "--profile": "nerd"}[option]
    result = check("cartpole", option, value, exit_code=2)
    assert f"{option} was given, but no simulator" in result.stderr
    assert not (tmp_path / "trace").exists()
