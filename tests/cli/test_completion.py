"""Completion: what each shell's script is offered when tab is pressed, and the scripts themselves."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ospbridge.cli import COMMANDS, main
from ospbridge.cli.completion import SHELLS
from ospbridge.task.shipped import shipped

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "shell-completion.md").read_text()


def offered(shell: str, *words: str) -> list[tuple[str, str]]:
    """Kind and value of what the shell is told for the last of the words, which is not finished."""
    line = shlex.join(["ospbridge", *words[:-1], *([words[-1]] if words[-1] else [])])
    variables = {"_OSPBRIDGE_COMPLETE": f"{shell}_complete", "COMP_WORDS": line}
    # fish says the word itself, the others its number.
    variables["COMP_CWORD"] = words[-1] if shell == "fish" else str(len(words))
    result = CliRunner().invoke(main, [], prog_name="ospbridge", env=variables)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    if shell == "zsh":
        return list(zip(lines[::3], lines[1::3], strict=True))
    return [(kind, value.partition("\t")[0]) for kind, _, value in (line.partition(",") for line in lines)]


def script(shell: str) -> str:
    told = CliRunner().invoke(main, ["completion", shell])
    assert told.exit_code == 0
    return told.stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_options_and_choices_are_completed(shell: str) -> None:
    for words, wanted in (
        ([""], list(COMMANDS)),
        (["con"], ["conformance", "connect", "config"]),
        (["values", ""], ["get", "list", "set", "watch"]),
        (
            ["connect", "--rllink-spool"],
            ["--rllink-spool", "--rllink-spool-limit", "--rllink-spool-full"],
        ),
        (["connect", "--reset-policy", ""], ["all", "any"]),
        (["agents", "--profile", "n"], ["nerd"]),
    ):
        assert [value for kind, value in offered(shell, *words) if kind == "plain"] == wanted


@pytest.mark.parametrize("shell", SHELLS)
def test_scenarios_are_completed_by_name_and_files_are_left_to_the_shell(shell: str) -> None:
    for words in (["sim"], ["check"], ["connect", "--scenario"]):
        assert [value for kind, value in offered(shell, *words, "") if kind == "plain"] == shipped()
        assert offered(shell, *words, "cart") == [("file", "cart"), ("plain", "cartpole")]
    assert [kind for kind, _ in offered(shell, "trace", "show", "x")] == ["file"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_with_the_script_without_importing_any_command(tmp_path: Path) -> None:
    file = tmp_path / "script"
    file.write_text(script("bash"))
    program = tmp_path / "ospbridge"
    code = (
        "import atexit, sys; from ospbridge.cli import main\n"
        "heavy = {'numpy', 'trio', 'gymnasium', 'rich', 'structlog', 'ospbridge.cli.connect'}\n"
        "atexit.register(lambda: heavy & set(sys.modules) and print('plain,heavy', flush=True))\n"
        "main(prog_name='ospbridge')"
    )
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(code)} "$@"\n')
    program.chmod(0o755)
    commands = (
        f"PATH={shlex.quote(str(tmp_path))}:$PATH; . {shlex.quote(str(file))}; complete -p ospbridge; "
        'tab() { COMP_WORDS=(ospbridge "$@"); COMP_CWORD=$#; COMPREPLY=(); _ospbridge_completion ospbridge; '
        'echo "${COMPREPLY[@]}"; }; tab conn; tab sim cart'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", commands], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.splitlines()[1:] == ["connect", "cartpole"], done.stderr
