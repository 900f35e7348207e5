"""Leases: how the agents of a client that died are freed.

A client that dies registered locks a real server for good, and one that dies without agents does so where the server
takes one client only. Each session therefore keeps a small file in the runtime directory, from the first answer to its
INIT on, with its local port, its handler's port and its agents, and holds a lock on it for as long as it lives. A later
session that finds the file unlocked rebinds the dead client's port, so that the old handler listens to it, gives the
agents back and says goodbye. Observed on a NERD server: works on idle handlers and on ones in mid-step.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ospbridge.interface import Endpoint
from ospbridge.observe.runtime import runtime_directory
from ospbridge.transport.squatting import squatter

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Lease", "LeaseFile", "any_stale", "being_freed", "forget_all", "held_by_others", "stale_leases"]

SUFFIX: Final = ".lease"
LARGEST: Final = 1_000_000
TRIES: Final = 5
"""So often is tried to free the agents of a session whose handler is silent, while the server answers others."""


@dataclass(frozen=True, slots=True)
class Lease:
    """What a successor needs to say goodbye for a dead session."""

    server: str
    server_port: int
    local_host: str
    local_port: int
    handler_port: int
    profile: str
    agents: dict[str, int]
    """Local id by name. None: what the session still has is its place among the server's clients."""
    events: bool
    """Whether events were registered: then END is not safe on every server."""
    pid: int
    tries: int = 0
    """How often a successor met silence."""
    owed: int = 0
    """So many INITs of the session the server may have yet to read."""
    marked: bool = False
    """Whether the server awaits the end byte, where its profile does not say so."""

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.server, self.server_port)


class LeaseFile:
    """This session's own lease. A directory that cannot be written costs the lease, never the session."""

    def __init__(
        self,
        directory: Path | None = None,
        *,
        taken_over: tuple[int, Path] | None = None,
    ) -> None:
        self._directory = directory
        self._descriptor: int | None = taken_over[0] if taken_over else None
        self._path: Path | None = taken_over[1] if taken_over else None
        self._owner = os.getpid()

    def write(self, lease: Lease) -> None:
        """Create or replace the content; the lock is held from the first write on."""
        if self._descriptor is None and not self._open(lease):
            return
        assert self._descriptor is not None
        _fill(self._descriptor, lease)

    def _open(self, lease: Lease) -> bool:
        directory = self._directory or runtime_directory() / "leases"
        path = directory / f"{lease.local_port}-{lease.handler_port}{SUFFIX}"
        try:
            # Whoever may write to the one above could put another in its place.
            directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory.mkdir(mode=0o700, exist_ok=True)
            if not _believed(directory):
                return False
            descriptor = _newly_made(path, lease)
            if descriptor is None:
                descriptor = _locked(path, os.O_CREAT)
        except OSError:
            return False
        if descriptor is None:
            return False
        self._descriptor, self._path = descriptor, path
        return True

    @property
    def held(self) -> bool:
        """It was written, and not let go since."""
        return self._descriptor is not None

    @property
    def place(self) -> tuple[int, Path] | None:
        """Its descriptor and its path; None where it was not written, or was let go."""
        if self._descriptor is None or self._path is None:
            return None
        return self._descriptor, self._path

    @property
    def stands(self) -> bool:
        """Successors find it: nobody has removed or replaced its file."""
        if self._descriptor is None or self._path is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except OSError:
            return False

    def age(self) -> float:
        """Seconds since the session wrote it last."""
        assert self._descriptor is not None
        return max(time.time() - os.fstat(self._descriptor).st_mtime, 0.0)

    def remove(self) -> None:
        """The agents were given back, and the goodbye was heard."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink()
        self.abandon()

    def tried(self, lease: Lease, *, heard: bool) -> None:
        """A successor has tried to free the agents; ``heard``: somebody or nobody was there, instead of silence.

        A place without agents keeps nobody waiting but who says goodbye for it in vain: once is enough.
        """
        if heard or not lease.agents or lease.tries + 1 >= TRIES:
            self.remove()
        else:
            assert self._descriptor is not None
            written = os.fstat(self._descriptor)
            self.write(replace(lease, tries=lease.tries + 1))
            with suppress(OSError):
                # Its age is still that of the session's own last word.
                os.utime(self._descriptor, ns=(written.st_atime_ns, written.st_mtime_ns))
            self.abandon()

    def abandon(self) -> None:
        """Let go of the lock and leave the file: a successor will free the agents."""
        if self._descriptor is not None:
            with suppress(OSError):
                # The guardian may have a duplicate, whose lock is the same one; so has the parent of a forked child.
                if self._owner == os.getpid():
                    fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            with suppress(OSError):
                os.close(self._descriptor)
        self._descriptor = self._path = None


def stale_leases(server: Endpoint, directory: Path | None = None) -> Iterator[tuple[Lease, LeaseFile]]:
    """Leases of dead sessions with ``server``, each locked for the caller, who removes or abandons it."""
    directory = directory or runtime_directory() / "leases"
    for path in _paths(directory):
        try:
            descriptor = _locked(path)
        except OSError:
            continue
        if descriptor is None:
            continue
        try:
            lease = _read(descriptor)
        except OSError:
            os.close(descriptor)
            continue
        if lease is None:
            # Unreadable and owned by nobody alive: it can free nothing.
            with suppress(OSError):
                path.unlink()
            os.close(descriptor)
            continue
        if lease.endpoint != server:
            os.close(descriptor)
            continue
        yield lease, LeaseFile(directory, taken_over=(descriptor, path))


def any_stale(server: Endpoint, directory: Path | None = None) -> bool:
    """Whether a session with ``server`` has died, and its agents may still be taken."""
    found = False
    for _, file in stale_leases(server, directory):
        file.abandon()
        found = True
    return found


def forget_all(server: Endpoint, directory: Path | None = None) -> None:
    """The communication of ``server`` was restarted: no dead session has an agent there any more."""
    for _, file in stale_leases(server, directory):
        file.remove()


def being_freed(server: Endpoint, directory: Path | None = None) -> bool:
    """Whether a guardian says goodbye just now: a lease with ``server`` is held, and its session's process is gone."""
    return any(_gone(lease.pid) for _, lease in _held(server, directory))


def held_by_others(server: Endpoint, own: Path | None, directory: Path | None = None) -> bool:
    """Whether a session with ``server`` lives, but for the one whose lease is at ``own``."""
    return any(path != own for path, _ in _held(server, directory))


def _held(server: Endpoint, directory: Path | None) -> Iterator[tuple[Path, Lease]]:
    """Leases with ``server`` that somebody has locked."""
    for path in _paths(directory or runtime_directory() / "leases"):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            lease = _read(descriptor)
            if lease is not None and lease.endpoint == server and _is_locked(descriptor):
                yield path, lease
        except OSError:
            continue
        finally:
            os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    """Whether somebody else has locked it. A lock of our own ends with the descriptor."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _gone(pid: int) -> bool:
    """Whether a process has ended; its parent need not have taken notice yet."""
    try:
        # Behind the name, which may hold anything.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] in {
            "Z",
            "X",
        }
    except FileNotFoundError:
        return True
    except (OSError, IndexError):
        return False


def _paths(directory: Path) -> list[Path]:
    """The leases in a directory; none where it cannot be read, or is not to be believed."""
    try:
        return sorted(directory.glob(f"*{SUFFIX}")) if _believed(directory) else []
    except OSError:
        return []


def _believed(directory: Path) -> bool:
    """Nobody else decides what stands there, as at a place that everybody may write to. Raises OSError.

    Or in another user's session, whose ``XDG_RUNTIME_DIR`` whoever becomes root by ``su`` may have kept.
    """
    ours, above = directory.parent, directory.parent.parent.stat()
    return (
        directory.stat().st_uid == os.getuid()
        and squatter(ours) is None
        and (above.st_uid in {0, os.geteuid()} or bool(above.st_mode & stat.S_ISVTX))
    )


def _newly_made(path: Path, lease: Lease) -> int | None:
    """A lease that nobody finds before it is locked and says what it has to; None where there is one at ``path``, or
    the file system knows no second names.

    Another session that starts in that moment would take it for one that nobody alive owns.
    """
    unnamed = path.with_name(f"{path.stem}.{os.getpid()}")
    descriptor = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _fill(descriptor, lease)
        os.link(unnamed, path)
    except OSError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    finally:
        unnamed.unlink(missing_ok=True)
    return descriptor


def _locked(path: Path, make: int = 0) -> int | None:
    """A lease that is there, locked for the caller; None where somebody else holds it, or has just removed it.

    ``make``: O_CREAT, where there need be none.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | make, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink > 0:
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _fill(descriptor: int, lease: Lease) -> None:
    told = asdict(lease)
    for later in ("owed", "marked"):
        # Earlier versions take what they do not know for a file that nobody can read.
        if not told[later]:
            del told[later]
    content = json.dumps(told).encode()
    with suppress(OSError):
        # In one go with spaces over what was there before: whoever is killed in between leaves something readable.
        os.pwrite(descriptor, content.ljust(os.fstat(descriptor).st_size), 0)
        os.ftruncate(descriptor, len(content))


def _read(descriptor: int) -> Lease | None:
    try:
        data = json.loads(os.pread(descriptor, LARGEST, 0))
        lease = Lease(**data)
    except (ValueError, TypeError, RecursionError):
        return None
    numbers: tuple[object, ...] = (lease.server_port, lease.local_port, lease.handler_port)
    agents: object = lease.agents
    tries: object = lease.tries
    ports_fit = all(isinstance(n, int) and 0 < n < 65536 for n in numbers)
    agents_fit = isinstance(agents, dict) and all(isinstance(i, int) for i in agents.values())
    owed: object = lease.owed
    return lease if ports_fit and agents_fit and isinstance(tries, int) and isinstance(owed, int) else None
