"""A world behind the server machine, on UDP: what `ospbridge sim` runs. Sockets and loop are those of `UdpServer`."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from ospbridge.errors import ConfigurationError
from ospbridge.interface import DEFAULT_PORT
from ospbridge.osp.profile import DOCUMENT, Profile
from ospbridge.osp.server.machine import ServerMachine
from ospbridge.simulator.checking import check_world
from ospbridge.simulator.serving import UdpServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.osp.world import World
    from ospbridge.simulator.faults import FaultPlan

__all__ = ["UdpSimulator"]


class UdpSimulator(UdpServer):
    """Serves ``world`` at ``host``:``port`` (0 picks a port), in a background thread where it is a context manager.

    ``profile``: as which kind of server. ``stall``: probability that a completion is delayed by 50 ms, as a real
    server's now and then is. ``faults``: what happens to datagrams on their way. ``ledger``: called with a record of
    each step and reset that ran. ``report``: called at most once a second with the numbers of ignored datagrams by
    kind, when there were new ones. ``spin``: whether to poll before sleeping; by default where a core is to spare and
    ``run`` has a process of its own. ``max_handlers``: how many clients may be connected.

    Raises ConfigurationError if the address cannot be had, or the world cannot be told in OSP.
    """

    def __init__(
        self,
        world: World,
        *,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        profile: Profile = DOCUMENT,
        stall: float = 0.0,
        faults: FaultPlan | None = None,
        ledger: Callable[[dict[str, Any]], None] | None = None,
        report: Callable[[dict[str, int]], None] | None = None,
        spin: bool | None = None,
        max_handlers: int = 64,
    ) -> None:
        if not 0.0 <= stall <= 1.0:
            raise ConfigurationError(f"stall must be a probability in [0, 1], got {stall}")
        if not isinstance(profile, Profile):
            raise ConfigurationError(
                f"profile must be one of ospbridge.osp.profile, got {profile!r}",
                hint="from ospbridge.osp.profile import DOCUMENT, NERD",
            )
        check_world(world, profile)
        stalls = Random(f"{0 if faults is None else faults.seed}/stall")
        self.machine = ServerMachine(
            world,
            profile,
            stall=(lambda: stalls.random() < stall) if stall > 0.0 else None,
            ledger=ledger,
            max_handlers=max_handlers,
        )
        super().__init__(
            self.machine,
            host=host,
            port=port,
            faults=faults,
            report=report,
            spin=spin,
            deaf_after_closed_port=profile.deaf_after_closed_port,
        )
