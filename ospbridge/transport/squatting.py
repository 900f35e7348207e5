"""Whose a directory is that stands where everybody may make one, as under /tmp.

Its owner may replace whatever is put into it, and another user may have been there first.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["squatter"]


def squatter(directory: Path) -> int | None:
    """The other user who made ``directory``, or a link of its name, where everybody may make one; None for nobody."""
    try:
        owner, above = directory.lstat().st_uid, directory.parent.stat().st_mode
    except OSError:
        return None
    return owner if above & stat.S_IWOTH and owner not in {0, os.geteuid()} else None
