from __future__ import annotations

import signal
import subprocess
import sys
import time
import weakref
from typing import TYPE_CHECKING

import pytest

from ospbridge.cli.stopping import deferred, heeded, stoppable, uninterrupted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """SIGINT as a terminal's process has it, whatever started the tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


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


def test_python_alone_loses_a_stop_within_a_callback() -> None:
    lost = []
    before = sys.unraisablehook
    sys.unraisablehook = lambda args: lost.append(args.exc_type)
    try:
        lose(signal.SIGINT)
    finally:
        sys.unraisablehook = before
    assert lost == [KeyboardInterrupt]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_stop_within_a_callback_is_raised_behind_it(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt), heeded(), stoppable():
        lose_and_work(number)


def test_a_stop_within_a_callback_is_raised_where_ctrl_c_is_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with pytest.raises(KeyboardInterrupt), heeded(), stoppable():
        lose_and_work(signal.SIGTERM)


def test_a_stop_within_each_of_several_callbacks_is_raised_in_the_end() -> None:
    with pytest.raises(KeyboardInterrupt), heeded():
        lose_and_work(signal.SIGINT, signal.SIGINT)


def test_a_stop_within_a_callback_is_not_made_up_behind_the_command() -> None:
    with heeded():
        lose(signal.SIGINT)
    time.sleep(0.05)


def test_other_exceptions_that_python_ignores_are_told_as_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: told.append(args.exc_type))
    hook = sys.unraisablehook

    def wrong(_: object) -> None:
        raise ZeroDivisionError

    with heeded():
        thing = Thing()
        kept = weakref.ref(thing, wrong)
        del thing
    assert kept() is None
    assert told == [ZeroDivisionError]
    assert sys.unraisablehook is hook


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


@pytest.mark.parametrize("number", NUMBERS)
def test_the_handlers_are_put_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with heeded(), stoppable(), deferred():
        pass
    with uninterrupted():
        pass
    assert signal.getsignal(number) is before


COMMAND = """
import sys
import click
from ospbridge.cli import LazyGroup, main

@click.command()
def interrupted():
{body}

LazyGroup.get_command = lambda self, ctx, name: interrupted
sys.argv = ["ospbridge", "agents"]
main()
"""

METHODS = """
    exec("import signal; signal.raise_signal(signal.SIGINT)")
"""

FIELDS = """
    import signal

    class Field:
        def __set_name__(self, owner, name):
            signal.raise_signal(signal.SIGINT)

    class Made:
        field = Field()
"""


@pytest.mark.parametrize("body", [METHODS, FIELDS], ids=["its methods", "its fields"])
def test_a_stop_while_a_dataclass_is_made_ends_with_the_exit_code_of_any_stop(
    body: str, tmp_path: Path
) -> None:
    (tmp_path / "interrupted.py").write_text(COMMAND.format(body=body))
    result = subprocess.run(
        [sys.executable, "-m", "interrupted"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (result.returncode, result.stderr) == (130, "\n")
