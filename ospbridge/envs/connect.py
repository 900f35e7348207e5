"""How environments of all kinds find their agents, as their options say: on simulators they join, or on daemons' hubs.

What contradicts itself in the options is told here, before anybody is spoken to. What an environment does with its
agents is the business of its kind. What only one of these ways needs is imported where it is taken.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from gymnasium import logger

from ospbridge.envs.annotations import check_annotates
from ospbridge.envs.conventions import say
from ospbridge.envs.direct import DirectBackend
from ospbridge.envs.options import MIB, files_for, tls_files
from ospbridge.envs.panel import check_render_mode
from ospbridge.envs.scenarios import EnvScenario
from ospbridge.envs.sharing import ConnectOptions, acquire
from ospbridge.errors import UsageError
from ospbridge.launch.command import LaunchSpec, launch_spec
from ospbridge.launch.simulator import LaunchedSimulator, launch
from ospbridge.osp.profile import profile_named
from ospbridge.osp.timing import Limits, seconds_of
from ospbridge.transport.addresses import parse_endpoint, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ospbridge.envs.hub import HubBackend
    from ospbridge.envs.options import Options
    from ospbridge.session.hub_client import HubClient

__all__ = ["Connector", "several"]

B = TypeVar("B", "DirectBackend", "HubBackend")
EXAMPLES: Final = {
    "simulator": "127.0.0.1:45454",
    "bridge": "unix:/run/ospbridge/hub.sock",
    "agents": "robot*",
}
WITHOUT: Final = {
    "batch": "launched simulators do not run under SCHED_BATCH, and real ones may stall: {}",
    "pin": "launched simulators do not run on a core of their own: {}",
}
_told: set[str] = set()
"""Which of these were told, once in a process."""


class Connector:
    """Takes agents as the options say, which all kinds have, of one or several simulators or bridges.

    Raises UsageError and ConfigurationError for what cannot be, and what a scenario raises.
    """

    def __init__(
        self,
        simulator: str | Sequence[str] | None,
        bridge: str | Sequence[str] | None,
        options: Options,
    ) -> None:
        check_render_mode(options["render_mode"])
        check_annotates(options["annotates"], simulator)
        simulators, bridges = several(simulator, "simulator"), several(bridge, "bridge")
        self._launch = _launch_of(options, simulators or bridges)
        if simulators is not None and bridges is not None:
            raise UsageError(
                "both simulator and bridge were given",
                hint="simulator joins directly, bridge goes through a daemon",
            )
        if simulators == () or bridges == ():
            raise UsageError("an empty list of addresses was given", hint="name at least one")
        self._limits = _limits_of(options)
        wait, self._profile, trace = options["wait"], options["profile"], options["trace"]
        self._wait = seconds_of(wait)
        if not self._wait >= 0:
            raise UsageError(
                f"wait must be a number of seconds, 0 or more, got {wait!r}", hint="0 does not wait at all"
            )
        profile_named(self._profile)
        self.direct = simulators is not None or self._launch is not None
        """It joins simulators itself."""
        if not self.direct:
            _check_daemons_own(self._profile, self._limits, trace, options["not_finite"])
        self._tls = tls_files(options["tls_cert"], options["tls_key"], options["tls_ca"], simulator=simulator)
        self._bridges = bridges or ()
        self.addresses: Sequence[str] = simulators or bridges or ("the daemon",)
        """Where its agents are, for people."""
        self.spin = options["spin"]
        self._rules = EnvScenario(options["scenario"], options["not_finite"])
        self._trace = _from_here(trace, "trace")
        self.record = _from_here(options["record"], "record")
        """The directory that episodes are recorded in; None: they are not."""
        self._annotates = bool(options["annotates"])

    def only_one(self) -> None:
        """Raises UsageError where several simulators or daemons were named: only a vector environment has those."""
        if len(self.addresses) > 1:
            name = "simulator" if self.direct else "bridge"
            raise UsageError(
                f"{name} names {len(self.addresses)} addresses, and this environment has agents of one",
                hint="gymnasium.make_vec takes several, if it is given no vectorization_mode",
            )

    def one(self, agent: str | None) -> DirectBackend | HubBackend:
        """One agent of the only simulator or daemon, taken.

        Raises what joining or attaching raises, AgentNotFound, and UsageError where a daemon plays another task.
        """
        self.only_one()
        if not self.direct:
            from ospbridge.envs.hub import attach_one

            client = self._client(*self._bridges)
            with self._rules.blamed(agent):
                asked, meant = self._rules.agent(agent), self._rules.meant
                attached = attach_one(client, asked, annotates=self._annotates, meant=meant)
            return self._compared(attached)
        asked = self._rules.agent(agent)
        if self._launch is None:
            return self._direct(self.addresses[0], asked, self._trace, named=agent)
        with ExitStack() as undo:
            (launched,) = _launched(self._launch, 1, undo)
            self.addresses = (str(launched.address),)
            backend = self._direct(launched, asked, self._trace, named=agent)
            undo.pop_all()
        return backend

    # --- several agents --------------------------------------------------------------------------------------------

    def direct_backends(self, agents: str | Sequence[str], wanted: int = 1) -> list[DirectBackend]:
        """All free agents of each simulator that fit, taken. Raises as ``one`` does.

        Launched ones are as many as it takes for ``wanted`` agents: the first tells how many agents one has, and the
        others start side by side.
        """
        patterns = self._patterns(agents)
        if self._launch is None:
            return _all_or_none(
                partial(self._direct, simulator, patterns, self._trace_of(at), named=agents)
                for at, simulator in enumerate(self.addresses)
            )
        with ExitStack() as undo:
            backends: list[DirectBackend] = []
            launched = _launched(self._launch, 1, undo, of=wanted)
            while launched:
                for simulator in launched:
                    trace = self._trace_of(len(backends))
                    backends.append(self._direct(simulator, patterns, trace, named=agents))
                    undo.callback(backends[-1].close)
                more = wanted // len(backends[0].agents) - len(backends)
                launched = _launched(self._launch, more, undo, of=wanted)
            self.addresses = tuple(str(backend.shared.options.simulator) for backend in backends)
            undo.pop_all()
        return backends

    def hub_backends(self, agents: str | Sequence[str]) -> list[HubBackend]:
        """All agents of each daemon that fit, taken. Raises as ``one`` does."""
        return _all_or_none(partial(self._attached, bridge, agents) for bridge in self._bridges or (None,))

    def _attached(self, bridge: str | None, agents: str | Sequence[str]) -> HubBackend:
        from ospbridge.envs.hub import HubBackend

        rules, annotates = self._rules, self._annotates
        client = self._client(bridge)
        with rules.blamed(agents):
            # None named would mean the only free one.
            attached = client.attach_all(
                self._patterns(agents) or ("*",), annotates=annotates, meant=rules.meant
            )
        return self._compared(HubBackend(client, attached, annotates=annotates))

    def _compared(self, backend: HubBackend) -> HubBackend:
        """The same, which plays the tasks that were asked for; else it is closed."""
        try:
            for name, agent in backend.agents.items():
                spaces = agent.observation_space, agent.action_space
                played = backend.scenarios[name]
                self._rules.compare(agent.interface, *spaces, played, agent.observation_names)
        except BaseException:
            backend.close()
            raise
        return backend

    def _direct(
        self,
        simulator: str | LaunchedSimulator,
        asked: str | Sequence[str] | None,
        trace: Path | None,
        *,
        named: str | Sequence[str] | None,
    ) -> DirectBackend:
        """``asked``: the agents that are meant; ``named``: those that the user named."""
        rules = self._rules
        launched = None if isinstance(simulator, str) else simulator
        options = self._options(simulator)
        with rules.blamed(named):
            shared = acquire(options, asked, trace, launched=launched, meant=rules.meant)
        try:
            return DirectBackend(shared, rules.tasks(shared.session, shared.agents), options)
        except BaseException:
            shared.release()
            raise

    # --- what these are made with ----------------------------------------------------------------------------------

    def _patterns(self, agents: str | Sequence[str]) -> tuple[str, ...]:
        return self._rules.agents(several(agents, "agents") or ())

    def _options(self, simulator: str | LaunchedSimulator) -> ConnectOptions:
        if isinstance(simulator, str):
            named, wait = parse_endpoint(simulator), self._wait
        else:
            # It may still load its agents.
            named, wait = simulator.address, max(self._wait, simulator.spec.ready)
        server = resolve(named) if isinstance(simulator, str) else named
        return ConnectOptions(server, named, self._profile, self._limits, self.spin, wait)

    def _trace_of(self, at: int) -> Path | None:
        """The datagrams of each simulator go to a file of their own: behind the first, NAME.1.SUFFIX and so on."""
        file = self._trace
        return file if file is None or not at else file.with_name(f"{file.stem}.{at}{file.suffix}")

    def _client(self, bridge: str | None = None) -> HubClient:
        from ospbridge.session.hub_client import HubClient

        files = files_for(bridge, self._bridges, self._tls)
        return HubClient.connect(
            bridge, timeout=self._limits.connect, wait=self._wait, spin=self.spin, tls=files, say=say
        )


def _all_or_none(takes: Iterable[Callable[[], B]]) -> list[B]:
    """The backends; where one cannot be had, those before it give their agents back."""
    backends: list[B] = []
    with ExitStack() as undo:
        for take in takes:
            backends.append(take())
            undo.callback(backends[-1].close)
        undo.pop_all()
    return backends


# --- launched simulators ---------------------------------------------------------------------------------------------


def _launch_of(options: Options, addresses: Sequence[str] | None) -> LaunchSpec | None:
    """What is to be launched; None where nothing is. Raises UsageError."""
    given, pin, batch = options["launch"], options["pin"], options["batch"]
    if given is None or given is False:
        if pin != "auto" or batch is not True:
            raise UsageError(
                "pin and batch were given without launch", hint="they say how a launched simulator runs"
            )
        return None
    if addresses:
        raise UsageError(
            f"launch was given, and {addresses[0]} too",
            hint="a launched simulator gets an address of its own; leave out simulator and bridge",
        )
    return launch_spec(given, scenario=options["scenario"], pin=pin, batch=batch)


def _launched(spec: LaunchSpec, count: int, undo: ExitStack, *, of: int = 1) -> list[LaunchedSimulator]:
    """Simulators that listen, which ``undo`` stops. Raises SimulatorNotStarted.

    ``of``: as many the fleet may have. What the system did not allow is warned of.
    """
    simulators = launch(spec, count, of=of) if count > 0 else []
    for simulator in simulators:
        undo.callback(simulator.stop)
        for what, why in simulator.refused.items():
            if what not in _told:
                _told.add(what)
                say(WITHOUT[what].format(why))
    return simulators


# --- options ---------------------------------------------------------------------------------------------------------


def _limits_of(options: Options) -> Limits:
    try:
        return Limits(
            connect=options["connect_timeout"],
            query=options["query_timeout"],
            step=options["step_timeout"],
            reset=options["reset_timeout"],
            memory=_memory(options["memory_limit"]),
        )
    except ValueError as error:
        limit = str(error).partition(" ")[0]
        raise UsageError(str(error), hint=f"that is {limit}_timeout") from None


def _from_here(path: str | None, name: str) -> Path | None:
    """A relative path means the present directory, wherever the process is when the file is opened.

    Raises UsageError where that directory is gone.
    """
    if path is None:
        return None
    try:
        return Path(path).absolute()
    except OSError as error:
        raise UsageError(
            f"{name}={os.fspath(path)!r} is relative to a directory that is not there: {error.strerror}",
            hint="give an absolute path",
        ) from None


def _check_daemons_own(profile: str, limits: Limits, trace: str | None, not_finite: str | None) -> None:
    """Warn of what counts as the daemon has it.

    Raises UsageError for a file that nobody would write, and for what would change the task that the daemon plays.
    """
    if not_finite is not None:
        raise UsageError(
            f"not_finite={not_finite!r} was given, but this environment attaches to a daemon, which plays its own task",
            hint="write not_finite in [agent.observe] of the scenario that the daemon plays, `ospbridge connect "
            "--scenario FILE`; without a scenario it has 'end'",
        )
    if trace is not None:
        raise UsageError(
            f"trace={trace!r} was given, but this environment attaches to a daemon, and a simulator's datagrams are "
            "the daemon's",
            hint="have them written there, `ospbridge connect --trace FILE`, or join the simulator with simulator=...",
        )
    usual = Limits()
    given = [
        f"{name}_timeout={getattr(limits, name):g}"
        for name in ("query", "step", "reset")
        if getattr(limits, name) != getattr(usual, name)
    ]
    if limits.memory != usual.memory:
        given.append(f"memory_limit={limits.memory // MIB}")
    if profile != "auto":
        given.append(f"profile={profile!r}")
    if given:
        logger.warn(
            "not heeded: %s. This environment attaches to a daemon, whose own count; say it there, `ospbridge connect "
            "--step-timeout SECONDS --reset-timeout SECONDS --profile NAME`, or leave it out",
            ", ".join(given),
        )


def _memory(mebibytes: object) -> int:
    """Bytes. Raises UsageError for what is no whole number of 1 or more."""
    if isinstance(mebibytes, bool) or not isinstance(mebibytes, Integral) or mebibytes < 1:
        raise UsageError(
            f"memory_limit must be a whole number of MiB, 1 or more, got {mebibytes!r}",
            hint="it limits the names and types that are kept of a simulator",
        )
    return int(mebibytes) * MIB


def several(given: str | Sequence[str] | None, name: str) -> tuple[str, ...] | None:
    """A setting that may be one or several. Raises UsageError for what is no text, such as a port alone."""
    if given is None:
        return None
    if isinstance(given, str):
        return (given,)
    try:
        found = tuple(given)
    except TypeError:
        found = (given,)  # type: ignore[assignment]  # of a kind that nobody may give
    if not all(isinstance(each, str) for each in found):
        raise UsageError(
            f"{name} is a text, or a list of them, got {given!r}",
            hint=f"for instance {name}={EXAMPLES[name]!r}",
        )
    return found
