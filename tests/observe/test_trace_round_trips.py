"""How long requests took: which answer belongs to which request."""

from __future__ import annotations

import pytest

from ospbridge.observe.trace import Direction, TraceRecord
from ospbridge.observe.trace_round_trips import round_trips

ONE, TWO = b"\1\0\0\0", b"\2\0\0\0"


def trace(*lines: tuple[float, str, int, bytes], client: str = "") -> list[TraceRecord]:
    """Time in milliseconds, direction, code, id."""
    return [
        TraceRecord(time / 1000, Direction(direction), bytes((code,)) + data, 4001, client=client)
        for time, direction, code, data in lines
    ]


def took(records: list[TraceRecord]) -> list[tuple[int, float | None]]:
    """Code and milliseconds."""
    return [
        (int(trip.code), None if trip.seconds is None else round(trip.seconds * 1000, 6))
        for trip in round_trips(records)
    ]


def test_a_step_takes_from_its_first_vote_to_its_last_completion() -> None:
    records = trace(
        (0, "c>s", 80, ONE),
        (1, "s>c", 81, ONE),
        (2, "c>s", 80, TWO),
        (3, "s>c", 81, TWO),
        (5, "s>c", 85, ONE),
        (6, "c>s", 86, ONE),
        (9, "s>c", 85, TWO),
        (10, "c>s", 86, TWO),
        (20, "c>s", 80, ONE),
        (24, "s>c", 85, ONE),
    )
    assert took(records) == [(80, 9), (80, 4)]


@pytest.mark.parametrize(
    "lines, told",
    [
        (
            [(0, "c>s", 80, ONE), (1, "s>c", 81, ONE), (300, "c>s", 80, ONE), (301, "s>c", 85, ONE)],
            [(80, None), (80, 1)],
        ),
        (
            [(0, "c>s", 70, b""), (1, "s>c", 71, b""), (2, "c>s", 70, b""), (8, "s>c", 75, b"")],
            [(70, 8)],
        ),
        (
            [(0, "c>s", 50, ONE), (1, "c>s", 50, TWO), (4, "s>c", 51, TWO), (6, "s>c", 51, ONE)],
            [(50, 3), (50, 6)],
        ),
        ([(0, "c>s", 90, b""), (300, "c>s", 90, b""), (301, "s>c", 91, ONE)], [(90, None), (90, 1)]),
        ([(0, "c>s", 5, b"\1"), (1, "c>s", 5, b"\1"), (52, "s>c", 6, b"\1")], [(5, 52)]),
    ],
    ids=["never completed", "a reset, to its completion", "by id", "asked again", "the first form of INIT"],
)
def test_an_answer_belongs_to_its_latest_request(
    lines: list[tuple[float, str, int, bytes]], told: list[tuple[int, float | None]]
) -> None:
    assert took(trace(*lines)) == told


def test_clients_are_told_apart() -> None:
    one = trace((0, "c>s", 50, ONE), (3, "s>c", 51, ONE), client="A")
    other = trace((1, "c>s", 50, ONE), client="B")
    assert took([one[0], *other, one[1]]) == [(50, 3), (50, None)]
