"""Who runs on which core while something is measured: the responder alone on one, and everybody else on the others."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ospbridge.bench.cores import apart, keep_apart, stay_alone
from ospbridge.bench.figures import timed

several = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core only")


@several
def test_what_is_measured_keeps_off_one_core_and_may_use_it_again_afterwards() -> None:
    cores = os.sched_getaffinity(0)
    seen: list[set[int]] = []
    timed(lambda: seen.append(os.sched_getaffinity(0)), 2, 1)
    assert seen == [cores - {max(cores)}] * 3
    assert os.sched_getaffinity(0) == cores


@several
def test_an_error_gives_the_core_back() -> None:
    cores = os.sched_getaffinity(0)
    with pytest.raises(RuntimeError), apart():
        raise RuntimeError
    assert os.sched_getaffinity(0) == cores


@several
def test_many_processes_share_all_cores() -> None:
    cores = os.sched_getaffinity(0)
    seen: list[set[int]] = []
    timed(lambda: seen.append(os.sched_getaffinity(0)), 1, 0, alone=False)
    assert seen == [cores]


@several
def test_a_daemon_keeps_off_the_core_that_a_responder_stays_on() -> None:
    program = (
        "import os, sys; from ospbridge.bench.cores import stay_alone; sys.stdin.readline(); "
        "print(sorted(os.sched_getaffinity(0))); stay_alone(); print(sorted(os.sched_getaffinity(0)))"
    )
    cores = os.sched_getaffinity(0)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        keep_apart(process.pid)
        said, _ = process.communicate("go\n", timeout=60)
    others, last = said.splitlines()
    assert others == str(sorted(cores - {max(cores)}))
    assert last == str([max(cores - {max(cores)})])


def test_on_a_single_core_all_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: asked.append(set(cores)))
    with apart():
        pass
    stay_alone()
    assert asked == [{3}] * 3
