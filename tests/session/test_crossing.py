"""Who is told that threads met in what is for one at a time."""

from __future__ import annotations

from threading import Event, Thread

import pytest

from ospbridge.session.crossing import Crossing, in_use_elsewhere

LIMIT = 20.0
"""Seconds that a thread of these tests waits at most."""


class Used:
    """Something that a thread uses until it is told to stop."""

    def __init__(self) -> None:
        self.crossing = Crossing()
        self.fails = Event()

    def use(self, inside: Event, told: list[bool]) -> None:
        inside.set()
        assert self.fails.wait(LIMIT)
        told += [self.crossing.seen(self, USES), self.crossing.seen(self, USES)]


USES = frozenset({Used.use.__code__})


def user(used: Used, told: list[bool]) -> Thread:
    """A thread that is within ``use``, and fails twice there, one thing after the other, once it may."""
    inside = Event()
    thread = Thread(target=used.use, args=(inside, told))
    thread.start()
    assert inside.wait(LIMIT)
    return thread


@pytest.mark.parametrize("count", [1, 2, 5])
def test_each_of_the_threads_that_met_is_told_once_and_then_what_went_wrong_as_it_is(count: int) -> None:
    used = Used()
    told: list[list[bool]] = [[] for _ in range(count)]
    threads = [user(used, each) for each in told]
    # This thread fails while they are within, and has left when they do.
    assert in_use_elsewhere(used, USES)
    assert used.crossing.seen(used, USES)
    used.fails.set()
    for thread in threads:
        thread.join(LIMIT)
    assert all(each[0] for each in told)
    assert not used.crossing.seen(used, USES)


def test_whoever_is_alone_is_told_nothing() -> None:
    used = Used()
    told: list[bool] = []
    thread = user(used, told)
    used.fails.set()
    thread.join(LIMIT)
    assert told == [False, False]
    assert not in_use_elsewhere(used, USES)


def test_of_threads_that_met_before_something_began_anew_nobody_is_told() -> None:
    used = Used()
    told: list[bool] = []
    thread = user(used, told)
    assert used.crossing.seen(used, USES)
    used.crossing.forget()
    used.fails.set()
    thread.join(LIMIT)
    assert told == [False, False]


def test_who_uses_something_else_of_the_same_kind_has_not_met() -> None:
    one, other = Used(), Used()
    thread = user(one, [])
    assert not in_use_elsewhere(other, USES)
    assert not other.crossing.seen(other, USES)
    one.fails.set()
    thread.join(LIMIT)
