from __future__ import annotations

import sys
from pathlib import Path

import pytest

import ospbridge
from ospbridge.bench.processes import Program, ProgramFailed, lines_of

pytestmark = pytest.mark.loopback


def test_a_program_that_ends_early_is_told_with_what_it_said() -> None:
    with Program("ospbridge", "agents", "--simulator", "what:ever", name="the lister") as program:
        with pytest.raises(
            ProgramFailed, match=r"(?s)the lister ended \(exit code 2\).*is not a simulator's address"
        ) as e:
            program.line(20.0)
        assert (
            e.value.hint == "run it by itself to see more: python -m ospbridge agents --simulator what:ever"
        )


def test_the_error_the_hint_and_the_exit_code_of_a_command_are_passed_on() -> None:
    with (
        Program("ospbridge", "check", "no_such_scenario.toml", name="the checker") as program,
        pytest.raises(ProgramFailed) as e,
    ):
        program.line(20.0)
    assert e.value.message == "the checker ended (exit code 78): there is no file no_such_scenario.toml"
    assert e.value.hint.startswith("shipped are arena_avoid, ")
    assert e.value.exit_code == 78
    assert ProgramFailed.exit_code == 75


def test_a_program_that_says_nothing_is_not_waited_for_longer_than_allowed() -> None:
    with Program("ospbridge.bench.responder") as program:
        program.line(20.0)
        with pytest.raises(ProgramFailed, match=r"wrote nothing within 0.1 s"):
            program.line(0.1)
    assert program.process.returncode is not None


def test_ending_twice_does_no_harm() -> None:
    program = Program("ospbridge.bench.responder")
    program.line(20.0)
    program.end()
    program.end()
    assert program.process.returncode is not None


def test_lines_of_several_programs_come_with_their_names_until_all_ended() -> None:
    # The help of a command is as good a text of many lines as any.
    with Program("ospbridge", "--help", name="a") as first, Program("ospbridge", "sim", "--help") as second:
        lines = list(lines_of({"first": first, "second": second}, seconds=20.0))
    for name in ("first", "second"):
        own = [line for who, line in lines if who == name]
        assert own[0].startswith("Usage: ")
        assert len(own) > 10


def test_a_program_that_fails_ends_the_lines_of_all() -> None:
    with Program("ospbridge", "agents", "--nonsense", name="the failing one") as failing:
        lines = lines_of({"it": failing}, seconds=20.0)
        with pytest.raises(ProgramFailed, match=r"the failing one failed \(exit code 2\).*--nonsense"):
            list(lines)


def test_a_program_beside_that_ends_ends_the_lines_too() -> None:
    with (
        Program("ospbridge.bench.responder") as speaking,
        Program("ospbridge", "--help", name="other") as beside,
    ):
        lines = lines_of({"it": speaking}, beside=[beside], seconds=20.0)
        with pytest.raises(ProgramFailed, match="other ended"):
            list(lines)


def test_silence_of_all_has_an_end() -> None:
    with Program("ospbridge.bench.responder", name="the silent one") as silent:
        silent.line(20.0)
        with pytest.raises(ProgramFailed, match=r"the silent one wrote nothing for 0.3 s"):
            list(lines_of({"it": silent}, seconds=0.3))


def test_a_program_that_nobody_hears_writes_to_its_errors() -> None:
    with Program("ospbridge", "--help", heard=False) as program:
        assert program.succeeded()
        assert "Usage: " in program.errors()


@pytest.mark.parametrize("from_here", [False, True], ids=["from elsewhere", "from here"])
def test_a_program_imports_what_lies_in_the_directory_only_where_we_do(
    from_here: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may have put it there, for instance under /tmp."""
    root = Path(ospbridge.__file__).parents[1]
    (tmp_path / "trio.py").write_text("raise SystemExit('this is not trio')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)] if from_here else sys.path[:])
    with Program(
        "ospbridge", "sink", "--listen", "127.0.0.1:0", environment={"PYTHONPATH": str(root)}
    ) as program:
        if from_here:
            with pytest.raises(ProgramFailed, match="this is not trio"):
                program.line(20.0)
        else:
            assert program.line(20.0).startswith("127.0.0.1:")
