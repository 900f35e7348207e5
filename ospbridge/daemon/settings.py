"""What the daemon is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ospbridge.daemon.lockstep import ResetPolicy
from ospbridge.osp.timing import Limits
from ospbridge.task.plain import PlainTask

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ospbridge.daemon.relay.settings import Upstream
    from ospbridge.interface import Endpoint
    from ospbridge.task.base import Task
    from ospbridge.transport.tls import TlsAddress

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One simulator, one hub."""

    hub: Path
    simulator: Endpoint
    profile: str = "auto"
    agents: tuple[str, ...] = ()
    """Names or globs; none: every agent that is available."""
    limits: Limits = field(default_factory=Limits)
    wait: float | None = None
    """Seconds for which the simulator may be absent; None: for ever."""
    quorum: int = 1
    reset_policy: ResetPolicy = ResetPolicy.ALL
    listen: TlsAddress | None = None
    """Where environments of other hosts attach."""
    spin: bool = True
    trace: Path | None = None
    record: Path | None = None
    """The directory that finished episodes are written to."""
    upstreams: tuple[Upstream, ...] = ()
    """RLlink servers that learn from the agents' experience."""
    make_task: Callable[..., Task] = PlainTask
    """Makes the task of an agent: called with its interface and ``bounded``."""
