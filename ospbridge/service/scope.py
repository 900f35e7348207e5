"""Whose service it is: one of the system, or one of a user; and where the files of either are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ospbridge.observe.runtime import base_directory, home

__all__ = ["GROUP", "SERVICE", "Scope"]

SERVICE: Final = "ospbridge"
GROUP: Final = "ospbridge"
"""Whose members may use the hub of a system service."""


@dataclass(frozen=True, slots=True)
class Scope:
    """``user``: a service of this user's own manager, instead of the system's."""

    user: bool
    root: Path = Path("/")
    """Where the system's files are."""

    @property
    def systemctl(self) -> tuple[str, ...]:
        return ("systemctl", "--user") if self.user else ("systemctl",)

    @property
    def journalctl(self) -> str:
        return "journalctl --user" if self.user else "journalctl"

    @property
    def units(self) -> Path:
        """Where units of an administrator's or a user's own are."""
        return _config_home() / "systemd" / "user" if self.user else self.root / "etc" / "systemd" / "system"

    @property
    def configuration(self) -> Path:
        """The directory of the daemon's own configuration."""
        return _config_home() / "ospbridge" if self.user else self.root / "etc" / "ospbridge"

    @property
    def sysusers(self) -> Path:
        """The file that makes the group."""
        return self.root / "etc" / "sysusers.d" / "ospbridge.conf"

    @property
    def hidden(self) -> tuple[Path, ...]:
        """What the service cannot look into."""
        names = ("home", "root", "run/user", "tmp", "var/tmp")
        return () if self.user else tuple(self.root / name for name in names)


def _config_home() -> Path:
    return base_directory(os.environ.get("XDG_CONFIG_HOME")) or home() / ".config"
