"""``ospbridge bench memory``: whether anything grows while an environment steps on and on.

Memory is compared between a tenth of the steps and all of them: what is needed has come by then. There is a reset every
thousand steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.bench.figures import BRIEF
from ospbridge.bench.report import Quantity, Report, combine
from ospbridge.bench.scale_programs import daemon_of, stepped_by
from ospbridge.bench.stage import Stage
from ospbridge.bench.subjects import DIRECT, HUB
from ospbridge.bench.turns import untold
from ospbridge.bench.usage import resident

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.bench.report import Values
    from ospbridge.bench.scale_client import Stepped
    from ospbridge.bench.turns import Told

__all__ = ["GROWN", "measure_memory"]

EPISODE: Final = 1000
"""Steps between resets."""
GROWN: Final = ("client_grown_mb", "daemon_grown_mb")
QUANTITIES: Final = (
    *BRIEF,
    Quantity("client_mb", "CLIENT MB", digits=2),
    Quantity(GROWN[0], "GREW BY", digits=2),
    Quantity("daemon_mb", "DAEMON MB", digits=2),
    Quantity(GROWN[1], "GREW BY", digits=2),
)
"""Memory behind the last step, and how much less it was behind a tenth of them."""


def measure_memory(*, steps: int = 1_000_000, told: Told = untold) -> Report:
    """A direct environment and one at a hub, each so many steps. Raises ProgramFailed where a program fails."""
    told(DIRECT)
    episode = ("--episode", str(EPISODE))
    with Stage(inputs=8, outputs=16) as stage:
        run = {DIRECT: _values(stepped_by(("--simulator", stage.responder, *episode), steps=steps))}
        told(HUB)
        with daemon_of("--simulator", stage.responder) as (daemon, directory):
            sizes: list[int] = []
            client = ("--bridge", f"unix:{directory / 'hub.sock'}", *episode)
            found = stepped_by(client, steps=steps, early=lambda: sizes.append(resident(daemon.process.pid)))
            size = resident(daemon.process.pid)
            daemon_values = {"daemon_mb": size / 1e6, GROWN[1]: (size - sizes[0]) / 1e6}
            run[HUB] = _values(found) | daemon_values
    return Report(
        "memory",
        "Memory behind many steps",
        {"steps": steps},
        QUANTITIES,
        combine([run]),
        notes=("GREW BY: since a tenth of the steps",),
    )


def _values(told: Sequence[Stepped]) -> Values:
    (client,) = told
    grown = client.memory - client.memory_early
    return client.run.values() | {"client_mb": client.memory / 1e6, GROWN[0]: grown / 1e6}
