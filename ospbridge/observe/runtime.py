"""Where a running ospbridge keeps its sockets and leases."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ospbridge.observe.base_directories import base_directory

__all__ = ["default_hub", "found_hub", "hubs", "runtime_directory"]

SERVICE = Path("/run/ospbridge")
"""Where the system's service keeps its own."""


def runtime_directory() -> Path:
    """``$RUNTIME_DIRECTORY`` (systemd), else ``$XDG_RUNTIME_DIR/ospbridge``, else one of this user's under /tmp."""
    given = os.environ.get("RUNTIME_DIRECTORY")
    if given:
        return Path(given.split(":")[0])
    session = base_directory(os.environ.get("XDG_RUNTIME_DIR"))
    if session is not None:
        return session / "ospbridge"
    return Path(tempfile.gettempdir()) / f"ospbridge-{os.getuid()}"


def default_hub(name: str = "") -> Path:
    """Where a daemon listens unless told otherwise; ``name`` is the simulator's, where it has several."""
    return default_hub_in(runtime_directory(), name)


def found_hub() -> Path:
    """Where an environment looks: ``default_hub``, or that of the system's service where only that one is there."""
    own, service = default_hub(), default_hub_in(SERVICE)
    return service if _may_be_there(service) and not _may_be_there(own) else own


def _may_be_there(path: Path) -> bool:
    """Also where this user may not look: whoever connects is told so then, and not that no daemon listens."""
    try:
        path.stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def default_hub_in(directory: Path, name: str = "") -> Path:
    """The same of a daemon that runs there."""
    return directory / (f"hub-{name}.sock" if name else "hub.sock")


def hubs() -> list[Path]:
    """Where daemons of this user's listen for several simulators, or did; none where nobody may look."""
    try:
        return sorted(runtime_directory().glob("hub-*.sock"))
    except OSError:
        return []
