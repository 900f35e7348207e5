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

from ospbridge.envs.annotating import check_annotates
from ospbridge.envs.direct import DirectSeat
from ospbridge.envs.launching import launch_of, launched_for
from ospbridge.envs.options import MIB
from ospbridge.envs.panel import check_render_mode
from ospbridge.envs.scenarios import EnvScenario
from ospbridge.envs.sharing import SharedSession, acquire, acquire_all, acquire_launched
from ospbridge.envs.terms import Terms, say
from ospbridge.envs.tls_options import files_for, tls_files
from ospbridge.errors import UsageError
from ospbridge.osp.profile import profile_named
from ospbridge.osp.timing import Limits, seconds_of
from ospbridge.transport.addresses import parse_endpoint, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ospbridge.envs.groups.group import DirectGroup, Group
    from ospbridge.envs.groups.hub_group import HubGroup
    from ospbridge.envs.options import Options
    from ospbridge.launch.command import LaunchSpec
    from ospbridge.launch.simulator import LaunchedSimulator
    from ospbridge.session.hub_client import AgentHandle, HubClient

__all__ = ["Joining", "several"]

G = TypeVar("G", bound="Group")
EXAMPLES: Final = {
    "simulator": "127.0.0.1:45454",
    "bridge": "unix:/run/ospbridge/hub.sock",
    "agents": "robot*",
}


class Joining:
    """The options that all kinds have, each of them, but for one or several simulators or bridges.

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
        self._launch = launch_of(options, simulators or bridges)
        if simulators is not None and bridges is not None:
            raise UsageError(
                "both simulator and bridge were given",
                hint="simulator joins directly, bridge goes through a daemon",
            )
        if simulators == () or bridges == ():
            raise UsageError("an empty list of addresses was given", hint="name at least one")
        try:
            self._limits = Limits(
                connect=options["connect_timeout"],
                query=options["query_timeout"],
                step=options["step_timeout"],
                reset=options["reset_timeout"],
                memory=_memory(options["memory_limit"]),
            )
        except ValueError as error:
            limit = str(error).partition(" ")[0]
            raise UsageError(str(error), hint=f"that is {limit}_timeout") from None
        wait, profile, trace = options["wait"], options["profile"], options["trace"]
        seconds = seconds_of(wait)
        if not seconds >= 0:
            raise UsageError(
                f"wait must be a number of seconds, 0 or more, got {wait!r}", hint="0 does not wait at all"
            )
        profile_named(profile)
        if simulators is None and self._launch is None:
            _check_daemons_own(profile, self._limits, trace, options["not_finite"])
        self._tls = tls_files(options["tls_cert"], options["tls_key"], options["tls_ca"], simulator=simulator)
        self._simulators = simulators or ()
        self._bridges = bridges or ()
        self.direct = simulators is not None or self._launch is not None
        """It joins simulators itself."""
        self.addresses: Sequence[str] = self._simulators or self._bridges or ("the daemon",)
        """Where its agents are, for people."""
        self.spin = options["spin"]
        self._rules = EnvScenario(options["scenario"], options["not_finite"])
        self._profile = profile
        self._wait = seconds
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

    # --- one agent -------------------------------------------------------------------------------------------------

    def direct_seat(self, agent: str | None) -> DirectSeat:
        """One agent of the only simulator, taken. Raises what joining raises, and AgentNotFound."""
        self.only_one()
        rules = self._rules
        if self._launch is not None:
            with ExitStack() as undo:
                (launched,) = launched_for(self._launch, 1, undo)
                self.addresses = (str(launched.address),)
                with rules.blamed(agent):
                    shared = acquire_launched(
                        self._launched_terms(launched),
                        rules.agent(agent),
                        self._trace,
                        launched,
                        meant=rules.meant,
                    )
                undo.pop_all()
            return self._direct_seat(shared, shared.terms)
        terms = self._terms(self._simulators[0])
        with rules.blamed(agent):
            shared = acquire(terms, rules.agent(agent), self._trace, meant=rules.meant)
        return self._direct_seat(shared, terms)

    def _direct_seat(self, shared: SharedSession, terms: Terms) -> DirectSeat:
        try:
            (task,) = self._rules.tasks(shared.session, shared.agents)
            return DirectSeat(shared, task, terms)
        except BaseException:
            shared.release()
            raise

    def hub_seat(self, agent: str | None) -> AgentHandle:
        """One agent of the only daemon, taken. Raises what attaching raises, UsageError where it plays another task."""
        self.only_one()
        rules = self._rules
        client = self._client(*self._bridges)
        with rules.blamed(agent):
            seat = client.attach(rules.agent(agent), annotates=self._annotates, meant=rules.meant)
        try:
            rules.compare(
                seat.interface,
                seat.observation_space,
                seat.action_space,
                seat.scenario,
                seat.observation_names,
            )
        except BaseException:
            seat.close()
            raise
        return seat

    # --- several agents --------------------------------------------------------------------------------------------

    def direct_groups(self, agents: str | Sequence[str], wanted: int = 1) -> list[DirectGroup]:
        """All free agents of each simulator that fit, taken. Raises as ``direct_seat`` does.

        Launched ones are as many as it takes for ``wanted`` agents.
        """
        if self._launch is not None:
            return self._launched_groups(self._launch, agents, wanted)
        return _all_or_none(
            partial(self._direct_group, simulator, agents, self._trace_of(at))
            for at, simulator in enumerate(self._simulators)
        )

    def _launched_groups(
        self, spec: LaunchSpec, agents: str | Sequence[str], wanted: int
    ) -> list[DirectGroup]:
        """The first simulator tells how many agents one has; the others start side by side."""
        with ExitStack() as undo:
            groups: list[DirectGroup] = []
            launched = launched_for(spec, 1, undo, of=wanted)
            while launched:
                for simulator in launched:
                    trace = self._trace_of(len(groups))
                    groups.append(self._launched_group(simulator, agents, trace))
                    undo.callback(groups[-1].close)
                each = len(groups[0].interfaces)
                launched = launched_for(spec, wanted // each - len(groups), undo, of=wanted)
            self.addresses = tuple(str(group.shared.terms.simulator) for group in groups)
            undo.pop_all()
        return groups

    def _launched_group(
        self, launched: LaunchedSimulator, agents: str | Sequence[str], trace: Path | None
    ) -> DirectGroup:
        from ospbridge.envs.groups.group import DirectGroup

        rules = self._rules
        with rules.blamed(agents):
            shared = acquire_launched(
                self._launched_terms(launched), self._patterns(agents), trace, launched, meant=rules.meant
            )
        try:
            return DirectGroup(shared, rules.tasks(shared.session, shared.agents))
        except BaseException:
            shared.release()
            raise

    def hub_groups(self, agents: str | Sequence[str]) -> list[HubGroup]:
        """All agents of each daemon that fit, taken. Raises as ``hub_seat`` does."""
        return _all_or_none(partial(self._hub_group, bridge, agents) for bridge in self._bridges or (None,))

    def _direct_group(self, simulator: str, agents: str | Sequence[str], trace: Path | None) -> DirectGroup:
        from ospbridge.envs.groups.group import DirectGroup

        rules = self._rules
        with rules.blamed(agents):
            shared = acquire_all(self._terms(simulator), self._patterns(agents), trace, meant=rules.meant)
        try:
            return DirectGroup(shared, rules.tasks(shared.session, shared.agents))
        except BaseException:
            shared.release()
            raise

    def _hub_group(self, bridge: str | None, agents: str | Sequence[str]) -> HubGroup:
        from ospbridge.envs.groups.hub_group import HubGroup

        rules, annotates = self._rules, self._annotates
        client = self._client(bridge)
        # None named would mean the only free one.
        with rules.blamed(agents):
            attached = client.attach_all(
                self._patterns(agents) or ("*",), annotates=annotates, meant=rules.meant
            )
        group = HubGroup(client, attached, annotates=annotates)
        try:
            for name, interface in group.interfaces.items():
                spaces = group.observation_spaces[name], group.action_spaces[name]
                rules.compare(interface, *spaces, group.scenarios[name], group.observation_names[name])
        except BaseException:
            group.close()
            raise
        return group

    # --- what these are made with ----------------------------------------------------------------------------------

    def _patterns(self, agents: str | Sequence[str]) -> tuple[str, ...]:
        return self._rules.agents(several(agents, "agents") or ())

    def _terms(self, simulator: str) -> Terms:
        named = parse_endpoint(simulator)
        _, server = resolve(named)
        return Terms(server, named, self._profile, self._limits, self.spin, self._wait)

    def _launched_terms(self, launched: LaunchedSimulator) -> Terms:
        """It may still load its agents."""
        wait = max(self._wait, launched.spec.ready)
        return Terms(launched.address, launched.address, self._profile, self._limits, self.spin, wait)

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


def _all_or_none(takes: Iterable[Callable[[], G]]) -> list[G]:
    """The groups; where one cannot be had, those before it are given back."""
    groups: list[G] = []
    with ExitStack() as undo:
        for take in takes:
            groups.append(take())
            undo.callback(groups[-1].close)
        undo.pop_all()
    return groups


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
