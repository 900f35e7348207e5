"""The arrays of msgpack_numpy, read and written without it."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import numpy as np
import pytest

from ospbridge.rllink.arrays import DTYPES, packed, read_array, read_number
from ospbridge.rllink.untrusted import Misfit


def told(**changes: Any) -> dict[bytes, Any]:
    made: dict[str, Any] = {"nd": True, "type": "<f4", "kind": b"", "shape": [2], "data": bytes(8)}
    return {key.encode(): value for key, value in (made | changes).items() if value is not ...}


def over_the_wire(value: Any) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value))


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(0,), (3,), (2, 3), (0, 4), (2, 1, 2), (1,) * 8])
def test_an_array_comes_back_from_the_wire(name: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(DTYPES[name])
    again = read_array(over_the_wire(packed(array)), "a")
    assert again.dtype == array.dtype
    assert again.shape == array.shape
    assert np.array_equal(again, array)


def test_a_list_of_arrays_is_stacked() -> None:
    rows = [packed(np.full(2, number, np.float32)) for number in range(3)]
    assert read_array(over_the_wire(rows), "a").tolist() == [[0, 0], [1, 1], [2, 2]]


@pytest.mark.parametrize(
    "value, named",
    [
        (told(kind=b"O", data=b"cos\nsystem\n"), "only kind '' is read"),
        (told(kind=b"V", type=[["a", "<f4"]]), "only kind '' is read"),
        (told(type="|O"), "must be one of <f2"),
        (told(type=">f4"), "must be one of <f2"),
        (told(type=["<f4"]), "must be one of <f2"),
        (told(type=...), "must be one of <f2"),
        (told(shape=[3]), "must have 12 bytes of data, got 8 bytes"),
        (told(shape=[2**31 - 1] * 8), "bytes of data, got 8 bytes"),
        (told(shape=[1] * 9), "a list of at most 8"),
        (told(shape=[-2]), "must be counts"),
        (told(shape=[True, 2]), "must be counts"),
        (told(shape=[2**31]), "must be counts"),
        (told(shape=2), "must be a list"),
        (told(data="12345678"), "got str"),
        (told(nd=1), "nd int 1"),
        (told(nd=False), "must have 4 bytes"),
        ([told(), told(shape=[1, 2])], r"a\[1\] must be like a\[0\]"),
        ([told(), told(type="<i4")], r"a\[1\] must be like a\[0\]"),
        ([told(), 3.0], r"a\[1\] must be an array"),
        ({"nd": True}, "must be an array"),
        ([{}], "must hold numbers only, got dict"),
        (["x" * 1000, "y"], "must hold numbers only, got str"),
        (None, "must be an array, got NoneType"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_anything_else_is_refused_by_name(value: Any, named: str) -> None:
    with pytest.raises(Misfit, match=named):
        read_array(value, "a")


def test_dimensions_that_numpy_cannot_count_are_refused_even_where_nothing_is_in_them() -> None:
    with pytest.raises(Misfit, match="no array can have"):
        read_array(told(shape=[0] + [2**31 - 1] * 7, data=b""), "a")


def test_texts_of_different_lengths_take_no_room() -> None:
    value = ["x" * 100_000, *("y" for _ in range(10_000))]
    tracemalloc.start()
    try:
        with pytest.raises(Misfit):
            read_array(value, "a")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


def test_a_number_may_be_plain_or_packed() -> None:
    assert read_number(5, "n") == 5
    assert read_number({b"nd": False, b"type": "<f8", b"data": np.float64(0.5).tobytes()}, "n") == 0.5
    with pytest.raises(Misfit, match="n must be one number"):
        read_number(told(), "n")
