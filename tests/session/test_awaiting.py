"""Who waits says so once it takes a while, and then ever more rarely."""

from __future__ import annotations

import pytest

from ospbridge.errors import SimulatorNotFound
from ospbridge.session import awaiting
from ospbridge.session.awaiting import Awaiting

ABSENT = SimulatorNotFound("nothing listens", hint="start it")


def test_a_wait_is_said_once_it_takes_a_while_and_then_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, said = 100.0, []
    monkeypatch.setattr(awaiting, "monotonic", lambda: now)
    wait = Awaiting(500.0, lambda text: said.append((now - 100.0, text)))
    while now < 600.0:
        wait.mention(ABSENT)
        now += 1.0
    assert [after for after, _ in said] == [3.0, 63.0, 183.0, 423.0]
    assert said[0][1] == "still waiting, for 497 s at most: nothing listens (start it)"
    assert wait.waited == 500.0


def test_who_has_nobody_to_tell_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaiting, "SAID_AFTER", 0.0)
    Awaiting(1.0, None).mention(ABSENT)


def test_an_error_behind_a_wait_tells_how_long_it_was() -> None:
    assert str(SimulatorNotFound("nothing listens", hint="start it").after(2.04)) == (
        "nothing listens, still so after 2.0 s (start it)"
    )
    assert SimulatorNotFound("nothing listens").after(0.9).message == "nothing listens"
