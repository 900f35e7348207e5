"""Ctrl-C at any line of the package, without a signal: so that each place can be tried, and tried again."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import ospbridge

if TYPE_CHECKING:
    from types import FrameType

TIMES: Final = 3
"""So often a line is counted: how often a loop looks whether something has come says nothing."""
_PACKAGE = str(Path(ospbridge.__file__).parent)


class AtLine:
    """Within it, KeyboardInterrupt is raised before line ``number`` that this thread runs of the package; 0: never.

    Each line is counted ``TIMES`` times at most.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self.lines = 0
        """That were run."""
        self._counted: Counter[tuple[str, int]] = Counter()
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        sys.settrace(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _look(self, frame: FrameType, event: str, _: object) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(_PACKAGE):
            return None
        line = (code.co_filename, frame.f_lineno)
        if event == "line" and self._counted[line] < TIMES:
            self._counted[line] += 1
            self.lines += 1
            if self.lines == self._number:
                if _in_finalizer(frame):
                    # Python would not pass it on.
                    self._number += 1
                    return self._look
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._look


def _in_finalizer(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False
