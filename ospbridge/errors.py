"""Every exception of ospbridge, each with a hint.

The message says what was expected, what came instead and from whom; ``hint`` says what to do next. ``exit_code`` is
what the command line exits with (sysexits.h): 2 usage, 69 nothing there to talk to, 75 lost, 78 configuration.
"""

from __future__ import annotations

import copyreg
from typing import TYPE_CHECKING, Final, Self

from ospbridge.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "AgentNotFound",
    "AgentTaken",
    "AgentsInUse",
    "BarrierStuck",
    "ConfigurationError",
    "ConfigurationInvalid",
    "FileInvalid",
    "HubError",
    "HubLost",
    "HubNotFound",
    "IncompleteListing",
    "LocalProtocolError",
    "OspBridgeError",
    "OutputsIncomplete",
    "ProtocolError",
    "QueryTimeout",
    "RemoteProtocolError",
    "ScenarioInvalid",
    "ScenarioNotFound",
    "ServiceManagerError",
    "SessionClosed",
    "SessionEvicted",
    "SessionLost",
    "SimulatorNotFound",
    "SimulatorNotStarted",
    "SimulatorSilent",
    "StepUncertain",
    "TaskError",
    "UpstreamLost",
    "UpstreamNotFound",
    "UsageError",
    "ValueNotFound",
    "ValueRejected",
    "VersionRefused",
    "WorldFailed",
]


LONGEST_MESSAGE: Final = 2_700
"""Bytes of an error's message, whatever names of a peer are in it."""
LONGEST_HINT: Final = 1_000
"""Bytes of its hint; both together are less than 4 kB."""


class OspBridgeError(Exception):
    """Base of all. Never raised itself. Message and hint are for people: on one line each, ``printable`` and short."""

    exit_code: int = 1
    """What a command ends with."""
    default_hint: str = ""

    def __init__(self, message: str, *, hint: str = "") -> None:
        if type(self) in (OspBridgeError, ProtocolError, FileInvalid):
            raise TypeError(f"{type(self).__name__} is a base class; raise one of its subclasses")
        self.message: str = _told(message)
        """What was expected, what came, and from whom."""
        super().__init__(self.message)
        self.hint: str = _told(hint or self.default_hint, LONGEST_HINT)
        """What to do next."""

    def __reduce__(self) -> tuple[object, ...]:
        """As other processes get it: what is made of the message is not made once more."""
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]

    def add(self, what: str) -> None:
        """Tell more of it."""
        self.message = _told(self.message + what)
        self.args = (self.message,)

    def after(self, waited: float) -> Self:
        """The same, with the seconds for which it was waited in vain; less than one is not worth a word."""
        if waited >= 1.0:
            self.add(f", still so after {waited:.1f} s")
        return self

    @property
    def lines(self) -> tuple[str, ...]:
        """The message for people to read: one line, or a head and a line for each of several mistakes."""
        return (self.message,)

    def __str__(self) -> str:
        """As a traceback shows it."""
        told = "\n  ".join(self.lines)
        if self.hint:
            told = f"{told}\n({self.hint})" if len(self.lines) > 1 else f"{told} ({self.hint})"
        return told


def _told(text: str, most: int = LONGEST_MESSAGE) -> str:
    return printable(text.replace("\n", " "), most)


class ProtocolError(OspBridgeError):
    """Somebody broke the rules of a protocol."""


class LocalProtocolError(ProtocolError):
    """Our own side asked for something the protocol does not allow; nothing was sent."""

    exit_code = 2


class RemoteProtocolError(ProtocolError):
    """The peer sent bytes that the protocol does not allow.

    ``offset`` is the position of the first byte that does not fit, ``data`` the whole datagram.
    """

    exit_code = 69

    def __init__(self, message: str, *, data: bytes, offset: int, hint: str = "") -> None:
        shown = data[:48].hex(" ") + (" ..." if len(data) > 48 else "")
        length = "1 byte" if len(data) == 1 else f"{len(data)} bytes"
        super().__init__(f"{message} at offset {offset} of {length} [{shown}]", hint=hint)
        self.data = data
        self.offset = offset


class UsageError(OspBridgeError):
    """A request of the user that cannot be carried out as written."""

    exit_code = 2


class ConfigurationError(OspBridgeError):
    """A setting, file or address that cannot work."""

    exit_code = 78


class FileInvalid(ConfigurationError):
    """Base of the errors about a file with mistakes. Never raised itself.

    ``mistakes`` has them one by one, for programs. ``rows`` are they as people are told them, behind ``message``, which
    is the head then; without ``rows`` it is all there is to say.
    """

    def __init__(
        self, message: str, *, hint: str = "", mistakes: Sequence[str] = (), rows: Sequence[str] = ()
    ) -> None:
        super().__init__(f"{message}: {'; '.join(rows)}" if rows else message, hint=hint)
        self.mistakes = tuple(mistakes)
        self._head, self._rows = _told(message), tuple(map(_told, rows))

    @property
    def lines(self) -> tuple[str, ...]:
        return (f"{self._head}:", *self._rows) if len(self._rows) > 1 else (self.message,)

    def within(self, where: str) -> Self:
        """The same, told of the place that names the file."""
        return type(self)(f"{where}: {self._head}", hint=self.hint, mistakes=self.mistakes, rows=self._rows)


class ConfigurationInvalid(FileInvalid):
    """A configuration file with mistakes: ``mistakes`` has them one by one, each with its line and key path."""

    default_hint = (
        "docs/reference/configuration.md lists every key, and `ospbridge service install --user --dry-run` "
        "prints them"
    )


class ScenarioNotFound(ConfigurationError):
    """No file and no shipped scenario of that name."""


class ScenarioInvalid(FileInvalid):
    """A scenario with mistakes: ``mistakes`` has them one by one, each with its key path."""

    default_hint = "`ospbridge check FILE` tells whether all are mended"


class TaskError(OspBridgeError):
    """A task cannot judge what a step brought: an expression failed, or a variable is no number."""

    exit_code = 78
    default_hint = "fix the scenario; the next episode begins with a reset"


class SimulatorNotFound(OspBridgeError):
    """Nothing listens at the simulator's address."""

    exit_code = 69
    default_hint = "start the simulator with its OSP server on, or try `ospbridge sim --env CartPole-v1`"


class SimulatorSilent(SimulatorNotFound):
    """The address is open or filtered, but no OSP server answered the INIT."""


class VersionRefused(SimulatorNotFound):
    """The server answered with another protocol version than 1.1."""

    default_hint = "ospbridge speaks OSP 1.1 only; update the simulator"


class SimulatorNotStarted(OspBridgeError):
    """A simulator that was to be launched could not be started, ended at once, or does not answer where it should."""

    exit_code = 69


class QueryTimeout(OspBridgeError):
    """The simulator did not answer a question in time."""

    exit_code = 75
    default_hint = "see whether the simulator still runs; a longer limit is an option (query timeout)"


class IncompleteListing(QueryTimeout):
    """Pieces of a listing stayed missing although it was asked for again and in parts."""

    default_hint = "raise net.core.rmem_max, or ask for fewer values with a narrower expression"


class AgentNotFound(OspBridgeError):
    """No agent of that name, id or pattern."""

    exit_code = 2
    default_hint = "`ospbridge agents` lists what the simulator offers"


class AgentTaken(OspBridgeError):
    """Another client controls the agent, or the simulator may still have it for a lost session of ours.

    ``agents``: their names, where they are known.
    """

    exit_code = 69
    default_hint = (
        "if that is `ospbridge connect`, attach to it: leave the simulator's address out; otherwise stop the other "
        "client, or, if it died, free all agents with `ospbridge restart-communication` (it disconnects every client)"
    )

    def __init__(self, message: str, *, hint: str = "", agents: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint)
        self.agents = tuple(agents)


class AgentsInUse(OspBridgeError):
    """Two single environments of one thread want to step agents of one simulator one by one."""

    exit_code = 2
    default_hint = (
        "agents of one simulator step together: use gymnasium.make_vec or the parallel environment, "
        "or run `ospbridge connect` and attach each environment from a process of its own"
    )


class ValueNotFound(OspBridgeError):
    """No variable of that name in the simulator's repository."""

    exit_code = 2
    default_hint = "`ospbridge values list` shows the names"


class ValueRejected(OspBridgeError):
    """The simulator could not parse the text for that variable, or does not let it be set."""

    exit_code = 2
    default_hint = "`ospbridge values get NAME` shows how the simulator writes it; some can only be read"


class BarrierStuck(OspBridgeError):
    """A step or reset waits for clients that do not ask for it too, or for agents of a lost session of ours.

    ``what`` did not come about, ``who``: for whom it waits; ``agents``: the names of theirs, where they are known.
    """

    exit_code = 75
    default_hint = (
        "every client that controls an agent must ask for the step or reset; let `ospbridge connect` control all "
        "agents and attach environments to it, or free a dead client's with `ospbridge restart-communication`"
    )

    def __init__(self, what: str, *, hint: str = "", who: str = "", agents: Sequence[str] = ()) -> None:
        super().__init__(f"{what} ({who})" if who else what, hint=hint)
        self.what = _told(what)
        self.agents = tuple(agents)


class StepUncertain(OspBridgeError):
    """Whether a step ran exactly once cannot be found out; the episode cannot be trusted any more.

    ``by_network``: for all that can be seen because the network repeats datagrams, or brings them late.
    ``interrupted``: whoever asked for an earlier step or reset did not wait for its end, as after Ctrl-C.
    """

    exit_code = 75
    default_hint = (
        "reset the environment, which joins again then; close a session of your own, and connect again"
    )

    def __init__(
        self, message: str, *, hint: str = "", by_network: bool = False, interrupted: bool = False
    ) -> None:
        if by_network and not hint:
            hint = (
                f"{self.default_hint}; look for what repeats or delays datagrams on the way to the simulator"
            )
        super().__init__(message, hint=hint)
        self.by_network = by_network
        self.interrupted = interrupted


class OutputsIncomplete(OspBridgeError):
    """A completion was lost or cut and cannot be restored from the repository."""

    exit_code = 75
    default_hint = "split the agent into smaller ones, or raise the simulator's datagram limit"


class SessionLost(OspBridgeError):
    """The handler on the simulator's side is gone."""

    exit_code = 75
    default_hint = (
        "reset the environment, which joins again as soon as the simulator is back; close a session of your own, and "
        "connect again"
    )


class SessionEvicted(SessionLost):
    """Somebody restarted the simulator's communication: all sessions and registrations are gone."""


class SessionClosed(OspBridgeError):
    """The session, environment or simulator was closed before."""

    exit_code = 2
    default_hint = "make a new one"


class WorldFailed(OspBridgeError):
    """A world or environment that the built-in simulator hosts raised an error, or told what it never announced."""

    exit_code = 70
    default_hint = "run the environment by itself with the same actions: its own traceback says more"


class HubError(OspBridgeError):
    """The daemon refused a request of an environment."""

    exit_code = 75


class HubNotFound(OspBridgeError):
    """No daemon listens at the hub's address."""

    exit_code = 69
    default_hint = (
        "start it with `ospbridge connect`, name it with bridge='unix:PATH', or join a simulator without a daemon with "
        "simulator='HOST:PORT'"
    )


class HubLost(HubError):
    """The daemon went away or dropped the environment."""

    default_hint = "reset: that attaches again when the daemon is back; whoever only watches connects again"


class UpstreamNotFound(OspBridgeError):
    """No RLlink server answers at an address."""

    exit_code = 69
    default_hint = "start the RLlink server, or try `ospbridge sink`"


class UpstreamLost(OspBridgeError):
    """The RLlink server closed the connection, or does not answer any more."""

    exit_code = 75
    default_hint = "see the server's own log; the connection is tried again by itself"


class ServiceManagerError(OspBridgeError):
    """systemd is not there, does not answer, or refuses; or the service does not run."""

    exit_code = 69
