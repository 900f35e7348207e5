"""Inputs bent at random bring only documented errors out of decoders and machines; see ``python -m tests.fuzz``."""

from __future__ import annotations

import sys
from dataclasses import replace
from time import sleep

import pytest

from tests.fuzz import __main__ as running
from tests.fuzz.__main__ import TARGETS, Found, input_of, main, run_corpus, run_many
from tests.fuzz.mutating import CORPUS, Piece, Target, read_script, written

EACH = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


@EACH
def test_only_documented_errors_come_out_of_the_corpus(target: Target) -> None:
    assert run_corpus(target) > 0


@EACH
def test_only_documented_errors_come_out_of_bent_inputs(target: Target, pytestconfig: pytest.Config) -> None:
    """A tenth of them by `--sample-seed`, all with `--whole`."""
    part = target.inputs // 10
    seed = pytestconfig.getoption("--sample-seed") % 10 * part
    run_many(target, *((0, target.inputs) if pytestconfig.getoption("--whole") else (seed, part)))


def test_there_is_a_corpus_for_each_target_and_no_other() -> None:
    assert {path.name for path in CORPUS.iterdir()} == TARGETS.keys()


def test_a_script_comes_back_from_its_bytes() -> None:
    pieces = [Piece(0, b""), Piece(255, b"abc"), Piece(7, bytes(1000))]
    assert read_script(written(9, pieces)) == (9, pieces)


def failing(data: bytes) -> None:
    raise KeyError("x")


def test_all_targets_run_until_one_does_not_stand_an_input_which_is_told_with_its_number_and_bytes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fuzz", "all", "--inputs", "1"])
    assert main() == 0
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == list(TARGETS)
    first, second, *_ = TARGETS
    broken = replace(TARGETS[second], run=failing)
    monkeypatch.setitem(TARGETS, second, broken)
    with pytest.raises(Found, match=f"{second}, seed 0: KeyError") as caught:
        main()
    assert bytes.fromhex(str(caught.value).rpartition("\n")[2]) == input_of(broken, 0)
    assert capsys.readouterr().out.startswith(f"{first}: 0 + 1 inputs")


def test_an_input_that_hangs_or_takes_much_memory_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "HUNG", 0.05)
    with pytest.raises(Found, match="TimeoutError: hangs"):
        run_many(Target("osp-reply", lambda data: sleep(20)), 0, 1)
    used = iter([10**6, 10**6 + running.MOST_MEMORY + 1])
    monkeypatch.setattr(running, "_memory", lambda: next(used))
    with pytest.raises(Found, match="took 300 MiB"):
        run_many(Target("osp-reply", lambda data: None), 0, 1)
