"""Doing something as soon as a module has been imported, without importing it.

Gymnasium has no plug-in mechanism since 1.0, so ids are registered when it arrives: at once where it is there, else
through a finder that steps aside after its one module.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing's own would have typing imported, by everybody who imports ospbridge
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["when_imported"]


def when_imported(name: str, action: Callable[[], None]) -> None:
    """Call ``action`` once module ``name`` is there: now, or right after its first import."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is not None and not getattr(spec, "_initializing", False):
        action()
        return
    sys.meta_path.insert(0, _Finder(name, action))


# Neither class below says that it is a finder or a loader: importlib.abc costs more than all that a command needs.
class _Finder:
    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self._name = name
        self._action = action

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        import importlib.util

        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        spec.loader = _Loader(spec.loader, self._action)  # type: ignore[assignment]  # it behaves as one
        return spec


class _Loader:
    """The module's own loader, with something to do afterwards."""

    def __init__(self, loader: Loader, action: Callable[[], None]) -> None:
        self._loader = loader
        self._action = action

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._action()

    def __getattr__(self, name: str) -> object:
        # Whoever asks the module for its source or path means the real loader.
        return getattr(self._loader, name)
