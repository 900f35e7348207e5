"""A world that announces normalised numbers, and sends them raw."""

from __future__ import annotations

from ospbridge.simulator.synthetic import SyntheticWorld

__all__ = ["RawWorld"]


class RawWorld(SyntheticWorld):
    """Its sensors and infos say millimetres where it announces metres, in [-1, 1]: from 0.98 on in the first step."""

    def step(self) -> None:
        super().step()
        for agent in self.agents:
            agent.outputs[:] *= 1000.0
            agent.infos[:] *= 1000.0
