"""The environment ids, registered once however often this is called."""

from __future__ import annotations

__all__ = ["AGENT_ID", "register_envs"]

AGENT_ID = "ospbridge/Agent-v0"


def register_envs() -> None:
    """Register every id with gymnasium, those that are not registered yet."""
    from gymnasium.envs.registration import register, registry

    if AGENT_ID not in registry:
        register(
            id=AGENT_ID,
            entry_point="ospbridge.envs.agent_env:AgentEnv",
            # Simulators may draw noise that no seed reaches.
            nondeterministic=True,
        )
