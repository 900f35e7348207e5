"""Arrays on the wire: the maps that msgpack_numpy makes, and plain lists of numbers. Our own reader and writer.

msgpack_numpy unpickles an array of kind "O"; here that is refused like every other type that is not in ``DTYPES``.
Layout observed on Ray 2.60.0: ``{b"nd": true, b"type": "<f4", b"kind": b"", b"shape": [..], b"data": bytes}`` for an
array, ``{b"nd": false, b"type": .., b"data": ..}`` for a single number.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import numpy as np

from ospbridge.rllink.untrusted import Misfit, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["DTYPES", "is_packed", "packed", "read_array", "read_number"]

DTYPES: Final = {
    name: np.dtype(name)
    for name in (
        *("<f2", "<f4", "<f8"),
        *("|i1", "<i2", "<i4", "<i8"),
        *("|u1", "<u2", "<u4", "<u8"),
        "|b1",
    )
}
MOST_DIMENSIONS: Final = 8
LARGEST_DIMENSION: Final = 2**31 - 1


def packed(array: NDArray[Any]) -> dict[bytes, Any]:
    """The map for a C-contiguous array, to be encoded as msgpack: byte for byte what msgpack_numpy makes of it."""
    return {b"nd": True, b"type": array.dtype.str, b"kind": b"", b"shape": array.shape, b"data": array.data}


def is_packed(value: Any) -> TypeGuard[dict[bytes, Any]]:
    """Whether a decoded value is one of the maps that stand for an array or a single number."""
    return isinstance(value, dict) and b"nd" in value


def read_array(value: Any, where: str) -> NDArray[Any]:
    """An array out of a map, a list of such maps, or a list of numbers, nested or not. Raises Misfit for the rest."""
    if is_packed(value):
        return _unpacked(value, where)
    if not isinstance(value, list):
        raise Misfit(f"{where} must be an array, got {shown(value)}")
    if value and is_packed(value[0]):
        return _stacked(value, where)
    return _listed(value, where)


def read_number(value: Any, where: str) -> Any:
    """A plain value, or the one in the map that msgpack_numpy makes of a numpy scalar."""
    if not is_packed(value):
        return value
    array = _unpacked(value, where)
    if array.ndim:
        raise Misfit(f"{where} must be one number, got an array of shape {array.shape}")
    return array.item()


def _listed(values: list[Any], where: str) -> NDArray[Any]:
    """One or two dimensions. Types are looked at first: numpy gives each of many texts the room of the longest."""
    rows = values if values and isinstance(values[0], list) else [values]
    types: set[type] = set()
    for row, numbers in enumerate(rows):
        if not isinstance(numbers, list):
            raise Misfit(f"{where}[{row}] must be a list like {where}[0], got {shown(numbers)}")
        types.update(map(type, numbers))
    if not types <= {int, float}:
        raise Misfit(
            f"{where} must hold numbers only, got {', '.join(sorted(each.__name__ for each in types))}"
        )
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError) as error:
        raise Misfit(f"{where} must be an array of numbers: {error}") from None
    if array.dtype.kind not in "fiu" or (array.dtype.kind == "f" and float not in types and types):
        raise Misfit(f"{where} must hold numbers of 64 bits at most, got {shown(values)}")
    return array


def _stacked(values: list[Any], where: str) -> NDArray[Any]:
    arrays = [_unpacked(value, f"{where}[{row}]") for row, value in enumerate(values)]
    first = arrays[0]
    for row, array in enumerate(arrays):
        if array.shape != first.shape or array.dtype != first.dtype:
            raise Misfit(
                f"{where}[{row}] must be like {where}[0], {first.dtype}{list(first.shape)}, "
                f"got {array.dtype}{list(array.shape)}"
            )
    return _made(lambda: np.stack(arrays), where)


def _unpacked(value: Any, where: str) -> NDArray[Any]:
    """An array over the bytes as they came, not writeable."""
    if not is_packed(value):
        raise Misfit(f"{where} must be an array, got {shown(value)}")
    is_array = value[b"nd"]
    kind = value.get(b"kind", b"")
    if not isinstance(is_array, bool) or kind not in (b"", ""):
        raise Misfit(
            f"{where} is no plain array: nd {shown(is_array)}, kind {shown(kind)}, and only kind '' is read"
        )
    name = value.get(b"type")
    if not isinstance(name, str) or name not in DTYPES:
        raise Misfit(f"{where} must be one of {', '.join(DTYPES)}, got {shown(name)}")
    shape = _shape(value.get(b"shape"), where) if is_array else ()
    data = value.get(b"data")
    dtype = DTYPES[name]
    size = math.prod(shape) * dtype.itemsize
    if not isinstance(data, bytes) or len(data) != size:
        raise Misfit(f"{where} of {name}{list(shape)} must have {size} bytes of data, got {shown(data)}")
    return _made(lambda: np.ndarray(shape, dtype, data), where)


def _made(make: Callable[[], NDArray[Any]], where: str) -> NDArray[Any]:
    """An array of no elements may still have dimensions that numpy cannot count."""
    try:
        return make()
    except (ValueError, OverflowError) as error:
        raise Misfit(f"{where} has a shape that no array can have: {error}") from None


def _shape(value: Any, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > MOST_DIMENSIONS:
        raise Misfit(f"the shape of {where} must be a list of at most {MOST_DIMENSIONS}, got {shown(value)}")
    for length in value:
        if type(length) is not int or not 0 <= length <= LARGEST_DIMENSION:
            raise Misfit(f"the shape of {where} must be counts, got {shown(value)}")
    return tuple(value)
