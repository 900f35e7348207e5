from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
import trio

from ospbridge.bench.awaiting import run_in_trio, timed_async

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ospbridge.bench.figures import Run


@pytest.fixture
def stoppable() -> Iterator[None]:
    """SIGTERM is heeded as a measuring command heeds it."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, before)


def test_steps_that_are_awaited_are_timed_but_for_those_that_warm_up() -> None:
    taken: list[None] = []

    async def step() -> None:
        taken.append(None)
        await trio.sleep(0.002)

    run = run_in_trio(lambda: timed_async(step, 10, 5))
    assert len(taken) == 15
    assert run.p50 >= 2000


def test_a_stop_from_outside_waits_until_trio_s_own_code_is_done(stoppable: None) -> None:
    done: list[str] = []

    @trio.lowlevel.enable_ki_protection
    def inside_of_trio() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        done.append("in one piece")

    async def task() -> Run:
        inside_of_trio()
        await trio.sleep(30.0)
        raise AssertionError("nobody was stopped")

    with pytest.raises(KeyboardInterrupt):
        run_in_trio(task)
    assert done == ["in one piece"]
    assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
