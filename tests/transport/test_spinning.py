"""How often a receive is tried in vain: much where the simulator answers at once, hardly where it thinks."""

from __future__ import annotations

from ospbridge.transport.spinning import AGAIN_AFTER, NEAR_MISS, Spinning


def test_sleeping_in_vain_halves_the_tries_and_a_near_miss_doubles_them() -> None:
    spinning = Spinning(200, cores=1)
    for _ in range(10):
        spinning.in_vain(10 * NEAR_MISS)
    assert spinning.tries == 0
    spinning.in_vain(NEAR_MISS / 2)
    assert spinning.tries == 1
    spinning.paid()
    assert spinning.tries == 3


def test_who_has_given_up_spinning_tries_again_after_a_while() -> None:
    spinning = Spinning(4, cores=1)
    for _ in range(3):
        spinning.in_vain()
    assert spinning.tries == 0
    for _ in range(AGAIN_AFTER):
        assert spinning.tries == 0
        spinning.in_vain()
    assert spinning.tries == 4


def test_whoever_may_not_spin_never_does() -> None:
    for spinning in (Spinning(200, enabled=False), Spinning(200, cores=10_000)):
        for _ in range(2 * AGAIN_AFTER):
            spinning.in_vain(NEAR_MISS / 2)
            spinning.paid()
        assert spinning.tries == 0
