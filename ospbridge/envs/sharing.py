"""Sessions shared by the environments of one process.

Environments with equal simulator and agent share one session (gymnasium's checker makes a twin while the first is
open); the one that was reset last owns the agent, and its limits, its ``spin`` and its ``wait`` count. What a session
cannot be for both, another profile or another trace, is refused when the second is made. Agents of one simulator step
together, so a second agent of the same simulator in the same thread would wait for the first for ever: that is refused
when the environment is made. A forked child owns none of its parent's sessions.
"""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, TypeVar

from ospbridge.envs.conventions import say
from ospbridge.errors import (
    AgentNotFound,
    AgentsInUse,
    AgentTaken,
    ConfigurationError,
    OspBridgeError,
    OutputsIncomplete,
    QueryTimeout,
    SessionClosed,
    SessionLost,
    SimulatorNotFound,
    StepUncertain,
    UsageError,
)
from ospbridge.interface import chosen
from ospbridge.osp.profile import profile_named
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.one_thread import OneThread
from ospbridge.session.rebuild import Awaiting, Budget, PortProbe, costs_nothing
from ospbridge.text import listed
from ospbridge.transport.addresses import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from pathlib import Path

    from ospbridge.interface import AgentInterface, Endpoint, Match
    from ospbridge.launch.simulator import LaunchedSimulator
    from ospbridge.observe.trace import TraceWriter
    from ospbridge.osp.profile import Profile
    from ospbridge.osp.timing import Limits
    from ospbridge.task.base import Task

__all__ = ["TRUNCATING", "ConnectOptions", "SharedSession", "acquire"]

T = TypeVar("T")
BACKOFF: Final = (0.05, 1.0)
"""Seconds between tries to reach a simulator that is away: first, longest."""
TRUNCATING: Final = (SessionLost, StepUncertain, OutputsIncomplete, QueryTimeout)
"""Errors that end an episode, truncated, and after which the session is rebuilt."""


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """What an environment wants of its session: of the simulator the same as those it shares it with."""

    simulator: Endpoint
    """Resolved when the environment was made, to tell simulators apart."""
    named: Endpoint
    """As it was given: a simulator that is started anew may have another address under the same name."""
    profile: str
    limits: Limits
    spin: bool
    wait: float
    """Seconds to wait for a simulator that is not there, or has no agents at all."""

    @property
    def address(self) -> Endpoint:
        """Where the simulator is by now."""
        try:
            return resolve(self.named)
        except (ConfigurationError, SimulatorNotFound):
            # No name server answers, as where all of that network starts anew.
            return self.simulator


def _connect(
    options: ConnectOptions,
    trace: TraceWriter | None,
    *,
    wait: float,
    budget: Budget | None = None,
    launched: LaunchedSimulator | None = None,
) -> BlockingSession:
    """A session, for ``wait`` seconds where no simulator is there. Raises as ``BlockingSession.connect`` does.

    ``budget`` is given back what a rebuild has cost, where the simulator was away. A wait that takes a while is told.
    SimulatorNotStarted: it was ``launched``, and has ended or does not answer.
    """
    give_up = monotonic() + wait
    awaiting = Awaiting(wait, say)
    pause, longest = BACKOFF
    while True:
        try:
            return BlockingSession.connect(
                options.address,
                profile=options.profile,
                limits=options.limits,
                spin=options.spin,
                trace=trace,
                ended=None if launched is None else lambda: not launched.alive,
            )
        except SimulatorNotFound as error:
            if launched is not None and launched.has_ended():
                raise launched.error("ended before it answered") from None
            if budget is not None:
                budget.give_back()
                budget = None
            if monotonic() + pause >= give_up:
                if launched is not None:
                    raise launched.error(f"does not answer as an OSP server: {error.message}") from None
                error.after(awaiting.waited)
                raise
            awaiting.mention(error)
        sleep(pause)
        pause = min(2 * pause, longest)


def _once_they_are_there(
    find: Callable[[], T], give_up: float, *, unless: Callable[[], bool] = lambda: False
) -> T:
    """What is found of agents: a simulator that was just started answers before it has loaded its scene.

    ``unless``: whether there is nothing to wait for, since one that has agents is not about to load others.
    """
    pause, longest = BACKOFF
    awaiting = Awaiting(give_up - monotonic(), say)
    while True:
        try:
            return find()
        except AgentNotFound as error:
            if unless():
                raise
            if monotonic() + pause >= give_up:
                error.after(awaiting.waited)
                raise
            awaiting.mention(error)
        sleep(pause)
        pause = min(2 * pause, longest)


@dataclass(slots=True, eq=False)
class SharedSession:
    """A session with the agents it controls, mostly one, and the environments that use it."""

    options: ConnectOptions
    """Those in force: of the environment that made it, or was reset last."""
    session: BlockingSession
    agents: tuple[AgentInterface, ...]
    key: tuple[object, ...]
    profile: Profile
    """That of the simulator when it was joined first, which spaces were made by and environments have agreed to."""
    trace: TraceWriter | None = None
    launched: LaunchedSimulator | None = None
    """The simulator, where it was launched for these environments: it ends with them."""
    users: int = 0
    owner: object = None
    exclusive: bool = False
    """It belongs to one environment and is never shared."""
    broken: str = ""
    """Why the session must be rebuilt before the next reset; empty while it is sound."""
    budget: Budget = field(default_factory=lambda: Budget(monotonic()))
    pid: int = field(default_factory=os.getpid)
    _absence: PortProbe | None = None
    """Of the simulator, where the session was over when it was given up."""
    free: bool = False
    """That rebuild costs nothing of the budget."""
    _rebuilding: OneThread = field(init=False)

    def __post_init__(self) -> None:
        self._rebuilding = OneThread(self.options.simulator)

    @property
    def agent(self) -> AgentInterface:
        """The only agent, of a session that single environments share."""
        return self.agents[0]

    def meant_by(self, agent: str) -> bool:
        """Whether a name or glob means the only agent, among all that its simulator has."""
        there = [entry.name for entry in self.session.core.agents]
        return self.agent.name in chosen((*there, self.agent.name), (agent,))

    def configure(self, options: ConnectOptions) -> None:
        """These are in force from here on, for rebuilding it too."""
        if options != self.options:
            self.options = options
            self.session.configure(options.limits, spin=options.spin)

    def give_up(self, why: OspBridgeError | str) -> None:
        """The session must be rebuilt before the next reset."""
        if isinstance(why, str):
            self.broken, self.free = why, False
        else:
            if self.session.over and self.launched is not None and self.launched.has_ended():
                why.add(f"; the launched simulator is gone: {self.launched.end_told()}")
            self.broken, self.free = why.message, costs_nothing(why, self.session.machine)
        if self.session.over and self._absence is None:
            self._absence = PortProbe(self.session.server)

    def look_after(self) -> None:
        """Before a reset: keep a launched simulator's log small, and see whether the session has its agents.

        It may have none where threads met while it was built anew, and is broken then.
        """
        if self.launched is not None:
            self.launched.log.rotate()
        if not self.broken and set(self.session.controlled) != {agent.name for agent in self.agents}:
            self.give_up("the session does not control its agents")

    @property
    def mine(self) -> bool:
        """This is the process that made it: a forked child must not speak for its parent."""
        return self.pid == os.getpid()

    def check_process(self) -> None:
        """Raises SessionClosed in a forked child."""
        if not self.mine:
            raise SessionClosed(
                "this environment belongs to the parent process",
                hint="make environments in the process that steps them",
            )

    def disown(self) -> None:
        """In a forked child: the session is the parent's."""
        self.session.disown()
        if self.launched is not None:
            self.launched.disown()
        if self._absence is not None:
            self._absence.close()

    def release(self) -> None:
        """One environment fewer; the last one closes the session."""
        if not self.mine:
            return
        with _lock:
            self.users -= 1
            session = self.session
            if self.users <= 0 and _shared.get(self.key) is self:
                del _shared[self.key]
        if self.users <= 0:
            absence, self._absence = self._absence, None
            if absence is not None:
                absence.close()
            try:
                session.close()
            finally:
                if self.launched is not None:
                    self.launched.stop()
                if self.trace is not None:
                    self.trace.close()

    def rebuild(self) -> None:
        """Leave what is left of the session and join again.

        Raises SessionLost where the budget is spent, and where an agent came back with another interface, or the
        simulator as another kind of server; the next reset asks for them again then. And whatever joining and
        registering raise; LocalProtocolError where another thread does it, too.
        """
        # Else each thread would have a session of its own, of which one is forgotten, with the agent.
        with self._rebuilding:
            self._rebuild()

    def _rebuild(self) -> None:
        self.session.close()
        absence, self._absence = self._absence, None
        free, self.free = self.free, False
        launched = self.launched
        if launched is not None and not launched.alive:
            # How it was started is no reason to start it for ever.
            away = launched.proven
            if absence is not None:
                absence.close()
        else:
            away = (absence is not None and absence.was_away()) or free
        if not away and not self.budget.spend(monotonic()):
            raise SessionLost(
                f"the session with {self.options.simulator} broke again ({self.broken}), "
                f"and {self.budget.capacity} rebuilds are spent",
                hint="find out why it breaks; one more rebuild is allowed each minute",
            )
        if launched is not None and not launched.alive:
            launched.restart()
        give_up = monotonic() + max(self.options.wait, self.options.limits.connect)
        try:
            agents = self._joined_again(give_up, away=away, ended=absence is not None)
        except BaseException as error:
            # Who does not wait for its end, as with Ctrl-C, has it to be done again for the same reason.
            self.free = not isinstance(error, Exception) and self.session.machine.may_say_goodbye
            raise
        self.broken = self._unlike(agents)
        if self.broken:
            # Others may want what these environments cannot use, and so may those that are made anew.
            self.session.close()
            with _lock:
                if _shared.get(self.key) is self:
                    del _shared[self.key]
            raise SessionLost(self.broken, hint="close this environment and make it anew")
        self.agents = agents
        with _lock:
            _shared.setdefault(self.key, self)

    def subscribe(self, tasks: Collection[Task]) -> BlockingSession:
        """Ask the simulator for the events and variables that tasks want, of the session that it returns.

        What goes wrong breaks it: the next reset asks again.
        """
        try:
            self.session.subscribe(tasks)
        except OspBridgeError as error:
            self.give_up(error)
            raise
        return self.session

    def _joined_again(self, give_up: float, *, away: bool, ended: bool) -> tuple[AgentInterface, ...]:
        while True:
            wait = max(give_up - monotonic(), 0.0)
            budget = None if away or self.launched is not None else self.budget
            session = _connect(self.options, self.trace, wait=wait, budget=budget, launched=self.launched)
            session.machine.succeed(self.session.machine)
            with _lock:
                # Whoever closes it meanwhile has not seen this one.
                closed = self.users <= 0
                self.session = session
            if closed:
                session.close()
                raise SessionClosed("this environment was closed")
            try:
                return self._registered_again(give_up if ended else 0.0)
            except (QueryTimeout, SessionLost):
                # It fell silent again, or has gone again, while it was joined.
                ended = ended or bool(self.session.over)
                absence = PortProbe(self.session.server) if self.session.over else None
                self.session.close()
                away = absence is not None and absence.was_away()
                if monotonic() >= give_up or not (away or self.budget.spend(monotonic())):
                    raise

    def _registered_again(self, give_up: float) -> tuple[AgentInterface, ...]:
        names = [agent.name for agent in self.agents]
        return _once_they_are_there(lambda: self.session.register(*names), give_up)

    def _unlike(self, agents: Sequence[AgentInterface]) -> str:
        """Why the tasks of these environments do not fit them any more; empty where they do."""
        found = self.session.profile
        if found.name != self.profile.name:
            return (
                f"{self.options.simulator} came back as a server of profile {found.name!r}, and the environments of "
                f"this session were made for {self.profile.name!r}"
            )
        changed = [repr(new.name) for old, new in zip(self.agents, agents, strict=True) if not new.like(old)]
        if not changed:
            return ""
        several = "s" if len(changed) > 1 else ""
        return (
            f"agent{several} {listed(changed)} of {self.options.simulator} came back with another interface after the "
            "simulator restarted"
        )


_shared: dict[tuple[object, ...], SharedSession] = {}
_threads = threading.local()
_lock = threading.RLock()
"""Held while the sessions are looked through, or one comes or goes, as it may by Python's looking for garbage; never
while anything is waited for."""


def acquire(
    options: ConnectOptions,
    agents: str | Sequence[str] | None,
    trace: Path | None = None,
    *,
    launched: LaunchedSimulator | None = None,
    meant: Sequence[Match] = (),
) -> SharedSession:
    """The session for one agent (a name or glob; None: the only free one), made where there is none yet.

    Or one for all free agents that fit the globs of a sequence, which is never shared, as none with a simulator is that
    was ``launched`` for it. ``meant``: where several agents fit, only these.

    Raises AgentsInUse for a second agent of one simulator in one thread, UsageError where a session that is there has
    another profile or trace, SimulatorNotStarted, and whatever connecting raises.
    """
    alone = agents is None or isinstance(agents, str)
    here = [] if launched is not None else _of_this_thread(options.simulator)
    for shared in here:
        if alone and not shared.exclusive and (agents is None or shared.meant_by(str(agents))):
            _check_profile(shared, options.profile)
            _check_trace(shared, trace)
            shared.users += 1
            return shared
    if here:
        patterns = () if agents is None else (agents,) if isinstance(agents, str) else agents
        raise _in_use(here[0], patterns, alone=alone and not here[0].exclusive)
    shared = _join(options, partial(_chosen, agents=agents, meant=meant), trace, launched)
    shared.exclusive = not alone
    return shared


def _every() -> list[SharedSession]:
    with _lock:
        return list(_shared.values())


def _this_thread() -> object:
    """What stands for it: the system gives the number of a thread that has ended to another one."""
    if not hasattr(_threads, "token"):
        _threads.token = object()
    token: object = _threads.token
    return token


def _of_this_thread(simulator: Endpoint) -> list[SharedSession]:
    thread = _this_thread()
    return [
        shared
        for shared in _every()
        # A session that could not be built anew keeps nobody waiting.
        if shared.key[0] is thread and shared.session.server == simulator and not shared.session.closed
    ]


def _join(
    options: ConnectOptions,
    choose: Callable[[BlockingSession], Sequence[str]],
    trace: Path | None,
    launched: LaunchedSimulator | None = None,
) -> SharedSession:
    with ExitStack() as stack:
        writer = None
        if trace is not None:
            from ospbridge.observe.trace import TraceWriter

            # Not before: where a session is shared, or refused, another environment may write that very file.
            writer = stack.enter_context(TraceWriter(trace))
        session, interfaces = _joined(options, choose, writer, launched)
        stack.pop_all()
    key = (_this_thread(), options.simulator, *(interface.name for interface in interfaces))
    shared = SharedSession(options, session, interfaces, key, session.profile, writer, launched, users=1)
    with _lock:
        _shared[key] = shared
    return shared


def _joined(
    options: ConnectOptions,
    choose: Callable[[BlockingSession], Sequence[str]],
    trace: TraceWriter | None,
    launched: LaunchedSimulator | None,
) -> tuple[BlockingSession, tuple[AgentInterface, ...]]:
    """A session with its agents. A simulator that ends meanwhile is waited for as one that is not there yet."""
    give_up = monotonic() + options.wait
    while True:
        with ExitStack() as undo:
            session = undo.enter_context(
                _connect(options, trace, wait=max(give_up - monotonic(), 0.0), launched=launched)
            )
            try:
                names = _once_they_are_there(
                    partial(choose, session), give_up, unless=partial(_has_agents, session)
                )
                interfaces = session.register(*names)
            except AgentTaken as error:
                raise _of_another_thread(error, session.server, _every()) or error from None
            except SessionLost:
                if launched is not None and launched.has_ended():
                    raise launched.error("ended while it was joined") from None
                if not session.over or monotonic() >= give_up:
                    raise
                absence = PortProbe(session.server)
            else:
                undo.pop_all()
                return session, interfaces
        absence.was_away()


def _has_agents(session: BlockingSession) -> bool:
    return bool(session.core.agents)


def _chosen(
    session: BlockingSession, *, agents: str | Sequence[str] | None, meant: Sequence[Match]
) -> Sequence[str]:
    if agents is not None and not isinstance(agents, str):
        return session.matching(agents, meant=meant)
    names = session.matching(() if agents is None else (agents,), meant=meant)
    if len(names) == 1:
        return names
    asked = "no agent was named" if agents is None else f"{agents!r} fits more than one agent"
    raise AgentNotFound(
        f"{asked}, and {session.server} offers {listed(names)}",
        hint=f"choose one, for instance agent={names[0]!r}",
    )


# --- why an environment cannot be made beside those that this process has already -----------------------------------


def _check_profile(shared: SharedSession, asked: str) -> None:
    """Raises UsageError where the session that is there speaks another one."""
    wanted, spoken = profile_named(asked), shared.profile
    if wanted is not None and wanted is not spoken:
        raise UsageError(
            f"profile={asked!r} was given, but {_taken_before(shared)}, which speaks {spoken.name!r}",
            hint=f"give this one profile={spoken.name!r} or leave it out, or close the earlier one first",
        )


def _check_trace(shared: SharedSession, asked: Path | None) -> None:
    """Raises UsageError where the session that is there writes another one, or none.

    Where none is asked for, one that is written anyway does no harm.
    """
    if asked is None or (shared.trace is not None and shared.trace.path.resolve() == asked.resolve()):
        return
    written = "no trace" if shared.trace is None else f"its trace to {str(shared.trace.path)!r}"
    raise UsageError(
        f"trace={str(asked)!r} was given, but {_taken_before(shared)}, which writes {written}",
        hint="give trace to the environment that is made first, or close that one first",
    )


def _taken_before(shared: SharedSession) -> str:
    return (
        f"an environment made earlier in this thread has agent {shared.agent.name!r} of {shared.options.simulator}, "
        "and this one shares its session"
    )


def _in_use(shared: SharedSession, patterns: Sequence[str], *, alone: bool) -> AgentsInUse:
    """The error for a second environment of a thread, which would wait for the first one.

    ``alone``: each of the two has, or wants, a single agent.
    """
    held = "agents" if len(shared.agents) > 1 else "agent"
    names = listed(repr(agent.name) for agent in shared.agents)
    wanted = ", ".join(map(repr, patterns)) or "whichever is free"
    return AgentsInUse(
        f"an environment of this thread steps {held} {names} of {shared.options.simulator}; "
        f"a second one, for {wanted}, would wait for it for ever",
        # Who has made an environment of several, or is about to, needs no telling that there are such.
        hint=""
        if alone
        else "close that one first, or have one environment for all agents that are to step together; others may "
        "attach to `ospbridge connect`, each from a process of its own",
    )


def _of_another_thread(
    error: AgentTaken, simulator: Endpoint, every: Iterable[SharedSession]
) -> AgentTaken | None:
    """The same with the environments of this process that have these agents; None where it has no such."""
    names = {
        agent.name for shared in every if shared.session.server == simulator for agent in shared.agents
    }.intersection(error.agents)
    if not names:
        return None
    return AgentTaken(
        f"{error.message}; an environment that another thread of this process made has {listed(sorted(names))}",
        hint="close that one first, or use it here too, one thread at a time",
        agents=error.agents,
    )


def _forget_after_fork() -> None:
    """In a forked child: the parent's sessions are the parent's."""
    global _lock  # noqa: PLW0603  # another thread of the parent may have held it
    for shared in _shared.values():
        shared.disown()
    _shared.clear()
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_forget_after_fork)
