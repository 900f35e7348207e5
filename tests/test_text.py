"""Texts for people: counts in words, and names of peers, escaped and cut."""

from __future__ import annotations

import pytest

from ospbridge.text import LIST, NAME, identifier, listed, pluralize, printable


@pytest.mark.parametrize(
    "told, expected",
    [
        (pluralize(0, "step"), "0 steps"),
        (pluralize(1, "step"), "1 step"),
        (pluralize(2, "step"), "2 steps"),
        (pluralize(1, "batch", "batches"), "1 batch"),
        (pluralize(12345, "batch", "batches", form=","), "12,345 batches"),
    ],
)
def test_one_is_told_in_the_singular(told: str, expected: str) -> None:
    assert told == expected


@pytest.mark.parametrize("text", ["", "robot1", "ümlaut and 字", "A" * NAME])
def test_what_is_short_and_visible_stays_as_it_is(text: str) -> None:
    assert printable(text) == text
    assert identifier(text) == text


@pytest.mark.parametrize(
    "text, shown",
    [
        ("a\x1b]0;b\x07c", r"a\x1b]0;b\x07c"),
        ("\u202ea\u2066b\u200e", r"\u202ea\u2066b\u200e"),
        ("two\nlines\u2028or three", r"two\nlines\u2028or three"),
        ("\uf7ff\udcff", r"\uf7ff\udcff"),
    ],
    ids=["control characters", "directions", "line ends", "bytes that are no UTF-8"],
)
def test_what_is_not_visible_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize("character", ["A", "ü", "字", "\x1b", "\u202e", "\U000e0001", "\udcff"])
@pytest.mark.parametrize("length", [19, 150, 201, 40_000, 1_000_000])
def test_a_long_text_is_cut_in_the_middle(character: str, length: int) -> None:
    text = f"first{character * length}last"
    shown = printable(text)
    assert len(shown.encode()) <= NAME
    assert shown.startswith("first")
    assert shown.endswith("last")
    assert printable(shown) == shown, "it is the same when it is shown as a part of something else"


def test_all_characters_that_are_left_out_are_counted() -> None:
    head, count, tail = printable("A" * 40_000).split(" ... ")
    assert len(head) + int(count.removesuffix(" characters").replace(",", "")) + len(tail) == 40_000


def test_names_are_listed_as_far_as_there_is_room_and_the_rest_is_counted() -> None:
    assert listed([]) == ""
    assert listed(["a", "b\x1b"]) == r"a, b\x1b"
    many = listed(f"agent{number}" for number in range(3000))
    assert many.startswith("agent0, agent1, ")
    told = many.rpartition("... ")[2]
    assert int(told.removesuffix(" more").replace(",", "")) + many.count("agent") == 3000
    assert len(listed(["字" * 40_000] * 3000).encode()) <= LIST


def test_different_names_are_called_differently_where_they_tell_things_apart() -> None:
    names = ["A" * 100 + character + "A" * 100 for character in "BCD"] + ["a\x1b", r"a\x1b"]
    assert len({printable(name) for name in names}) < len(names)
    assert len({identifier(name) for name in names}) == len(names)
    assert all(identifier(name) == identifier(name) for name in names)
