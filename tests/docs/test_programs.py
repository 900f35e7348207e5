"""Programs and commands of the tutorial and of how-to pages that need a simulator at most: they run as written."""

from __future__ import annotations

import ast
import re
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import gymnasium
import numpy as np
import pytest
from click.testing import CliRunner

from ospbridge.cli import main
from ospbridge.envs.rllib import place_of
from ospbridge.errors import ConfigurationError
from ospbridge.simulator.arena import ArenaWorld
from ospbridge.simulator.gym_world import GymWorld
from ospbridge.simulator.hosting import world_of
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.task.loading import load
from tests.cli.programs import WITHIN, invoke, started
from tests.daemon.running import free_port
from tests.docs.pages import ROOT, blocks, commands, page, programs, run
from tests.envs.vectors import cart_poles
from tests.policy.weights import module_weights


@pytest.fixture
def address() -> Iterator[str]:
    with UdpSimulator(ArenaWorld(1), port=0) as simulator:
        yield str(simulator.address)


# --- the tutorial, and examples of explanations ----------------------------------------------------------------------


@pytest.mark.loopback
def test_the_tutorial_shows_what_a_simulator_and_its_steps_print(capsys: pytest.CaptureFixture[str]) -> None:
    text = page("tutorial/first-policy")
    shown = dict(re.findall(r"<!-- ([\w: .]+) -->\n```\w+\n(.*?)```", text, re.DOTALL))
    with cart_poles(1) as (address,):
        assert invoke("describe", "cart", "--simulator", address).stdout == shown["output: describe"]
        assert invoke("agents", "--simulator", address).stdout == shown["output: agents"]
        run(shown["program: step.py"], _45454=address)
    assert len(re.findall(r"^\[.*\] 1\.0 (?:True|False) False$", capsys.readouterr().out, re.MULTILINE)) == 3
    shipped = tomllib.loads((ROOT / "scenarios" / "cartpole.toml").read_text())
    assert tomllib.loads(shown["scenario: cartpole"])["agent"] == shipped["agent"]
    # Stable-Baselines3 prints nothing unless asked to.
    assert "verbose=1)" in shown["program: first policy"]


@pytest.mark.loopback
def test_the_examples_on_autoreset_and_seeds_run(capsys: pytest.CaptureFixture[str]) -> None:
    (autoreset,) = blocks(page("explanation/autoreset"), "python")
    (seeds,) = blocks(page("explanation/barrier-reset-seeds"), "python")
    with cart_poles(2) as (one, other):
        run(autoreset, _45454=one, _45455=other)
        capsys.readouterr()
    with cart_poles(1) as (one,):
        run(seeds, _45454=one)
    assert capsys.readouterr().out.split() == re.findall(r"print\(.*#\s*(\d+)$", seeds, re.MULTILINE)


@pytest.mark.loopback
@pytest.mark.parametrize("name", ["one", "many"])
def test_environments_launch_their_simulators(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    run(programs(page("how-to/launch"))[name])
    assert list((tmp_path / "ospbridge" / "launch").glob("cartpole-*.log"))


# --- a program of one's own ------------------------------------------------------------------------------------------

PROGRAMS = programs(page("how-to/program"))


@pytest.mark.loopback
def test_the_controller_drives_and_each_step_ran_once(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(PROGRAMS["drive.py"], _45454=address)
    free, inputs, place, audit = capsys.readouterr().out.splitlines()
    assert free == "robot1 is free"
    assert "/Left/Wheel/DesiredVelocity from -1.0 to 1.0" in inputs
    assert re.fullmatch(r"it got to -?\d\.\d\d, -?\d\.\d\d", place)
    assert audit == "each step ran exactly once"


@pytest.mark.loopback
def test_variables_are_read_and_set_and_come_with_the_step(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(PROGRAMS["variables.py"], _45454=address)
    *listed, then, refused = capsys.readouterr().out.splitlines()
    assert "/Sim/Arena/TopSpeed is 0.5 of type Double" in listed
    assert then == "0.25"
    assert refused == f"{address} could not parse 'fast' for /Sim/Arena/TopSpeed"
    run(PROGRAMS["watch.py"], _45454=address)
    assert re.fullmatch(r"it bumped after \d+(\.\d+)? s\n", capsys.readouterr().out)


@pytest.mark.loopback
def test_two_simulators_are_driven_side_by_side(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    with UdpSimulator(ArenaWorld(1), port=0) as other:
        run(PROGRAMS["both.py"], _45454=address, _45455=str(other.address))
        told = [line.partition(" ")[0] for line in capsys.readouterr().out.splitlines()]
        assert sorted(told) == sorted([address, str(other.address)])


class Slow(ArenaWorld):
    """So that it is stopped in the middle of an episode."""

    def __init__(self) -> None:
        super().__init__(1)

    def step(self) -> None:
        time.sleep(0.002)
        super().step()


def read_until(stream: IO[str], text: str) -> list[str]:
    lines: list[str] = []
    for line in stream:
        lines.append(line.strip())
        if text in line:
            break
    return lines


@pytest.mark.loopback
def test_the_persistent_program_waits_for_a_simulator_and_survives_its_restart() -> None:
    port = free_port()
    code = PROGRAMS["persistent.py"].replace("45454", str(port))
    with started(code="import sys; sys.stdout.reconfigure(line_buffering=True)\n" + code) as (process, first):
        watchdog = threading.Timer(WITHIN, process.kill)
        watchdog.start()
        assert process.stdout is not None
        assert "nothing listens at" in first
        with UdpSimulator(Slow(), port=port):
            lines = read_until(process.stdout, "episode 1:")
        lines += read_until(process.stdout, "is gone")
        with UdpSimulator(ArenaWorld(1), port=port):
            lines += process.stdout.read().splitlines()
        assert process.wait(WITHIN) == 0
        watchdog.cancel()
    episodes = [line.partition(":")[0] for line in lines if line.startswith("episode")]
    assert episodes == ["episode 1", "episode 2", "episode 3"]
    assert any("is gone" in line and "connect again" in line for line in lines)


@pytest.mark.skipif(find_spec("mypy") is None, reason="needs the dependency group lint")
@pytest.mark.timeout(300)
def test_a_strict_type_checker_has_nothing_to_say_about_its_programs(tmp_path: Path) -> None:
    for name, program in PROGRAMS.items():
        (tmp_path / name).write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), *PROGRAMS]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# --- a simulator of one's own ----------------------------------------------------------------------------------------

OWN = page("how-to/own-simulator")
SIMULATOR, ENVIRONMENT, VARIABLES, _ = blocks(OWN, "python")


def test_variables_of_a_simulator_of_ones_own_are_read_set_and_refused_as_the_page_says() -> None:
    found: dict[str, Any] = {"Pendulum": type("Pendulum", (), {"__init__": lambda _: None})}
    exec(compile(VARIABLES, "own-simulator.md", "exec"), found)
    wind, stage, gusts, label = found["Windy"]().variables
    for variable, text, taken, then in (
        (wind, "3.5", True, "3.5"),
        (wind, "30", False, "3.5"),
        (stage, "1", False, "0"),
        (gusts, "T", True, "T"),
        (label, "stormy", True, "stormy"),
    ):
        assert variable.set(text) is taken
        assert variable.get() == then


@pytest.mark.loopback
def test_a_simulator_of_ones_own_has_twenty_lines_and_serves_what_the_page_plays() -> None:
    lines = [line for line in SIMULATOR.splitlines() if line and not line.startswith(("import ", "from "))]
    assert len(lines) <= 20
    address = f"127.0.0.1:{(port := free_port())}"
    process = subprocess.Popen(
        [sys.executable, "-c", SIMULATOR.replace("45454", str(port))], stderr=subprocess.PIPE
    )
    try:
        gymnasium.make("ospbridge/Agent-v0", simulator=address, wait=WITHIN).close()
        ((describe, *words),) = [words for words in commands(OWN) if words[0] == "describe"]
        assert "/Motor/Torque" in invoke(describe, *words, "--simulator", address).stdout
        assert -1.0 <= run(ENVIRONMENT, _45454=address)["reward"] < -0.9
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=WITHIN)[1] == b"", "Ctrl-C ends it without a traceback"
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


# --- scenarios -------------------------------------------------------------------------------------------------------

SCENARIOS = page("how-to/scenarios")


def program_with(words: str) -> str:
    return next(text for text in blocks(SCENARIOS, "python") if words in text)


@pytest.mark.loopback
def test_the_example_of_a_scenario_is_checked_and_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = blocks(SCENARIOS, "toml")
    (task,) = re.findall(r'`(task = "my_package.tasks:\w+")`', SCENARIOS)
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "tasks.py").write_text(program_with("class "))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    Path("explore.toml").write_text(example)
    Path("of_class.toml").write_text(example.replace("[[agent]]\n", f"[[agent]]\n{task}\n"))
    for name in ("explore.toml", "of_class.toml"):
        with UdpSimulator(ArenaWorld(1), port=0) as simulator:
            address = str(simulator.address)
            assert invoke("check", name, "--simulator", address).stdout.endswith("has robot1\n")
            env = gymnasium.make("ospbridge/Agent-v0", simulator=address, scenario=name)
            env.reset(seed=1)
            env.action_space.seed(1)
            rewards = [float(env.step(env.action_space.sample())[1]) for _ in range(40)]
            env.close()
        assert any(rewards)
        assert (min(rewards) >= 0.0) is (name == "of_class.toml")


@pytest.mark.loopback
def test_the_curriculum_makes_the_world_harder_from_episode_to_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    (tmp_path / "schooling.py").write_text(program_with("Curriculum"))
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "school.toml"
    file.write_text(
        'name = "school"\n[[agent]]\ntask = "schooling:Curriculum"\n'
        '[agent.names]\nspeed = "value:/Sim/Arena/TopSpeed"\n[agent.episode]\nreward = "speed"\n'
    )
    env = gymnasium.make("ospbridge/Agent-v0", simulator=address, scenario=str(file))
    speeds = []
    for _ in range(21):
        env.reset(seed=1)
        speeds.append(round(float(env.step(env.action_space.sample())[1]), 6))
    env.close()
    assert speeds == [0.2] * 10 + [0.3] * 10 + [0.4]


# --- files: policies, recordings, traces -----------------------------------------------------------------------------


@pytest.mark.loopback
def test_a_program_acts_from_a_policy_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("policy.npz", **module_weights(4, outputs=2))  # type: ignore[arg-type]  # no options are meant
    with UdpSimulator(world_of(load("cartpole")), port=0) as simulator:
        run(programs(page("how-to/policy-files"))["act"], _45454=str(simulator.address))
    word, steps = capsys.readouterr().out.split()
    assert word == "return"
    assert 1.0 <= float(steps) <= 500.0


@pytest.mark.loopback
def test_traces_are_recorded_shown_filtered_and_replayed_as_their_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = blocks(page("how-to/traces"), "python")
    *words_of_all, replay = commands(page("how-to/traces"))
    with UdpSimulator(GymWorld(["CartPole-v1"]), port=0) as simulator:
        address = str(simulator.address)
        for words in words_of_all:
            result = CliRunner().invoke(
                main, [address if word == "127.0.0.1:45454" else word for word in words]
            )
            assert result.exit_code == 0, (words, result.output)
            # An example that shows nothing, or keeps nothing, teaches nothing.
            assert not re.search(r"^(none|0) of ", result.output, re.MULTILINE), words
        run(program, _45454=address)
        first = capsys.readouterr().out
        assert first
    with started(*("0" if word == "45454" else word for word in replay)) as (process, address):
        run(program.replace(', trace="episodes.jsonl"', ""), _45454=address)
        process.terminate()
        _, told = process.communicate()
    assert capsys.readouterr().out == first
    wanted = r"clients: 1, steps: \d\d+, resets: 1, differences from the recording: 0"
    assert re.fullmatch(wanted, told.splitlines()[-1])


# --- a Ray cluster ---------------------------------------------------------------------------------------------------


class Context(dict[str, Any]):
    """RLlib's EnvContext: a dict that knows who asks."""

    vector_index = 0

    def __init__(self, worker: int, workers: int, config: dict[str, Any]) -> None:
        super().__init__(config)
        self.worker_index = worker
        self.num_workers = workers


def test_each_env_runner_of_a_cluster_has_the_bridge_of_its_number_and_one_too_many_is_told() -> None:
    text = page("how-to/ray-cluster")
    (program,) = blocks(text, "python")
    assert "num_env_runners=len(HOSTS)" in program
    tree = ast.parse(program)
    hosts: list[str] = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and "HOSTS" in ast.unparse(node)
    )
    (config,) = [
        node.value for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "env_config"
    ]
    said = eval(compile(ast.Expression(config), "ray-cluster.md", "eval"), {"HOSTS": hosts})
    places = [place_of(Context(number, len(hosts), said)) for number in range(1, len(hosts) + 1)]
    assert [place.bridge for place in places] == [f"tls://{host}:45460" for host in hosts]
    with pytest.raises(ConfigurationError) as told:
        place_of(Context(1, len(hosts) + 1, said))
    (words,) = re.findall(r"`\.\.\. (env runners need .*?) \.\.\.`", text)
    assert words in told.value.message
