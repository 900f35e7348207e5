"""Expressions: what they may hold, what they compute, and what is said about those that are wrong."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ospbridge.task.expressions import CONSTANTS, FUNCTIONS, Judge, WrongExpression, parse

NAMES = ("x", "y", "theta", "z_2")


def value(source: str, **numbers: float) -> object:
    judge = Judge({"it": source}, NAMES)
    given = [numbers[name] for name in judge.names]
    before = [numbers[f"prev_{name}"] for name in judge.names] if judge.looks_back else []
    (found,) = judge.function(*given, *before, numbers.get("time", 0.0), numbers.get("step", 0.0))
    return found


@pytest.mark.parametrize(
    "source, expected",
    [
        ("1", 1.0),
        ("-x + 2 * y", 4.0),
        ("x ** 2 - y / 4", 3.25),
        ("7 // 2 + 7 % 4", 6.0),
        ("abs(x) > 2.4 or abs(y) > 2.9", True),
        ("0 < x < 1", False),
        ("not (x == 2 and y != 3)", True),
        ("1 if x >= 2 else 0", 1.0),
        ("clip(x, -1, 1) + sign(-y) + sign(0)", 0.0),
        ("min(x, y) + max(x, y, 10)", 12.0),
        ("hypot(3, 4) + atan2(0, 1) + sqrt(4)", 7.0),
        ("cos(pi) + sin(tau / 4)", 0.0),
        ("isfinite(x) and x < inf", True),
        ("  x +\n y ", 5.0),
    ],
)
def test_what_an_expression_computes(source: str, expected: float) -> None:
    assert value(source, x=2.0, y=3.0) == pytest.approx(expected)


def test_every_listed_function_can_be_called() -> None:
    arguments = {"min": "1, 2", "max": "1, 2", "atan2": "1, 2", "clip": "1, 2, 3"}
    for name in FUNCTIONS:
        assert math.isfinite(float(str(float(value(f"{name}({arguments.get(name, '1')})")))))  # type: ignore[arg-type]
    for name in CONSTANTS:
        assert value(name) == CONSTANTS[name]


@pytest.mark.parametrize(
    "source, what, hint",
    [
        ("thetaa", "unknown name 'thetaa'", "did you mean 'theta'?"),
        ("q", "unknown name 'q'", "[agent.names] has theta, x, y, z_2"),
        ("prev.thetaa", "unknown name 'thetaa' behind prev", "did you mean 'theta'?"),
        ("prev", "prev needs a name", "write prev.NAME"),
        ("sqr(x)", "unknown function 'sqr'", "did you mean 'sqrt'?"),
        ("abs", "abs is a function", "write abs(...)"),
        ("abs(x, y)", "abs takes 1 arguments, got 2", ""),
        ("min(x)", "min takes 2 to 64 arguments, got 1", ""),
        ("clip(x, low=1, high=2)", "clip takes plain arguments only", ""),
        ("x.real", "an expression may not hold 'x.real'; only prev.NAME has a dot", "numbers, short names"),
        ("prv.x - x", "an expression may not hold 'prv.x'; only prev.NAME has a dot", "did you mean 'prev'?"),
        ("x[0]", "an expression may not hold an index [...]", "numbers, short names"),
        ("x & y", "an expression may not hold '&'; write 'and'", "numbers, short names"),
        ("x  # how far\n - y", "an expression may not hold '#'", "a comment stands outside"),
        ("(x := 2)", "an expression may not hold an assignment", "numbers, short names"),
        ("f'{x}'", "an expression may not hold a text", "numbers, short names"),
        ("'far'", "'far' is no number", ""),
        ("__import__('os').system('true')", "only the listed functions can be called", "abs, min"),
        ("().__class__", "an expression may not hold '.__class__'", "numbers, short names"),
        ("9" * 400, "a number is too large", ""),
        ("-" * 150 + "x", "it is nested too deeply", "use a class"),
    ],
)
def test_what_is_wrong_is_said_with_a_way_out(source: str, what: str, hint: str) -> None:
    with pytest.raises(WrongExpression) as caught:
        Judge({"reward": source}, NAMES)
    assert caught.value.what.startswith(what)
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize("source", ["", "x +", "x = 1", "import os", "\0"])
def test_what_is_no_expression_is_said(source: str) -> None:
    with pytest.raises(WrongExpression, match="is no expression"):
        parse(source, NAMES)


@given(st.text(alphabet="xy0123456789.+-*/%()<>=! andorifelsprv_[]{}:,'\"\\\n", max_size=60))
def test_any_text_is_an_expression_or_wrong_and_nothing_else(text: str) -> None:
    try:
        Judge({"reward": text}, NAMES)
    except WrongExpression as error:
        assert error.what  # noqa: PT017


def test_powers_of_whole_numbers_do_not_run_for_ever() -> None:
    with pytest.raises(OverflowError):
        value("9 ** 9 ** 9")
    with pytest.raises(OverflowError):
        value("floor(9) ** ceil(9) ** floor(9)")
