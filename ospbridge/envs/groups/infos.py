"""The infos of many environments as one, in the layout of gymnasium's vector environments.

``VectorEnv._add_info`` adds one environment after the other, and costs more than a simulator's step when there are
many. Where all environments tell the same keys, as they do in nearly every step, columns give the same much sooner.
"""

from __future__ import annotations

from itertools import repeat
from operator import is_
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ospbridge.envs.groups.rows import FeedbackRows

__all__ = ["InfoColumns", "in_columns"]


class InfoColumns:
    """What ``in_columns`` makes of steps that bring rows, of which only the infos' numbers differ."""

    def __init__(self) -> None:
        self._seeds: list[int] = []
        """Of the worlds of the latest rows, whose agents stay the same."""
        self._keys: dict[str, Any] = {}
        """In the order of the first."""
        self._others: list[tuple[str, Any]] = []
        """What all of them have but flags: arrays to be copied, and what is empty."""
        self._flags: tuple[list[str], NDArray[np.bool_]] = [], np.ones((0, 0), np.bool_)
        """Columns of flags, whose names are behind one another: copied in one piece."""

    def of(self, worlds: Sequence[FeedbackRows]) -> dict[str, Any]:
        """Arrays of the caller's own, of the agents of all these, which have infos of the same names."""
        seeds = [rows.seed for rows in worlds]
        if seeds != self._seeds:
            self._learn(seeds, worlds)
        names, flags = self._flags
        flags = flags.copy()
        found = self._keys.copy()
        found.update(zip(names, flags, strict=False))
        for key, column in self._others:
            found[key] = column.copy()
        info_names = worlds[0].info_names
        if info_names:
            infos = found["infos"] = {}
            told = flags[len(names) :]
            every = [rows.infos for rows in worlds]
            numbers = (every[0] if len(every) == 1 else np.concatenate(every)).T.astype(float, order="C")
            for name, column, everybody in zip(info_names, numbers, told, strict=True):
                infos[name] = column
                infos["_" + name] = everybody
        return found

    def _learn(self, seeds: list[int], worlds: Sequence[FeedbackRows]) -> None:
        each = [feedback.info for rows in worlds for feedback in rows.values()]
        columns = in_columns(each) or {}
        self._seeds = seeds
        self._keys = dict.fromkeys(columns)
        names = [key for key, column in columns.items() if getattr(column, "dtype", None) == np.bool_]
        self._others = [(key, column) for key, column in columns.items() if key not in names]
        everybody = np.ones((len(worlds[0].info_names), len(each)), np.bool_)
        self._flags = names, np.vstack([*(columns[key] for key in names), everybody])


def in_columns(infos: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """What ``_add_info`` makes of the infos of all environments; None where they are not all alike."""
    found: dict[str, Any] = {}
    count = len(infos)
    if len(set(map(len, infos))) > 1:
        return None
    everybody = np.ones((len(infos[0]), count), np.bool_)
    for at, key in enumerate(infos[0]):
        try:
            column = [info[key] for info in infos]
        except KeyError:
            return None
        values = _values(column, count)
        if values is None:
            return None
        found[key] = values
        found["_" + key] = everybody[at]
    return found


def _values(column: list[Any], count: int) -> Any:
    """One key's, of all environments; None where they are not alike."""
    first = column[0]
    kind = type(first)
    # Nearly always all tell the same.
    if kind is str or kind is tuple:
        if column.count(first) < count:
            return np.fromiter(column, dtype=object, count=count)
        return _filled(count, object, first)
    if kind is dict and not any(column):
        return {} if set(map(type, column)) == {dict} else None
    same = all(map(is_, column, repeat(first)))
    if not same and len(set(map(type, column))) > 1:
        return None
    if kind is dict:
        return in_columns(column)
    if kind in (int, float, bool) or issubclass(kind, np.number):
        return _filled(count, kind, first) if same else np.array(column, dtype=kind)
    return None


def _filled(count: int, kind: type, value: Any) -> NDArray[Any]:
    """``numpy.full``, which takes longer."""
    values: NDArray[Any] = np.empty(count, kind)
    values.fill(value)
    return values
