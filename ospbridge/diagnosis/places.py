"""The places that ospbridge writes to: its runtime directory with leases and hubs, its state directory."""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ospbridge.diagnosis.checks import Check, advice, problem, skipped, well
from ospbridge.errors import ConfigurationError
from ospbridge.observe.runtime import base_directory, default_hub, hubs, runtime_directory, state_directory
from ospbridge.session.lease import SUFFIX, Lease
from ospbridge.text import listed
from ospbridge.transport.unix import LONGEST_PATH, connect_unix

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "check_directory",
    "check_hub_socket",
    "check_hub_sockets",
    "check_leases",
    "check_runtime_directory",
    "check_state_directory",
]

LOCKS: Final = Path("/proc/locks")
LARGEST_LEASE: Final = 1_000_000


def check_runtime_directory() -> Check:
    """Where leases and hubs are; whether it outlives the session, and nobody else may write to it."""
    directory = runtime_directory()
    found = check_directory("runtime directory", directory)
    if found.fix:
        return found
    if len(os.fsencode(default_hub())) > LONGEST_PATH:
        return problem(
            "runtime directory",
            f"{directory} is too long a path for the hub's socket, which may have {LONGEST_PATH} bytes",
            "set XDG_RUNTIME_DIR to a shorter one, or name the hub with --hub unix:PATH",
        )
    session = os.environ.get("XDG_RUNTIME_DIR")
    if not os.environ.get("RUNTIME_DIRECTORY") and base_directory(session) is None:
        because = "neither RUNTIME_DIRECTORY nor XDG_RUNTIME_DIR is set"
        return advice(
            "runtime directory",
            f"{directory}, because "
            + (f"XDG_RUNTIME_DIR={session} is no absolute path" if session else because),
            "set XDG_RUNTIME_DIR, to the same for the daemon and for environments",
        )
    return found


def check_state_directory() -> Check:
    """Where spools are, unless told otherwise."""
    try:
        directory = state_directory()
    except ConfigurationError as error:
        return problem("state directory", error.message, error.hint)
    return check_directory("state directory", directory)


def check_directory(subject: str, directory: Path) -> Check:
    """Whether a directory is ours to write to, or can be made."""
    try:
        status = directory.stat()
    except FileNotFoundError:
        return _to_be_made(subject, directory)
    except OSError as error:
        return problem(
            subject, f"{directory} cannot be looked at: {error.strerror}", f"mend access to {directory}"
        )
    if not directory.is_dir():
        return problem(subject, f"{directory} is no directory", f"remove {directory}")
    if status.st_uid != os.getuid():
        return problem(
            subject,
            f"{directory} belongs to user {status.st_uid}, this is user {os.getuid()}: what is there is not believed",
            "run as that user, or name another directory",
        )
    if status.st_mode & 0o002:
        return problem(subject, f"everybody may write to {directory}", f"chmod o-w {directory}")
    if not os.access(directory, os.W_OK | os.X_OK):
        return problem(subject, f"this user may not write to {directory}", f"chmod u+wx {directory}")
    return well(subject, str(directory))


def _to_be_made(subject: str, directory: Path) -> Check:
    parent = directory.parent
    while not parent.exists() and parent != parent.parent:
        parent = parent.parent
    if os.access(parent, os.W_OK | os.X_OK):
        return well(subject, f"{directory} will be made when it is needed")
    return problem(
        subject,
        f"{directory} is not there, and this user may not make it in {parent}",
        f"make it: sudo install -d -o $USER -m 700 {directory}",
    )


def check_hub_sockets() -> list[Check]:
    """The hubs of daemons on this host, at the usual places."""
    # os.path: a directory that this user may not enter has none.
    paths = [path for path in (default_hub(), *hubs()) if os.path.lexists(path)]
    return [check_hub_socket(path) for path in paths] or [
        skipped("hub", f"no daemon listens in {runtime_directory()}")
    ]


def check_hub_socket(path: Path) -> Check:
    """Whether a daemon listens there, and lets us in."""
    subject = f"hub {path.name}"
    if not path.is_socket():
        return problem(
            subject, f"{path} is no socket", f"remove {path}, or name another with --hub unix:PATH"
        )
    try:
        connect_unix(path).close()
    except PermissionError:
        return problem(
            subject,
            f"this user may not use {path}",
            "join the group that owns it, or run the daemon as this user",
        )
    except OSError as error:
        if error.errno == errno.EAGAIN:
            return problem(subject, f"the daemon at {path} takes nobody in", "see its log; restart it")
        return problem(
            subject,
            f"nobody listens at {path}: a daemon died and left it",
            "start `ospbridge connect` again, which takes it over; or remove it",
        )
    return well(subject, f"a daemon listens at {path}")


def check_leases(directory: Path | None = None, locks: Path = LOCKS) -> Check:
    """Leases of sessions that died: their agents may be locked in the simulator, and their places in it taken."""
    directory = directory or runtime_directory() / "leases"
    held: set[int] = set()
    try:
        held = set(_locked(locks.read_text().splitlines()))
        files = sorted(directory.glob(f"*{SUFFIX}"))
    except OSError as error:
        return skipped("leases", f"{error.filename} cannot be read: {error.strerror}")
    stale, alive = [], 0
    for path in files:
        with suppress(OSError):
            if path.stat().st_ino in held:
                alive += 1
            else:
                stale.append(path)
    if not stale:
        return well("leases", f"{alive} of running sessions, none of dead ones")
    told = [_agents(path) for path in stale]
    detail = f"{len(stale)} of sessions that died: " + "; ".join(
        f"{agents} of {server or 'an unknown simulator'}" for server, agents in told
    )
    # Of one simulator only: those beside them may be another's that runs.
    server = min(filter(None, (server for server, _ in told)), default="")
    theirs = " ".join(str(path) for path, (its, _) in zip(stale, told, strict=True) if its == server)
    if not server:
        return problem("leases", detail, f"nobody can read them: remove {theirs}")
    return problem(
        "leases",
        detail,
        f"the next session with the simulator frees them, for instance `ospbridge connect --simulator {server}`; if it "
        f"does not run any more, remove {theirs}",
    )


def _locked(lines: Iterable[str]) -> Iterable[int]:
    """Inodes of files that somebody holds a lock on."""
    for line in lines:
        fields = line.split()
        if len(fields) >= 8 and fields[1] == "FLOCK":
            with suppress(ValueError):
                yield int(fields[5].rpartition(":")[2])


def _agents(path: Path) -> tuple[str, str]:
    """Server and agents of a lease; no server, and its name, where it cannot be read."""
    try:
        with path.open("rb") as file:
            lease = Lease(**json.loads(file.read(LARGEST_LEASE)))
        return str(lease.endpoint), listed(map(str, lease.agents)) or "a client's place without agents"
    except (OSError, ValueError, TypeError, RecursionError):
        return "", path.name
