"""A connection that another process reads on has an end, whatever its peer does."""

from __future__ import annotations

import socket
import time

import pytest

from ospbridge.transport.lingering import QUIET, linger

OFTEN = 0.05
ENOUGH = 15.0


def talk(to: socket.socket) -> None:
    for _ in range(round(ENOUGH / OFTEN)):
        to.send(b"and")
        time.sleep(OFTEN)


@pytest.mark.loopback
def test_a_peer_that_never_stops_talking_is_left_when_the_time_is_over() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            linger(ours.fileno(), 0.5)
        assert OFTEN < QUIET
        with pytest.raises(OSError, match=r"Broken pipe|reset"):  # nobody reads any more
            talk(theirs)
