"""Where a running ospbridge keeps its sockets and leases."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ospbridge.errors import ConfigurationError

__all__ = [
    "base_directory",
    "default_hub",
    "found_hub",
    "home",
    "hubs",
    "runtime_directory",
    "state_directory",
]


def base_directory(named: str | None) -> Path | None:
    """Which one an environment variable names; None where it names none.

    A relative one is ignored, as the specification says: it would be another directory for each program.
    """
    directory = Path(named or "")
    return directory if directory.is_absolute() else None


def home() -> Path:
    """Raises ConfigurationError where nothing tells, as for a container's user without a name."""
    try:
        return Path.home()
    except RuntimeError:
        raise ConfigurationError(
            f"HOME is not set, and the system knows no home of user {os.getuid()}", hint="set HOME"
        ) from None


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


def state_directory() -> Path:
    """``$STATE_DIRECTORY`` (systemd), else ``$XDG_STATE_HOME/ospbridge``, else ``~/.local/state/ospbridge``.

    Raises ConfigurationError where there is none of these.
    """
    given = os.environ.get("STATE_DIRECTORY")
    if given:
        return Path(given.split(":")[0])
    states = base_directory(os.environ.get("XDG_STATE_HOME"))
    return (states or home() / ".local" / "state") / "ospbridge"
