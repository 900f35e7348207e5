"""The infos of many environments as one, in the layout of gymnasium's vector environments.

``VectorEnv._add_info`` adds one environment after the other, and costs more than a simulator's step when there are
many. Where all environments tell the same keys, as they do in nearly every step, columns give the same much sooner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["in_columns"]


def in_columns(infos: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """What ``_add_info`` makes of the infos of all environments; None where they are not all alike."""
    found: dict[str, Any] = {}
    keys = infos[0].keys()
    if any(info.keys() != keys for info in infos):
        return None
    for key in keys:
        column = [info[key] for info in infos]
        kind = type(column[0])
        if kind is str or kind is tuple:
            values: Any = np.fromiter(column, dtype=object, count=len(column))
        elif any(type(value) is not kind for value in column):
            return None
        elif kind is dict:
            values = in_columns(column)
            if values is None:
                return None
        elif kind in (int, float, bool) or issubclass(kind, np.number):
            values = np.array(column, dtype=kind)
        else:
            return None
        found[key] = values
        found["_" + key] = np.ones(len(column), np.bool_)
    return found
