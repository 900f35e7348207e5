"""Completion: what each shell's script is offered when tab is pressed, and the scripts themselves."""

from __future__ import annotations

import re
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


def values(shell: str, *words: str) -> list[str]:
    return [value for kind, value in offered(shell, *words) if kind == "plain"]


@pytest.mark.parametrize("shell", SHELLS)
class TestEveryShell:
    def test_the_script_is_printed_by_the_command_as_by_the_variable(self, shell: str) -> None:
        told = CliRunner().invoke(main, ["completion", shell])
        assert told.exit_code == 0
        assert "_OSPBRIDGE_COMPLETE" in told.stdout
        variables = {"_OSPBRIDGE_COMPLETE": f"{shell}_source"}
        by_variable = CliRunner().invoke(main, [], prog_name="ospbridge", env=variables)
        assert by_variable.stdout.strip() == told.stdout.strip()

    def test_commands_are_completed(self, shell: str) -> None:
        assert values(shell, "") == list(COMMANDS)
        assert values(shell, "con") == ["conformance", "connect", "config"]
        assert values(shell, "values", "") == ["get", "list", "set", "watch"]

    def test_options_are_completed(self, shell: str) -> None:
        assert values(shell, "connect", "--rllink-spool") == [
            "--rllink-spool",
            "--rllink-spool-limit",
            "--rllink-spool-full",
        ]

    def test_choices_are_completed(self, shell: str) -> None:
        assert values(shell, "connect", "--reset-policy", "") == ["all", "any"]
        assert values(shell, "agents", "--profile", "n") == ["nerd"]
        assert values(shell, "completion", "") == list(SHELLS)

    @pytest.mark.parametrize("words", [["sim"], ["check"], ["connect", "--scenario"]], ids=" ".join)
    def test_scenarios_are_completed_by_name_and_by_file(self, shell: str, words: list[str]) -> None:
        assert values(shell, *words, "") == shipped()
        assert offered(shell, *words, "cart") == [("file", "cart"), ("plain", "cartpole")]
        assert offered(shell, *words, "mine/c") == [("file", "mine/c")]

    def test_files_are_left_to_the_shell(self, shell: str) -> None:
        assert [kind for kind, _ in offered(shell, "trace", "show", "x")] == ["file"]


def test_a_name_of_a_command_is_offered_without_importing_any() -> None:
    code = (
        "import os, sys\n"
        "os.environ |= {'_OSPBRIDGE_COMPLETE': 'zsh_complete', 'COMP_WORDS': 'ospbridge c', 'COMP_CWORD': '1'}\n"
        "from ospbridge.cli import main\n"
        "try: main(prog_name='ospbridge')\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'trio', 'gymnasium', 'rich', 'structlog', 'ospbridge.cli.connect'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, timeout=30)


def test_the_page_names_every_shell() -> None:
    assert set(re.findall(r"ospbridge completion (\w+)", PAGE)) == set(SHELLS)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_itself_takes_the_script(tmp_path: Path, shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / "script"
    script.write_text(CliRunner().invoke(main, ["completion", shell]).stdout)
    done = subprocess.run(
        [program, "-n", str(script)], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(CliRunner().invoke(main, ["completion", "bash"]).stdout)
    program = tmp_path / "ospbridge"
    code = "from ospbridge.cli import main; main(prog_name='ospbridge')"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(code)} "$@"\n')
    program.chmod(0o755)
    commands = (
        f"PATH={shlex.quote(str(tmp_path))}:$PATH; . {shlex.quote(str(script))}; complete -p ospbridge; "
        'tab() { COMP_WORDS=(ospbridge "$@"); COMP_CWORD=$#; COMPREPLY=(); _ospbridge_completion ospbridge; '
        'echo "${COMPREPLY[@]}"; }; tab connect --reset-policy ""; tab sim cart'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", commands], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout.splitlines()[1:] == ["all any", "cartpole"], done.stderr
