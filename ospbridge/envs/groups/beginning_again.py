"""How episodes of a vector environment begin again: which mode, and which worlds ``options["reset_mask"]`` covers.

Both as gymnasium's SyncVectorEnv says them and OSP allows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import AutoresetMode

from ospbridge.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["groups_in_mask", "mask_in", "mode_named"]


def mode_named(given: str | AutoresetMode) -> AutoresetMode:
    """Gymnasium's constant, its name or its value. Raises UsageError for anything else."""
    for mode in AutoresetMode:
        if given in (mode, mode.name, mode.value):
            return mode
    raise UsageError(
        f"autoreset_mode is one of {', '.join(AutoresetMode.__members__)}, got {given!r}",
        hint="see gymnasium.vector.AutoresetMode",
    )


def mask_in(options: Any) -> Any:
    """The mask in the options of a reset; None without one. Raises UsageError for what are no options."""
    if options is None:
        return None
    if not isinstance(options, Mapping):
        raise UsageError(
            f"options are a dict, got a {type(options).__name__}", hint='the only one is "reset_mask"'
        )
    return options.get("reset_mask")


def groups_in_mask(mask: Any, sizes: Sequence[int]) -> list[int]:
    """Indices of the groups, of so many environments each, that a mask covers. Raises UsageError for any other."""
    count = sum(sizes)
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (count,):
        given = f"{mask.dtype}{list(mask.shape)}" if isinstance(mask, np.ndarray) else type(mask).__name__
        raise UsageError(
            f'options["reset_mask"] must be a numpy array bool[{count}], got {given}',
            hint="terminations | truncations is one",
        )
    if not mask.any():
        raise UsageError(
            'options["reset_mask"] covers no environment', hint="leave the option out to reset all"
        )
    chosen = []
    first = 0
    for at, size in enumerate(sizes):
        part = mask[first : first + size]
        if part.any() and not part.all():
            left_out = ", ".join(str(first + i) for i in np.flatnonzero(~part))
            raise UsageError(
                f'options["reset_mask"] covers only a part of environments {first} to {first + size - 1}, which are '
                f"agents of one simulator and reset together: {left_out} left out",
                hint="cover a simulator's environments wholly or not at all",
            )
        if part.any():
            chosen.append(at)
        first += size
    return chosen
