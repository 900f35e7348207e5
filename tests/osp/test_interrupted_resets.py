"""A reset whose caller did not wait for its end, as after Ctrl-C: its votes count all the same, and it completes.

The next one has votes of its own then, and waits for nothing that has come already.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pytest

from ospbridge.errors import StepUncertain
from ospbridge.osp.client import resetting
from ospbridge.osp.client.notices import WorldReset
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from tests.osp.pair import Pair

if TYPE_CHECKING:
    from collections.abc import Iterable

BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
GIVEN = np.array([0.25], np.float32)
NAMES = ["agent", "other", "third"]


class Interrupted:
    """A session whose reset was interrupted when it had exchanged so many datagrams; ``over``: it was not, in time."""

    def __init__(self, profile: Profile, *, agents: int, steps: int | None, datagrams: int) -> None:
        self.names = NAMES[:agents]
        self.pair = Pair(SyntheticWorld(1, 2, names=self.names), profile)
        self.client = self.pair.client(profile).connect()
        self.talk: Any = self.client.conversation
        self.client.do(self.talk.register(self.names))
        if steps is not None:
            self.client.do(self.talk.reset(3))
            for _ in range(steps):
                self.step()
        until = len(self.pair.sent) + datagrams
        self.client.begin(self.talk.reset(7))
        while len(self.pair.sent) < until and not self.client.finished:
            self.pair.advance(until=self.pair.now + 1.0)
        self.over = self.client.finished
        self.talk.machine.interrupt(KeyboardInterrupt())

    def step(self) -> np.ndarray[Any, Any]:
        outcomes = self.client.do(self.talk.step(dict.fromkeys(self.names, GIVEN)))
        outputs: np.ndarray[Any, Any] = outcomes["agent"].outputs
        return outputs


@pytest.mark.exhaustive
@BOTH
@pytest.mark.parametrize("agents", [1, 3])
@pytest.mark.parametrize("steps", [None, 0, 2])
@pytest.mark.parametrize("later", [0.0, 1e-4, 1.0])
def test_the_next_one_takes_no_longer_wherever_it_was_interrupted(
    profile: Profile, agents: int, steps: int | None, later: float
) -> None:
    for datagrams in count():
        session = Interrupted(profile, agents=agents, steps=steps, datagrams=datagrams)
        if session.over:
            break
        session.pair.settle(later)
        began = session.pair.now
        session.client.do(session.talk.reset(9))
        assert session.pair.now - began < 2.0 * profile.patience
        for number in range(1, 4):
            np.testing.assert_array_equal(session.step(), expected(GIVEN, number, 2, 9))
        assert session.client.do(session.talk.audit()) == ""
    assert datagrams > 5


@BOTH
def test_the_next_one_awaits_no_completion_that_had_just_come(
    profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    pair = Pair(SyntheticWorld(1, 2), profile)
    client = pair.client(profile).connect()
    talk: Any = client.conversation
    client.do(talk.register(["agent"]))
    client.do(talk.reset(3))
    client.do(talk.step({"agent": GIVEN}))
    with monkeypatch.context() as patch:
        patch.setattr(resetting, "_began_anew", interrupted)
        with pytest.raises(KeyboardInterrupt):
            client.do(talk.reset(7))
    talk.machine.interrupt(KeyboardInterrupt())
    began = pair.now
    client.do(talk.reset(9))
    assert pair.now - began < 2.0 * profile.patience
    outputs = client.do(talk.step({"agent": GIVEN}))["agent"].outputs
    np.testing.assert_array_equal(outputs, expected(GIVEN, 1, 2, 9))


@BOTH
def test_behind_it_there_is_no_step_without_another_reset(profile: Profile) -> None:
    session = Interrupted(profile, agents=1, steps=2, datagrams=6 if profile is NERD else 3)
    session.pair.settle()
    with pytest.raises(StepUncertain) as told:
        session.step()
    assert told.value.interrupted


@pytest.mark.exhaustive
@BOTH
@pytest.mark.parametrize("agents", [1, 2])
@pytest.mark.parametrize("what", [(), (0.4,), (0.0, 0.4), (0.0, 1.5)], ids=["lost", "late", "twice", "again"])
def test_whatever_happens_to_one_datagram_episodes_behind_it_are_as_they_should_be_or_in_doubt(
    profile: Profile, agents: int, what: Iterable[float]
) -> None:
    for number in count():
        # As a rule interrupted with its votes under way, or counted.
        session = Interrupted(profile, agents=agents, steps=2, datagrams=4 + number % 6)
        pair, first = session.pair, session.pair.count
        pair.fault = lambda d, at=first + number: what if d.number == at else (0.0,)  # type: ignore[misc]
        with suppress(StepUncertain):
            session.client.do(session.talk.reset(9))
            outputs = [session.step() for _ in range(4)]
            if not session.client.do(session.talk.audit()) and not told_of_a_reset(session):
                for step, brought in enumerate(outputs, 1):
                    np.testing.assert_array_equal(brought, expected(GIVEN, step, 2, 9))
        if pair.count <= first + number:
            break
    assert number > 20


def told_of_a_reset(session: Interrupted) -> bool:
    return any(isinstance(notice, WorldReset) for notice in session.talk.take_notices())
