"""Reading a map that a peer sent, key by key. Every refusal names the message, the key and what came."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ospbridge.rllink.arrays import is_packed, read_array, read_number
from ospbridge.rllink.untrusted import Misfit, shown
from ospbridge.text import listed

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LARGEST_NUMBER", "Fields"]

LARGEST_NUMBER: Final = 2**63 - 1
KEYS_SHOWN: Final = 12


class Fields:
    """The keys of one map. Where several spellings are named, the first that is there counts; null is not there."""

    __slots__ = ("_map", "_owner")

    def __init__(self, value: Any, owner: str) -> None:
        if not isinstance(value, dict):
            raise Misfit(f"{owner} must be a map, got {shown(value)}")
        self._map = value
        self._owner = owner

    def keys(self) -> tuple[str, ...]:
        return tuple(key for key in self._map if isinstance(key, str))

    def where(self, name: str) -> str:
        return f"{self._owner}: {name}"

    def find(self, *names: str) -> Any:
        """The value under the first of ``names`` that is there, or None."""
        for name in names:
            value = self._map.get(name)
            if value is not None:
                return value
        return None

    def need(self, *names: str) -> Any:
        value = self.find(*names)
        if value is None:
            raise self._missing(names)
        return value

    def _missing(self, names: tuple[str, ...]) -> Misfit:
        keys = listed(self.keys()[:KEYS_SHOWN]) or "none"
        return Misfit(f"{self._owner}: key {' or '.join(names)} is missing, there are: {keys}")

    def text(self, *names: str, default: str | None = None) -> str:
        value = self.find(*names) if default is not None else self.need(*names)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise Misfit(f"{self.where(names[0])} must be text, got {shown(value)}")
        return value

    def flag(self, *names: str) -> bool:
        value = self.optional_flag(*names)
        if value is None:
            raise self._missing(names)
        return value

    def optional_flag(self, *names: str) -> bool | None:
        value = self._number(*names)
        if value is not None and not isinstance(value, bool):
            raise Misfit(f"{self.where(names[0])} must be true or false, got {shown(value)}")
        return value

    def _number(self, *names: str) -> Any:
        value = self.find(*names)
        return read_number(value, self.where(names[0])) if is_packed(value) else value

    def count(self, *names: str) -> int:
        value = self.optional_count(*names)
        if value is None:
            raise self._missing(names)
        return value

    def optional_count(self, *names: str) -> int | None:
        value = self._number(*names)
        if value is not None and (type(value) is not int or not 0 <= value <= LARGEST_NUMBER):
            raise Misfit(f"{self.where(names[0])} must be a count, got {shown(value)}")
        return value

    def entries(self, *names: str) -> list[Any]:
        value = self.need(*names)
        if not isinstance(value, list):
            raise Misfit(f"{self.where(names[0])} must be a list, got {shown(value)}")
        return value

    def array(self, *names: str) -> NDArray[Any]:
        """An array, plain or in the buffer that RLlib's episodes keep it in."""
        return _buffered(self.need(*names), self.where(names[0]))

    def optional_array(self, *names: str) -> NDArray[Any] | None:
        value = self.find(*names)
        return None if value is None else _buffered(value, self.where(names[0]))

    def inner(self, *names: str) -> Fields:
        return Fields(self.need(*names), self.where(names[0]))

    def optional_inner(self, *names: str) -> Fields:
        """The map under a key, an empty one where the key is not there."""
        value = self.find(*names)
        return Fields({} if value is None else value, self.where(names[0]))


def _buffered(value: Any, where: str) -> NDArray[Any]:
    """What a lookback buffer holds of its own: the first ``lookback`` items belong to the piece before."""
    if not (isinstance(value, dict) and "data" in value):
        return read_array(value, where)
    buffer = Fields(value, where)
    lookback = buffer.optional_count("lookback") or 0
    array = read_array(buffer.need("data"), f"{where}.data")
    if array.ndim == 0 or lookback > len(array):
        raise Misfit(f"{where}: lookback must be at most the {array.shape} of its data, got {lookback}")
    return array[lookback:]
