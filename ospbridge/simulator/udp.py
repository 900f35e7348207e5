"""A world behind the server machine, on UDP: what `ospbridge sim` runs. Sockets and loop are those of `UdpServer`."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

from ospbridge.errors import ConfigurationError
from ospbridge.interface import DEFAULT_PORT
from ospbridge.osp.profile import DOCUMENT, Profile
from ospbridge.osp.server import Faults, ServerMachine
from ospbridge.simulator.checking import check_world
from ospbridge.simulator.serving import UdpServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.osp.world import World
    from ospbridge.simulator.faults import FaultPlan

__all__ = ["LOST_RESETS", "UdpSimulator"]

LOST_RESETS: Final = 1 / 300
"""How often a stalling simulator loses a reset that directly follows another, as a real server does under load."""


class UdpSimulator(UdpServer):
    """Serves ``world`` at ``host``:``port`` (0 picks a port), in a background thread where it is a context manager.

    ``profile``: as which kind of server. ``stall``: probability that a completion is delayed by 50 ms, and that a step
    of a NERD server runs 5 ms after its last request, as a real server's now and then do. ``lose_reset``: probability
    that a reset directly behind another is acknowledged and never runs; by default ``LOST_RESETS`` where a NERD server
    stalls, else 0. ``faults``: what happens to datagrams on their way. ``ledger``: called with a record of each step
    and reset that ran. ``report``: called at most once a second with the numbers of ignored datagrams by kind, when
    there were new ones. ``spin``: whether to poll before sleeping; by default where a core is to spare and ``run`` has
    a process of its own. ``max_handlers``: how many clients may be connected.

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
        lose_reset: float | None = None,
        faults: FaultPlan | None = None,
        ledger: Callable[[dict[str, Any]], None] | None = None,
        report: Callable[[dict[str, int]], None] | None = None,
        spin: bool | None = None,
        max_handlers: int = 64,
    ) -> None:
        if not isinstance(profile, Profile):
            raise ConfigurationError(
                f"profile must be one of ospbridge.osp.profile, got {profile!r}",
                hint="from ospbridge.osp.profile import DOCUMENT, NERD",
            )
        if lose_reset is None:
            lose_reset = LOST_RESETS if stall > 0.0 and profile.loses_wakeups else 0.0
        for name, value in (("stall", stall), ("lose_reset", lose_reset)):
            if not 0.0 <= value <= 1.0:
                raise ConfigurationError(f"{name} must be a probability in [0, 1], got {value}")
        check_world(world, profile)
        seed = 0 if faults is None else faults.seed
        self.machine = ServerMachine(
            world,
            profile,
            faults=Faults(
                stall=_chance(stall, f"{seed}/stall"),
                late=_chance(stall, f"{seed}/late"),
                lose_reset=_chance(lose_reset, f"{seed}/reset"),
            ),
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


def _chance(probability: float, seed: str) -> Callable[[], bool]:
    """What happens with that probability, in a random sequence of its own."""
    draw = Random(seed).random
    return lambda: draw() < probability
