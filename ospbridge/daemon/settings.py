"""What the daemon is told when it starts: of each simulator, and of the upstreams and whom they learn from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ospbridge.daemon.lockstep import ResetPolicy
from ospbridge.osp.timing import Limits
from ospbridge.task.plain import PlainTask

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ospbridge.daemon.relay.link import Upstream
    from ospbridge.interface import Endpoint, Match
    from ospbridge.launch.command import LaunchSpec
    from ospbridge.task.base import Task
    from ospbridge.task.scenario import Scenario
    from ospbridge.transport.tls import TlsAddress

__all__ = ["Feeding", "Settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One simulator, one hub."""

    hub: Path
    simulator: Endpoint
    """Port 0 of one that is launched: a free one is chosen."""
    name: str = ""
    """What it is called where there are several; empty for the only one."""
    profile: str = "auto"
    agents: tuple[str, ...] = ()
    """Names or globs; none: every agent that is available."""
    limits: Limits = field(default_factory=Limits)
    wait: float | None = None
    """Seconds for which the simulator may be absent, or without the agents; 0: one try.

    None: for ever, but agents that a simulator with others lacks, or that are taken, are not waited for.
    """
    force_restart: bool = False
    """Whether every client of the simulator may be disconnected, to free agents that others hold."""
    quorum: int = 1
    reset_policy: ResetPolicy = ResetPolicy.ALL
    listen: TlsAddress | None = None
    """Where environments of other hosts attach."""
    spin: bool = True
    trace: Path | None = None
    record: Path | None = None
    """The directory that finished episodes are written to."""
    scenario: Scenario | None = None
    """Agents that it matches play its tasks."""
    make_task: Callable[..., Task] = PlainTask
    """Makes the task of an agent where there is no scenario: called with its interface and ``bounded``."""
    meant: tuple[Match, ...] = ()
    """Whom the scenario has tasks for; none: there is no scenario."""
    launch: LaunchSpec | None = None
    """How the simulator is started; None: somebody else starts it."""

    @property
    def title(self) -> str:
        """The simulator for eyes: its address, and its name where it has one."""
        return f"{self.simulator} ({self.name})" if self.name else str(self.simulator)

    @property
    def whose(self) -> dict[str, str]:
        """What a line of the log says of the simulator where it says its address."""
        address = str(self.simulator)
        return {"simulator": self.name, "address": address} if self.name else {"simulator": address}


@dataclass(frozen=True, slots=True)
class Feeding:
    """An RLlink server that learns from the experience of some simulators' agents."""

    upstream: Upstream
    simulators: tuple[str, ...] = ()
    """Their names; none: all of the daemon."""
