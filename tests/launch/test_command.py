"""What users give as ``launch``: every form that is taken, and one sentence for each that is not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from ospbridge.errors import UsageError
from ospbridge.launch.command import READY, launch_spec

COMMAND = [sys.executable, "-c", "pass", "{port}"]


@pytest.mark.parametrize(
    "given",
    [COMMAND, f"'{sys.executable}' -c pass '{{port}}'", {"command": COMMAND}, tuple(COMMAND)],
    ids=["list", "text as a shell has it", "table", "tuple"],
)
def test_each_form_means_the_same_command(given: object) -> None:
    spec = launch_spec(given)
    assert spec.at(45461) == (sys.executable, "-c", "pass", "45461")
    assert (spec.pin, spec.batch, spec.ready, spec.cwd) == ("auto", True, READY, Path.cwd())


def test_true_is_the_world_of_the_scenario() -> None:
    spec = launch_spec(True, scenario="cartpole")
    assert spec.at(1)[1:] == ("-m", "ospbridge", "sim", "cartpole", "--port", "1", "--quiet")
    assert spec.name == "cartpole"


def test_the_file_of_a_scenario_means_what_it_meant_when_the_environment_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert launch_spec(True, scenario="a.toml").command[4] == str(tmp_path / "a.toml")


def test_a_program_of_the_search_path_is_found_there() -> None:
    assert Path(launch_spec("sh -c : {port}").command[0]).is_absolute()


def test_what_is_relative_means_the_directory_that_cwd_names(tmp_path: Path) -> None:
    program = tmp_path / "sim"
    program.touch(0o755)
    spec = launch_spec(
        {"command": "./sim {port}", "cwd": tmp_path, "log": "a.log", "env": {"A": "b"}, "ready": 3}
    )
    assert spec.command[0] == str(program)
    assert (spec.log, spec.env, spec.ready) == (tmp_path / "a.log", {"A": "b"}, 3.0)


@pytest.mark.parametrize(
    "given, told",
    [
        ("sh -c :", r"launch says nowhere which port the simulator listens at: .*sh -c :"),
        (["sh", "-p", "45454"], "launch says nowhere which port"),
        ("sh 'a {port}", "cannot be split as a shell would: No closing quotation"),
        ("", "launch names no program"),
        ([], "launch names no program"),
        (45454, "launch is a command, as a list or a text, a table or True, got 45454"),
        (["sh", 1], "launch is a command"),
        (True, "launch=True starts the world of a scenario, and none was given"),
        ("no-such-simulator {port}", "there is no program 'no-such-simulator' to launch on PATH"),
        ("./no/such {port}", r"there is no program ./no/such to launch \(looked at /"),
        ("/etc/passwd {port}", "/etc/passwd cannot be launched: it is not an executable file"),
        ("/etc/ {port}", "/etc cannot be launched: it is not an executable file"),
        ({"cwd": "/"}, "launch has no command"),
        ({"command": COMMAND, "cmd": 1}, "launch has the unknown key 'cmd'"),
        ({"command": COMMAND, "cwd": "/no/such"}, "launch's cwd /no/such is no directory"),
        ({"command": COMMAND, "cwd": 1}, "launch's cwd is a directory, got 1"),
        ({"command": COMMAND, "env": {"A": 1}}, "launch's env is a table of texts"),
        ({"command": COMMAND, "log": ""}, "launch's log is a file, got ''"),
        ({"command": COMMAND, "ready": 0}, "launch's ready is a positive number of seconds, got 0"),
        ({"command": COMMAND, "ready": True}, "launch's ready is a positive number of seconds, got True"),
    ],
)
def test_what_cannot_be_launched_is_told_in_one_sentence(given: object, told: str) -> None:
    with pytest.raises(UsageError, match=told) as e:
        launch_spec(given)
    assert "\n" not in e.value.message


@pytest.mark.parametrize(
    "given", [{"pin": "all"}, {"pin": -1}, {"pin": True}, {"batch": 1}, {"batch": None}], ids=repr
)
def test_what_is_no_scheduling_is_told(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(given))} is .*, got "):
        launch_spec(COMMAND, **given)


@pytest.mark.parametrize("pin, means", [(False, None), (None, None), (3, 3), ("auto", "auto")])
def test_pinning_is_automatic_a_core_or_nothing(pin: object, means: object) -> None:
    assert launch_spec(COMMAND, pin=pin).pin == means
