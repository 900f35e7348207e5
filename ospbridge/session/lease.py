"""Leases: how the agents of a client that died are freed, and what is told of them until then.

A client that dies registered locks a real server for good, and one that dies without agents does so where the server
takes one client only. Each session therefore keeps a small file in the runtime directory, with its local port, its
handler's port and its agents, and holds a lock on it for as long as it lives. A later session that finds the file
unlocked rebinds the dead client's port, so that the old handler listens to it, and says goodbye (``connect.reclaim``).

Errors that lost sessions of ours may have caused say so, and blame no other client.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from ospbridge.errors import AgentTaken, BarrierStuck, SimulatorSilent
from ospbridge.interface import Endpoint
from ospbridge.observe.runtime import runtime_directory
from ospbridge.osp.messages import DeregisterFromAgent, DeregisterFromAgentAck, End, EndAck, StepCompletedAck
from ospbridge.osp.profile import PROFILES
from ospbridge.transport import guardian
from ospbridge.transport.addresses import is_loopback
from ospbridge.transport.admission import squatter

if TYPE_CHECKING:
    import socket
    from collections.abc import Collection, Iterator, Mapping

    from ospbridge.interface import AgentEntry
    from ospbridge.osp.profile import Profile

__all__ = ["Lease", "LeaseFile", "SessionLease", "being_freed", "stale_leases"]

SUFFIX: Final = ".lease"
LARGEST: Final = 1_000_000
TRIES: Final = 5
"""So often is tried to free the agents of a session whose handler is silent, while the server answers others."""
RECENT: Final = 60.0
"""Seconds for which a simulator may be letting go of agents whose handler is gone."""
KEPT: Final = 256
"""Lost agents that are remembered."""
FREE_ALL: Final = "`ospbridge restart-communication` frees all agents (it disconnects every client)"

Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class Lease(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a successor needs to say goodbye for a dead session."""

    server: str
    server_port: Port
    local_host: str
    local_port: Port
    handler_port: Port
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


# --- files ----------------------------------------------------------------------------------------------------------


class LeaseFile:
    """A lease that is ours, or was found. A directory that cannot be written costs the lease only."""

    lease: Lease
    """What it says, once it was written or read."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory
        self.place: tuple[int, Path] | None = None
        """Its descriptor, whose lock is held, and its path; None where it was not written, or was let go."""
        self.path: Path | None = None
        """Where it is, or was."""
        self.age = 0.0
        """Seconds from the session's own last word to the moment at which it was found."""
        self.held = False
        """It was found in the hands of a session that lives, or of its guardian."""
        self._owner = os.getpid()

    def write(self, lease: Lease) -> None:
        """Make or replace it; the lock is held from the first write on. Where that fails, what was there stays."""
        self.lease = lease
        with suppress(OSError):
            path = self.path if self.place is not None else None
            if path is None:
                directory = self.directory or runtime_directory() / "leases"
                # Whoever may write to the one above could put another in its place.
                directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                directory.mkdir(mode=0o700, exist_ok=True)
                if not _believed(directory):
                    return
                path = directory / f"{lease.local_port}-{lease.handler_port}{SUFFIX}"
            place = _made(path, lease), path
            self.abandon()
            self.place, self.path = place, path

    @property
    def stands(self) -> bool:
        """Successors find it: nobody has removed or replaced its file."""
        if self.place is None:
            return False
        try:
            return os.path.samestat(os.fstat(self.place[0]), self.place[1].stat())
        except OSError:
            return False

    def remove(self) -> None:
        """The agents were given back, and the goodbye was heard."""
        if self.place is not None:
            with suppress(OSError):
                self.place[1].unlink()
        self.abandon()

    def tried(self, *, heard: bool) -> None:
        """A successor has tried to free the agents; ``heard``: somebody or nobody was there, instead of silence.

        A place without agents keeps nobody waiting but who says goodbye for it in vain: once is enough.
        """
        tries = self.lease.tries + 1
        if heard or not self.lease.agents or tries >= TRIES:
            self.remove()
            return
        self.write(msgspec.structs.replace(self.lease, tries=tries))
        assert self.place is not None
        with suppress(OSError):
            # Its age is still that of the session's own last word.
            os.utime(self.place[0], (time.time(), time.time() - self.age))
        self.abandon()

    def abandon(self) -> None:
        """Let go of the lock and leave the file: a successor will free the agents."""
        if self.place is None:
            return
        descriptor, _ = self.place
        self.place = None
        with suppress(OSError):
            # The guardian may have a duplicate, whose lock is the same one; so has the parent of a forked child.
            if self._owner == os.getpid():
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        with suppress(OSError):
            os.close(descriptor)


def _made(path: Path, lease: Lease) -> int:
    """A lease that nobody finds before it is locked and says what it has to. Raises OSError.

    Another session that starts in that moment would take it for one that nobody alive owns, and whoever is killed in
    between would leave half of it.
    """
    unnamed = path.with_name(f"{path.stem}.{os.getpid()}")
    descriptor = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, msgspec.json.encode(lease))
        unnamed.replace(path)
    except BaseException:
        unnamed.unlink(missing_ok=True)
        os.close(descriptor)
        raise
    return descriptor


def _read(descriptor: int) -> Lease | None:
    try:
        return msgspec.json.decode(os.pread(descriptor, LARGEST, 0), type=Lease)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


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


def _leases(server: Endpoint, directory: Path | None) -> Iterator[LeaseFile]:
    """Leases with ``server`` in a directory that is to be believed, locked for us now unless they are ``held``.

    Whoever asks removes or abandons each.
    """
    directory = directory or runtime_directory() / "leases"
    try:
        paths = sorted(directory.glob(f"*{SUFFIX}")) if _believed(directory) else []
    except OSError:
        return
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        file = LeaseFile()
        file.place, file.path = (descriptor, path), path
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.held = True
        found, lease = os.fstat(descriptor), _read(descriptor)
        if lease is None and not file.held and file.stands:
            # Unreadable and owned by nobody alive: it can free nothing.
            file.remove()
        elif lease is None or lease.endpoint != server or not found.st_nlink:
            # Or it was removed since it was found.
            file.abandon()
        else:
            file.lease, file.age = lease, max(time.time() - found.st_mtime, 0.0)
            yield file


def stale_leases(server: Endpoint, directory: Path | None = None) -> Iterator[LeaseFile]:
    """Leases of dead sessions with ``server``, each locked for the caller, who removes or abandons it."""
    for file in _leases(server, directory):
        if file.held:
            file.abandon()
        else:
            yield file


def _found(server: Endpoint, directory: Path | None) -> list[LeaseFile]:
    """All leases with ``server``, none of which is kept locked."""
    found = []
    for file in _leases(server, directory):
        file.abandon()
        found.append(file)
    return found


def left_behind(server: Endpoint, directory: Path | None) -> list[str]:
    """Agents that lost sessions, of any of our processes, had or had asked for, and that nobody has freed."""
    return [name for file in _found(server, directory) if not file.held for name in file.lease.agents]


def forget_all(server: Endpoint, directory: Path | None) -> None:
    """The communication of ``server`` was restarted: no dead session has an agent there any more."""
    for file in stale_leases(server, directory):
        file.remove()


def being_freed(server: Endpoint, directory: Path | None = None) -> bool:
    """Whether a guardian says goodbye just now: a lease with ``server`` is held, and its session's process is gone."""
    return any(file.held and _gone(file.lease.pid) for file in _found(server, directory))


def _gone(pid: int) -> bool:
    """Whether a process has ended; its parent need not have taken notice yet."""
    try:
        # Behind the name, which may hold anything.
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2]
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return status.strip()[:1] in {"Z", "X"}


def locked_by_the_dead(
    entries: Collection[AgentEntry], server: Endpoint, directory: Path | None, own: Path | None
) -> list[str]:
    """Agents that only a restart of the communication frees, where that provably disturbs nobody else.

    Dead sessions of ours had all that are taken, and their old handlers were silent when their leases were tried.
    ``own`` is the lease of the session that asks. Empty where another session of ours lives.
    """
    taken = [entry.name for entry in entries if not entry.available]
    leases = _found(server, directory)
    dead = Counter(name for file in leases if not file.held for name in file.lease.agents)
    others = Counter(taken) - dead or any(file.held and file.path != own for file in leases)
    return [] if others else taken


# --- the lease of a session -----------------------------------------------------------------------------------------


class SessionLease(LeaseFile):
    """What the lease and the guardian know of a session: its place at a handler, and the agents that it has there.

    From the first ``hold`` on, over the socket of the session, which ``close`` closes.
    """

    _profile: Profile

    def __init__(self, sock: socket.socket, server: Endpoint, directory: Path | None) -> None:
        super().__init__(directory)
        self.handler: Endpoint | None = None
        """Who has answered, to the session's knowledge."""
        self._sock = sock
        self._server = server
        self._over = False

    def hold(self, handler: Endpoint, profile: Profile, *, owed: int) -> None:
        """``handler`` has answered. ``owed``: INITs of the session that the server may have yet to read."""
        host, port = self._sock.getsockname()[:2]
        self.handler, self._profile = handler, profile
        self.lease = Lease(
            server=self._server.host,
            server_port=self._server.port,
            local_host=host,
            local_port=port,
            handler_port=handler.port,
            profile=profile.name,
            agents={},
            events=False,
            pid=os.getpid(),
            owed=owed,
            marked=profile.end_marker and not PROFILES[profile.name].end_marker,
        )
        self.renew({})

    @property
    def events(self) -> bool:
        """Events were registered, or may have been: a successor's END would do harm at some servers."""
        return self.lease.events

    def renew(self, agents: Mapping[str, int], *, events: bool = False) -> None:
        """Whoever dies from now on leaves these: local id by name, none where it has only its place."""
        profile, events = self._profile, events or self.events
        self.write(msgspec.structs.replace(self.lease, agents=dict(agents), events=events))
        marked = profile.end_marker
        requests = [
            (DeregisterFromAgent(each).encode(end=marked), DeregisterFromAgentAck(each, 0).encode()[:-1])
            for each in agents.values()
        ]
        if not events or profile.end_after_events_is_safe:
            requests.append((End().encode(end=marked), EndAck().encode()))
        guardian.protect(
            self._sock,
            lease=self.place,
            spare_ack=StepCompletedAck(next(iter(agents.values()), 0)).encode(end=marked),
            end=profile.end,
            goodbye=requests,
        )

    def look_after(self, agents: Mapping[str, int]) -> None:
        """As ``renew``, where somebody has removed the file, as with a whole runtime directory."""
        if not (self._over or self.stands):
            self.abandon()
            self.renew(agents)

    def end(self, *, refused: bool = False) -> None:
        """The agents are free, and so is the place: nobody need reclaim them.

        ``refused``: only a closed port says so. Of another host that may be the word of a firewall between, while the
        handler keeps the agents: the lease is left, and a successor asks again.
        """
        self._over = True
        if not refused or is_loopback(self._server.host):
            self.remove()

    def close(self) -> None:
        """Close the socket. Where the agents may still be taken, the lease is left to a successor, who needs the port.

        So the guardian lets go of that first, and the lock is let go last.
        """
        self._over = True
        guardian.release(self._sock, wait=self.place is not None)
        self._sock.close()
        self.abandon()


# --- what is told of dead and lost sessions -------------------------------------------------------------------------

_losses: dict[tuple[Endpoint, str], tuple[str, float]] = {}
"""Agents of sessions of this process that were given up or found dead: how, and when."""


def note_loss(server: Endpoint, agents: Collection[str], how: str) -> None:
    """A session of ours with these agents was given up or found dead; its goodbye was not confirmed."""
    for agent in agents:
        _losses[server, agent] = how, monotonic()
    for oldest in list(_losses)[:-KEPT]:
        _losses.pop(oldest, None)


def forget_loss(server: Endpoint, agent: str) -> None:
    """It was had again since: whoever has it next has it of its own."""
    _losses.pop((server, agent), None)


@contextmanager
def explained(server: Endpoint, directory: Path | None, *, waited: float = 0.0) -> Iterator[None]:
    """An AgentTaken or BarrierStuck of the body, after ``waited`` seconds, says which lost session of ours had it."""
    try:
        yield
    except (AgentTaken, BarrierStuck) as error:
        now = monotonic()
        lost = {
            name: loss
            for name in error.agents
            if (loss := _losses.get((server, name))) is not None and now - loss[1] < RECENT + waited
        }
        dead = sorted({*left_behind(server, directory)}.intersection(error.agents))
        if dead:
            told = f"a session of ours was lost that may still have {', '.join(dead)}, and its lease is there"
            hint = f"try again: each new session says goodbye for the lost one; where nobody hears it, {FREE_ALL}"
        elif lost:
            how, at = max(lost.values(), key=lambda loss: loss[1])
            told = f"a session of ours that may still have {', '.join(lost)} {how} {now - at:.1f} s ago"
            hint = f"try again in a moment; where it stays taken, stop whoever has it by now, or {FREE_ALL}"
        else:
            raise
        if theirs := sorted({*error.agents}.difference(dead, lost)):
            told += f"; {', '.join(theirs)}: controlled by another client"
        names = ", ".join(dict.fromkeys(error.agents))
        if isinstance(error, BarrierStuck):
            who = f"agent {names} must be voted for too; {told}"
            raise BarrierStuck(error.what, hint=hint, who=who, agents=error.agents) from None
        raise AgentTaken(
            f"agent {names} of {server} is taken; {told}", hint=hint, agents=error.agents
        ) from None


@contextmanager
def told_of_leases(server: Endpoint, directory: Path | None, *, said_goodbye: bool) -> Iterator[None]:
    """A SimulatorSilent of the body names the leases that lie there for ``server``.

    A server that takes one client only, or a bounded number, is silent for as long as it believes dead ones there.
    ``said_goodbye``: it was tried, for each of them, to free its place.
    """
    try:
        yield
    except SimulatorSilent as error:
        dead = [file for file in _found(server, directory) if not file.held]
        if not dead:
            raise
        lease = dead[0].lease
        has = f" with {', '.join(lease.agents)}" if lease.agents else ""
        more = f", and for {len(dead) - 1} more" if len(dead) > 1 else ""
        hint = (
            "nobody heard the goodbye that was said in its name: restart the simulator"
            if said_goodbye
            else "`ospbridge restart-communication` says goodbye in its name, and so does whatever takes agents, "
            "`ospbridge connect` for one"
        )
        raise SimulatorSilent(
            f"{error.message}; it may still wait for a session of process {lease.pid}{has} that ended without a "
            f"goodbye (lease of {_ago(dead[0].age)}){more}",
            hint=f"{hint}; else {error.hint}",
        ) from None


def _ago(age: float) -> str:
    for seconds, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if age >= 2 * seconds:
            return f"{age / seconds:.0f} {unit} ago"
    return f"{age:.0f} s ago"
