from __future__ import annotations

import pytest

from ospbridge.bench.processes import Program, ProgramFailed

pytestmark = pytest.mark.loopback


def test_a_program_that_ends_early_is_told_with_what_it_said() -> None:
    with Program("ospbridge", "agents", "--simulator", "what:ever", name="the lister") as program:
        with pytest.raises(
            ProgramFailed, match=r"(?s)the lister ended \(exit code 2\).*is not a simulator's address"
        ) as e:
            program.line(20.0)
        assert e.value.hint == "try it: python -m ospbridge agents --simulator what:ever"


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
