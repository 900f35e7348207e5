"""A listener without descriptors says so once, as an event."""

from __future__ import annotations

import errno
import logging
import os
from typing import TYPE_CHECKING, NoReturn

import pytest
import trio
from structlog.testing import capture_logs

from ospbridge.observe.listeners import SAYS, take_over

if TYPE_CHECKING:
    from collections.abc import Iterator


class Exhausted(trio.abc.Listener[trio.SocketStream]):
    """Never accepts anybody."""

    def __init__(self) -> None:
        self.tries = 0

    async def accept(self) -> NoReturn:
        self.tries += 1
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def nobody_comes(_: trio.SocketStream) -> None:
    raise AssertionError


@pytest.fixture(autouse=True)
def theirs() -> Iterator[logging.Logger]:
    logger = logging.getLogger(SAYS)
    handlers, propagate = logger.handlers[:], logger.propagate
    yield logger
    logger.handlers[:], logger.propagate = handlers, propagate


@pytest.mark.trio
async def test_who_is_out_of_descriptors_says_it_once(
    autojump_clock: trio.testing.MockClock, capfd: pytest.CaptureFixture[str]
) -> None:
    take_over()
    take_over()
    listener = Exhausted()
    with capture_logs() as events, trio.move_on_after(1.0):
        await trio.serve_listeners(nobody_comes, [listener])
    assert listener.tries > 5
    assert [(event["event"], event["log_level"], event["reason"]) for event in events] == [
        ("cannot accept connections", "warning", "Too many open files")
    ]
    assert capfd.readouterr().err == ""


def test_what_has_no_error_is_told_by_its_words(theirs: logging.Logger) -> None:
    take_over()
    with capture_logs() as events:
        theirs.error("something else of %s", "theirs")
    assert [event["reason"] for event in events] == ["something else of theirs"]
