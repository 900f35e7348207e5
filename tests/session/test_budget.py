"""How often a session may be rebuilt."""

from __future__ import annotations

from ospbridge.session.budget import Budget


def test_ten_at_once_and_no_more() -> None:
    budget = Budget(0.0)
    assert [budget.spend(1.0) for _ in range(11)] == [True] * 10 + [False]


def test_one_comes_back_a_minute() -> None:
    budget = Budget(0.0)
    for _ in range(10):
        budget.spend(0.0)
    assert not budget.spend(59.0)
    assert budget.spend(60.5)
    assert not budget.spend(61.0)


def test_what_a_simulator_that_was_away_has_cost_is_given_back() -> None:
    budget = Budget(0.0)
    for _ in range(20):
        assert budget.spend(0.0)
        budget.give_back()
    budget.give_back()
    assert [budget.spend(0.0) for _ in range(11)] == [True] * 10 + [False]


def test_a_long_rest_fills_it_no_further_than_to_the_brim() -> None:
    budget = Budget(0.0)
    assert [budget.spend(1e6) for _ in range(11)] == [True] * 10 + [False]
