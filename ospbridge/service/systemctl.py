"""Talking to systemd through ``systemctl``, and what it says of a unit."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ospbridge.errors import ServiceManagerError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.service.scope import Scope

__all__ = ["UnitStatus", "check_manager", "check_permission", "run", "unit_status"]

BOOTED: Final = Path("/run/systemd/system")
"""Is there exactly where systemd is the service manager."""
WITHIN: Final = 120.0
"""Seconds that a command may take; starting a unit has a limit of its own below that."""
_PROPERTIES: Final = (
    "LoadState",
    "ActiveState",
    "SubState",
    "UnitFileState",
    "Result",
    "StateChangeTimestamp",
    "MainPID",
    "StatusText",
    "NRestarts",
    "WatchdogUSec",
    "WatchdogTimestamp",
    "ExecMainCode",
    "ExecMainStatus",
    "ExecMainExitTimestamp",
)
_KILLED: Final = ("2", "3")
"""CLD_KILLED and CLD_DUMPED."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitStatus:
    """What systemd knows of a unit; texts are empty and numbers None where it knows nothing."""

    unit: str
    loaded: bool
    state: str
    """Such as ``active``, ``failed`` or ``activating``."""
    detail: str
    """Such as ``running`` or ``auto-restart``."""
    enabled: str
    """Such as ``enabled`` or ``disabled``."""
    since: str
    pid: int | None
    text: str
    """What the daemon says of itself."""
    restarts: int
    """By itself, since it was started."""
    watchdog: str
    """How long the daemon may be silent."""
    heard: str
    """When it was last heard."""
    result: str
    """Why it ended, such as ``exit-code``, ``signal`` or ``watchdog``; ``success`` where it has not, or as told."""
    exit_code: int | None
    """Of the last process that ended by itself."""
    signal: int | None
    """That ended the last process."""
    ended: str


def check_manager(scope: Scope) -> None:
    """Raises ServiceManagerError where systemd is not there, or does not answer."""
    if shutil.which("systemctl") is None or not BOOTED.is_dir():
        raise ServiceManagerError(
            "systemd is not the service manager here",
            hint="let yours run `ospbridge connect`; it ends with SIGTERM and writes its log to standard error",
        )
    if not scope.user:
        return
    try:
        run(scope, "show", "--property=Version")
    except ServiceManagerError as error:
        raise ServiceManagerError(
            f"this user's systemd does not answer: {error.message}",
            hint="log in as this user, or let its services run without that: `loginctl enable-linger`, then "
            f"`export XDG_RUNTIME_DIR=/run/user/{os.getuid()}`",
        ) from None


def check_permission(scope: Scope) -> None:
    """Raises UsageError for a system service of somebody who is not root."""
    if not scope.user and os.geteuid() != 0:
        raise UsageError(
            "only root may change services of the system",
            hint="run it with sudo, or make a service of your own with --user",
        )


def run(scope: Scope, *words: str) -> str:
    """The output of ``systemctl``. Raises ServiceManagerError."""
    return run_command([*scope.systemctl, *words])


def run_command(command: Sequence[str]) -> str:
    """The output of a command of systemd's. Raises ServiceManagerError."""
    told = " ".join(command)
    try:
        done = subprocess.run(  # noqa: S603  # words of ours, and no shell
            command, capture_output=True, text=True, errors="replace", timeout=WITHIN, check=False
        )
    except FileNotFoundError:
        raise ServiceManagerError(f"there is no {command[0]} here", hint="install systemd") from None
    except subprocess.TimeoutExpired:
        raise ServiceManagerError(
            f"`{told}` did not end within {WITHIN:g} s", hint="see `systemctl list-jobs`"
        ) from None
    if done.returncode != 0:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise ServiceManagerError(f"`{told}` failed: {said}", hint="run it yourself, and see the journal")
    return done.stdout


def unit_status(scope: Scope, unit: str) -> UnitStatus:
    """Raises ServiceManagerError."""
    printed = run(scope, "show", unit, f"--property={','.join(_PROPERTIES)}", "--timestamp=utc")
    found = dict(line.partition("=")[::2] for line in printed.splitlines())
    code, status = found.get("ExecMainCode", "0"), _number(found.get("ExecMainStatus"))
    ended = found.get("ExecMainExitTimestamp", "")
    watchdog = found.get("WatchdogUSec", "")
    return UnitStatus(
        unit=unit,
        loaded=found.get("LoadState") == "loaded",
        state=found.get("ActiveState", "unknown"),
        detail=found.get("SubState", ""),
        enabled=found.get("UnitFileState", ""),
        since=found.get("StateChangeTimestamp", ""),
        pid=_number(found.get("MainPID")) or None,
        text=found.get("StatusText", ""),
        restarts=_number(found.get("NRestarts")) or 0,
        watchdog="" if watchdog in ("", "0", "infinity") else watchdog,
        heard=found.get("WatchdogTimestamp", ""),
        result=found.get("Result", ""),
        exit_code=status if ended and code == "1" else None,
        signal=status if ended and code in _KILLED else None,
        ended=ended,
    )


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None
