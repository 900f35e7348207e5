"""Closing may come from any thread, at any moment: whoever steps gets SessionClosed, and the agents are free."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from types import FrameType

import pytest

from ospbridge.errors import SessionClosed
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.one_thread import OneThread
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.session.closing import KINDS, closes


@pytest.mark.loopback
@pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda profile: profile.name)
@pytest.mark.parametrize("kind", KINDS)
def test_whoever_steps_while_another_thread_closes_is_told_so_and_the_agents_are_free(
    kind: str, profile: Profile
) -> None:
    if "parallel" in kind:
        pytest.importorskip("pettingzoo", reason="needs the extra: pip install 'ospbridge[pettingzoo]'")
    closes(kind, profile, range(16))


@pytest.mark.loopback
def test_several_threads_may_close_at_once() -> None:
    with UdpSimulator(SyntheticWorld(1, 1), port=0) as simulator:
        session = BlockingSession.connect(simulator.address, profile=DOCUMENT)
        session.register("agent")
        closing = [threading.Thread(target=session.close) for _ in range(4)]
        for each in closing:
            each.start()
        for each in closing:
            each.join(30)
        assert session.closed
        assert not simulator.machine.controlled


@pytest.mark.loopback
def test_a_handler_of_signals_may_close_within_a_step() -> None:
    with UdpSimulator(SyntheticWorld(1, 1, think=0.3), port=0) as simulator:
        session = BlockingSession.connect(simulator.address, profile=DOCUMENT)
        session.register("agent")
        session.reset(1)

        def close(_: int, __: FrameType | None) -> None:
            session.close()

        before = signal.signal(signal.SIGALRM, close)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(SessionClosed):
                session.step_one([0.0])
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)
        assert not simulator.machine.controlled


def test_whoever_never_leaves_is_not_waited_for_without_end() -> None:
    use = OneThread("a simulator")
    inside = threading.Thread(target=use.enter)
    inside.start()
    inside.join(30)
    assert not use.close(0.01)
    with pytest.raises(SessionClosed, match="a simulator was closed"):
        use.enter()


def test_whoever_comes_after_it_was_refused_is_not_waited_for() -> None:
    use = OneThread("a simulator")
    use.refuse()

    def come() -> None:
        with suppress(SessionClosed):
            use.enter()

    late = threading.Thread(target=come)
    late.start()
    late.join(30)
    assert use.close(0.0)
