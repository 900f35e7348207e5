"""A world in which every deviation can be tried."""

from __future__ import annotations

from ospbridge.osp.server.repository import double_variable
from ospbridge.simulator.arena import ArenaWorld


def roomy_world() -> ArenaWorld:
    """Two robots, and more variables than the answer of a NERD server holds ids."""
    world = ArenaWorld(2)
    world.variables = [
        *world.variables,
        *(double_variable(f"/Sim/Spare/{number:03d}", lambda: 0.0) for number in range(300)),
    ]
    return world
