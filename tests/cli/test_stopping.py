from __future__ import annotations

import signal
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from ospbridge.cli.stopping import deferred, heeded, stoppable, uninterrupted
from tests.cli.programs import ran

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def as_in_a_terminal() -> Iterator[None]:
    """Signals as a terminal's process has them, whatever started the tests: what nohup starts ignores SIGHUP."""
    usual = dict.fromkeys(NUMBERS, signal.SIG_DFL) | {signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Thing:
    """What a weak reference can be had of."""


def lose(number: signal.Signals) -> None:
    """Ask to stop where Python ignores any exception, as imports do for each module."""
    thing = Thing()
    kept = weakref.ref(thing, lambda _: signal.raise_signal(number))
    del thing
    assert kept() is None


def lose_and_work(*numbers: signal.Signals) -> None:
    for number in numbers:
        lose(number)
    for _ in range(500):
        time.sleep(0.01)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_stop_within_a_callback_is_raised_behind_it(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt), heeded(), stoppable():
        lose_and_work(number)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_stop_is_deferred_until_a_block_is_done(number: signal.Signals) -> None:
    done = []

    def work() -> None:
        with deferred():
            signal.raise_signal(number)
            done.append(number)

    with pytest.raises(KeyboardInterrupt), stoppable():
        work()
    assert done


@pytest.mark.parametrize("number", NUMBERS)
def test_nothing_interrupts_a_goodbye(number: signal.Signals) -> None:
    with stoppable(), uninterrupted():
        signal.raise_signal(number)


def test_ctrl_c_while_the_program_starts_ends_with_the_exit_code_of_any_stop(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    result = ran("agents", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (130, "\n")


@pytest.mark.parametrize(
    "where",
    [
        "click.Group.make_context = interrupt",
        "sys.meta_path.insert(0, types.SimpleNamespace(find_spec=interrupt))",
    ],
    ids=["reading the command line", "loading the command"],
)
def test_ctrl_c_beside_a_command_ends_with_the_exit_code_of_any_stop(where: str) -> None:
    program = f"""
import signal, sys, types
import click
import ospbridge.cli
import ospbridge.__main__

def interrupt(*args, **kwargs):
    if args[0] != "ospbridge.cli.stopping" and isinstance(args[0], str):
        return None
    signal.raise_signal(signal.SIGINT)

{where}
sys.argv = ["ospbridge", "check", "/nowhere.toml"]
ospbridge.__main__.run()
"""
    result = ran(code=program)
    assert (result.returncode, result.stderr.strip()) == (130, "")
