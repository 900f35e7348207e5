"""Which entry is to blame for what an upstream does not survive."""

from __future__ import annotations

from ospbridge.daemon.relay.suspicion import TRIES, Suspicion, Turn


def fail(suspicion: Suspicion, first: int, last: int, times: int = TRIES) -> list[Turn]:
    return [suspicion.failed(first, last) for _ in range(times)]


def test_a_few_failures_change_nothing() -> None:
    suspicion = Suspicion()
    assert fail(suspicion, 1, 9, TRIES - 1) == [Turn.NONE] * (TRIES - 1)
    assert (suspicion.after, suspicion.alone) == (0, False)
    assert suspicion.arrived(9) == 0
    assert fail(suspicion, 10, 12, TRIES - 1) == [Turn.NONE] * (TRIES - 1)


def test_what_fails_again_and_again_is_sent_one_by_one_until_all_of_it_arrived() -> None:
    suspicion = Suspicion()
    assert fail(suspicion, 1, 3)[-1] is Turn.ONE_BY_ONE
    for number in (1, 2, 3):
        assert suspicion.alone
        assert suspicion.arrived(number) == 0
    assert not suspicion.alone


def test_an_entry_is_to_blame_when_what_is_behind_it_gets_through_twice() -> None:
    suspicion = Suspicion()
    fail(suspicion, 1, 4)
    assert suspicion.arrived(1) == 0
    assert fail(suspicion, 2, 2)[-1] is Turn.LOOK_BEHIND
    assert (suspicion.after, suspicion.alone) == (2, True)
    assert suspicion.arrived(3) == 0
    assert (suspicion.after, suspicion.alone) == (0, True)
    assert fail(suspicion, 2, 2)[-1] is Turn.LOOK_BEHIND
    assert suspicion.arrived(4) == 2
    assert suspicion.after == 0
    suspicion.arrived(5)
    assert not suspicion.alone


def test_an_upstream_that_comes_to_its_senses_while_one_is_suspected_loses_nothing() -> None:
    suspicion = Suspicion()
    fail(suspicion, 1, 2)
    fail(suspicion, 1, 1)
    assert suspicion.arrived(2) == 0
    assert suspicion.arrived(1) == 0
    suspicion.arrived(3)
    fail(suspicion, 4, 4)
    assert suspicion.arrived(5) == 0


def test_where_nothing_gets_through_nobody_is_to_blame() -> None:
    suspicion = Suspicion()
    fail(suspicion, 1, 1)
    assert suspicion.after == 1
    assert fail(suspicion, 2, 2)[-1] is Turn.ALL_FAILS
    assert (suspicion.after, suspicion.alone) == (0, False)
    assert suspicion.arrived(2) == 0


def test_an_only_entry_is_tried_again_and_suspected_again_at_once() -> None:
    suspicion = Suspicion()
    fail(suspicion, 7, 7)
    suspicion.nothing_behind()
    assert (suspicion.after, suspicion.alone) == (0, True)
    assert suspicion.failed(7, 7) is Turn.LOOK_BEHIND
    suspicion.nothing_behind()
    assert suspicion.arrived(7) == 0
    assert not suspicion.alone
