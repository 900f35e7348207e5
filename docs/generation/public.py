"""What of the package programs may rely on, by purpose: the list behind the page of the Python library.

Short on purpose. What a page of the documentation imports must stand here; a test checks it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["SECTIONS", "Listed", "Section"]


@dataclass(frozen=True, slots=True)
class Listed:
    """A class, function or constant that programs may import.

    ``members``: methods and attributes of a class, in the order of the page; without any, its public fields.
    ``called``: whether programs call the class itself. ``more``: what else the page says of it.
    """

    module: str
    name: str
    members: tuple[str, ...] = ()
    called: bool = False
    more: str = ""

    @property
    def path(self) -> str:
        """As it is imported."""
        return f"{self.module}.{self.name}"


@dataclass(frozen=True, slots=True)
class Section:
    """What serves one purpose, with what is to be said of all of it."""

    title: str
    text: str
    listed: tuple[Listed, ...]


_SESSION: Final = (
    *(
        "connect",
        "close",
        "agents",
        "describe",
        "matching",
        "register",
        "deregister",
        "reset",
        "step",
        "step_one",
    ),
    *("audit", "values", "get", "set", "watch", "register_event", "deregister_event", "pop_notices"),
    *("restart_communication", "server", "profile", "controlled", "closed", "freed"),
)

SECTIONS: Final = (
    Section(
        "Join a simulator",
        "A session is a client of a simulator: [Speak OSP from a program of your own](../how-to/program.md).",
        (
            Listed("ospbridge.session.blocking", "BlockingSession", _SESSION),
            Listed(
                "ospbridge.session.trio_session",
                "TrioSession",
                ("connect", "aclose"),
                more=(
                    "It has the methods and attributes above, except `step_one` and `freed`. Those that ask the "
                    "simulator are awaited: `await session.step(actions)`."
                ),
            ),
            Listed("ospbridge.osp.timing", "Limits", called=True),
            Listed("ospbridge.observe.trace", "TraceWriter", ("close",), called=True),
        ),
    ),
    Section(
        "What a simulator tells",
        "These are plain data; sessions return them.",
        (
            Listed("ospbridge.interface", "Endpoint", called=True),
            Listed("ospbridge.interface", "AgentEntry"),
            Listed("ospbridge.interface", "AgentInterface"),
            Listed("ospbridge.interface", "InterfaceValue", called=True),
            Listed("ospbridge.interface", "Match", called=True),
            Listed("ospbridge.interface", "StepOutcome"),
            Listed("ospbridge.interface", "ValueEntry"),
            Listed("ospbridge.interface", "ValueReading"),
            Listed("ospbridge.osp.notices", "Notice"),
            Listed("ospbridge.osp.notices", "Anomaly"),
            Listed("ospbridge.osp.notices", "WorldReset"),
        ),
    ),
    Section(
        "Use a daemon",
        (
            "A client of a daemon drives one of its agents, or [watches agents](../how-to/observe.md) that others "
            "drive. The daemon runs the agents' [scenarios](../how-to/scenarios.md), so observations and actions are "
            "those of an environment."
        ),
        (
            Listed(
                "ospbridge.session.hub_client",
                "HubClient",
                ("connect", "observe", "status", "close"),
            ),
            Listed(
                "ospbridge.envs.hub",
                "AgentHandle",
                ("attach", "reset", "step", "close", "interface", "observation_space", "action_space"),
            ),
            Listed("ospbridge.interface", "Feedback"),
            Listed("ospbridge.interface", "BoxSpace", called=True),
            Listed("ospbridge.interface", "DiscreteSpace", called=True),
            Listed(
                "ospbridge.session.hub_client",
                "AgentObserver",
                ("take", "interface", "observation_space", "action_space", "dropped"),
            ),
            Listed("ospbridge.session.hub_client", "ObservedMoment"),
            Listed("ospbridge.hub.replies", "Kind"),
            Listed(
                "ospbridge.hub.status",
                "StatusReply",
                ("ready", "simulator", "connection", "profile", "agents"),
            ),
            Listed("ospbridge.hub.status", "AgentStatus"),
            Listed("ospbridge.transport.tls", "TlsFiles", called=True),
        ),
    ),
    Section(
        "Environments",
        "[Environments](environments.md) lists their ids, arguments and infos.",
        (
            Listed("ospbridge.envs.parallel", "parallel_env"),
            Listed("ospbridge.envs.sb3", "OspVecEnv", ("make",)),
            Listed("ospbridge.envs.rllib", "register"),
            Listed("ospbridge.envs.rllib", "spaces"),
        ),
    ),
    Section(
        "Read recordings and traces",
        "[Record episodes](../how-to/record.md) and [Record traces](../how-to/traces.md) say how they are made.",
        (
            Listed("ospbridge.record.reading", "read_recording"),
            Listed("ospbridge.record.reading", "recorded_files"),
            Listed("ospbridge.record.episode", "read_episode"),
            Listed("ospbridge.record.episode", "RecordedEpisode"),
            Listed("ospbridge.record.export", "export_minari"),
            Listed("ospbridge.plot.choosing", "plot"),
            Listed("ospbridge.plot.looks", "Looks", called=True),
            Listed("ospbridge.observe.trace", "read_trace"),
            Listed("ospbridge.observe.trace", "TraceRecord"),
            Listed("ospbridge.observe.trace", "Direction"),
        ),
    ),
    Section(
        "Act from a policy",
        "[Act from a trained policy](../how-to/policy-files.md) has a program.",
        (
            Listed("ospbridge.policy.files", "read_policy"),
            Listed("ospbridge.policy.acting", "Policy", ("load", "act"), called=True),
            Listed("ospbridge.policy.acting", "Decision"),
        ),
    ),
    Section(
        "Write a task",
        "[Define what an agent learns](../how-to/scenarios.md#when-expressions-are-not-enough) has examples.",
        (
            Listed(
                "ospbridge.task.scenario_task",
                "ScenarioTask",
                (
                    *("inputs", "observe", "judge", "restart", "start_values"),
                    *("agent", "events", "values", "action_repeat", "settle_steps", "neutral"),
                    *("observation_space", "action_space"),
                ),
            ),
        ),
    ),
    Section(
        "Write a simulator",
        "[Write a simulator of your own](../how-to/own-simulator.md) has one of twenty lines.",
        (
            Listed(
                "ospbridge.simulator.udp",
                "UdpSimulator",
                ("run", "stop_soon", "start", "stop", "address"),
                called=True,
            ),
            Listed(
                "ospbridge.osp.world",
                "World",
                ("agents", "reset", "step", "variables", "events", "take_events", "time_step"),
            ),
            Listed("ospbridge.osp.world", "WorldAgent", ("inputs", "outputs", "infos"), called=True),
            Listed("ospbridge.osp.repository", "double_variable"),
            Listed("ospbridge.osp.repository", "int_variable"),
            Listed("ospbridge.osp.repository", "bool_variable"),
            Listed("ospbridge.osp.repository", "text_variable"),
            Listed("ospbridge.simulator.faults", "FaultPlan", called=True),
            Listed(
                "ospbridge.osp.profile",
                "DOCUMENT",
                more="The profile of servers that follow the text of OSP 1.1.",
            ),
            Listed("ospbridge.osp.profile", "NERD", more="The profile of servers of the NERD toolkit."),
        ),
    ),
    Section(
        "Errors",
        (
            "[Exit codes](exit-codes.md) lists all errors of `ospbridge.errors`, and when they are raised. Wrong types "
            "may also raise Python's own errors."
        ),
        (Listed("ospbridge.errors", "OspBridgeError", ("message", "hint", "lines", "exit_code")),),
    ),
)
