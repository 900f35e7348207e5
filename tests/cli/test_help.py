"""What every command promises: help on everything, and errors that name the way out."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import click
import pytest

from docs.generation.commands import walk
from tests.cli.programs import invoke

TALK_TO_A_SIMULATOR = [
    ["agents"],
    ["describe", "robot1"],
    ["values", "list"],
    ["values", "get", "/A"],
    ["values", "set", "/A", "1"],
    ["values", "watch", "/A"],
    ["events", "watch", "/A", "--yes"],
    ["restart-communication", "--yes"],
]


COMMANDS = {path.removeprefix("ospbridge").strip(): command for path, command, _ in walk()}
"""Each with its path, groups too."""


def test_every_command_and_every_option_has_help() -> None:
    for path, command in COMMANDS.items():
        assert command.help, path
        assert "Usage: " in invoke(*path.split(), "--help").stdout
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{path} {parameter.opts[0]}"


def options_of(path: str) -> set[str]:
    return {option for parameter in COMMANDS[path].params for option in parameter.opts}


def test_all_that_talk_to_a_simulator_take_the_same_options() -> None:
    for args in TALK_TO_A_SIMULATOR:
        path = " ".join(args[: 2 if args[0] in {"values", "events"} else 1])
        assert {"--simulator", "--profile", "--trace", "--timeout"} <= options_of(path), path


READ_BY_PROGRAMS = [
    *("agents", "describe", "values list", "values get", "values set", "values watch", "events watch"),
    *("check", "status", "service status", "rllink probe", "trace show", "conformance", "doctor", "tune"),
    *("bench step", "bench agents", "bench fleet", "bench hub", "bench relay", "bench stalls"),
]


def test_what_a_program_may_want_to_read_is_printed_as_json_too() -> None:
    for path in READ_BY_PROGRAMS:
        assert "--json" in options_of(path), path


@pytest.mark.loopback
def test_no_simulator_there_is_exit_code_69_and_two_lines() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    for args in [*([*args, "--simulator"] for args in TALK_TO_A_SIMULATOR), ["conformance"]]:
        result = invoke(*args, address, exit_code=69)
        error, hint = result.stderr.splitlines()
        assert error == f"Error: nothing listens at {address} (connection refused)"
        assert hint.startswith("Hint: start the simulator")


@pytest.mark.parametrize("address", ["127.0.0.1:what", ":45454", "127.0.0.1:70000", "127.0.0.1:0", ""])
def test_an_address_that_is_none_is_a_usage_error(address: str) -> None:
    for args in TALK_TO_A_SIMULATOR:
        result = invoke(*args, "--simulator", address, exit_code=2)
        assert "is not a simulator's address" in result.stderr
        assert "write HOST:PORT" in result.stderr


def test_a_misspelt_option_is_answered_with_the_right_one() -> None:
    assert "--simulator" in invoke("agents", "--simulatr", "127.0.0.1", exit_code=2).stderr


@pytest.mark.parametrize(
    "args, wanted",
    [(["agens"], "agents"), (["values", "gt"], "get"), (["events", "wtch"], "watch")],
)
def test_a_misspelt_command_is_answered_with_the_right_one(args: list[str], wanted: str) -> None:
    result = invoke(*args, exit_code=2)
    assert f"Did you mean '{wanted}'?" in result.stderr


def test_a_variable_is_called_as_its_option_is_written() -> None:
    for path, command, context in walk():
        for option in command.params:
            if isinstance(option, click.Option) and context.parent is not None:
                words = [word.lstrip("-").replace("-", "_").upper() for word in option.opts]
                assert any(str(option.envvar).endswith(f"_{word}") for word in words), (path, option.opts)


def test_a_switch_and_an_option_that_may_be_repeated_come_from_the_variables_of_their_names() -> None:
    shown = invoke("config", "show", env={"OSPBRIDGE_CONNECT_AGENT": "left* right"})
    assert 'agents = ["left*", "right"]' in shown.stdout
    told = invoke("config", "show", "--origin", env={"OSPBRIDGE_CONNECT_AGENT": "left*"})
    assert 'agents = ["left*"]  # OSPBRIDGE_CONNECT_AGENT' in told.stdout


@pytest.mark.parametrize(
    "args, variable, value, said",
    [
        (["agents"], "OSPBRIDGE_AGENTS_TIMEOUT", "abc", "'abc' is not a number in the range 0"),
        (["agents"], "OSPBRIDGE_AGENTS_JSON", "maybe", "'maybe' says neither yes nor no; write 1 or 0"),
        (["connect"], "OSPBRIDGE_CONNECT_QUORUM", "many", "'many' is not a whole number in the range 1"),
        (["config", "show"], "OSPBRIDGE_CONNECT_PROFILE", "nurd", "'nurd' is not one of"),
    ],
)
def test_a_bad_value_says_which_variable_it_is_from_and_what_was_expected(
    args: list[str], variable: str, value: str, said: str
) -> None:
    result = invoke(*args, exit_code=2, env={variable: value})
    assert f", which {variable} says: {said}" in " ".join(result.stderr.split())


def test_the_command_line_comes_before_the_variable() -> None:
    variables = {"OSPBRIDGE_CONNECT_QUORUM": "2"}
    assert "quorum = 2\n" in invoke("config", "show", env=variables).stdout
    shown = invoke("config", "show", "--quorum", "3", env=variables).stdout
    assert "quorum = 3\n" in shown
    result = invoke("agents", "--timeout", "abc", exit_code=2, env={"OSPBRIDGE_AGENTS_TIMEOUT": "1"})
    assert "Invalid value for '--timeout': 'abc' is not a number" in result.stderr


def test_help_imports_neither_numpy_nor_trio_nor_gymnasium() -> None:
    code = (
        "import sys; from ospbridge.cli import main\n"
        "for words in (['--help'], ['agents', '--help'], ['values', 'get', '--help'], ['connect', '--help']):\n"
        "    try: main(words)\n"
        "    except SystemExit: pass\n"
        "heavy = {'numpy', 'trio', 'gymnasium', 'rich', 'structlog'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


# --- the page that is known beforehand --------------------------------------------------------------------------------


def shown(*command: str, columns: str = "80", **variables: str) -> str:
    environment = {**os.environ, "COLUMNS": columns, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_the_list_of_commands_is_shown_without_click() -> None:
    program = "import sys; sys.argv = ['ospbridge', '--help']; from ospbridge.__main__ import run; run()"
    text = shown(sys.executable, "-c", f"{program}; print(sorted(sys.modules))")
    assert text.startswith("Usage: ospbridge [OPTIONS] COMMAND [ARGS]...\n")
    loaded = text.splitlines()[-1]
    for module in ("'click'", "'typing'", "'numpy'", "'ospbridge.cli'"):
        assert module not in loaded
