"""Simulated robots as environments of Gymnasium, PettingZoo, Stable-Baselines3 and RLlib, under these ids."""

from __future__ import annotations

from typing import Final

__all__ = ["AGENT_ID", "SCENARIO_IDS", "register_envs"]

AGENT_ID = "ospbridge/Agent-v0"

#: The shipped scenarios and whether noise is to be expected; as their files say, which are not read for an import.
SCENARIO_IDS: Final[dict[str, tuple[str, bool]]] = {
    "ospbridge/CartPole-v0": ("cartpole", False),
    "ospbridge/Pendulum-v0": ("pendulum", False),
    "ospbridge/ArenaAvoid-v0": ("arena_avoid", False),
    "ospbridge/ArenaTwo-v0": ("arena_two", False),
    "ospbridge/HalfCheetah-v0": ("half_cheetah", False),
    "ospbridge/ASeriesStand-v0": ("aseries_stand", False),
    "ospbridge/ASeriesWalk-v0": ("aseries_walk", False),
    "ospbridge/Volksbot-v0": ("volksbot", False),
}


def register_envs() -> None:
    """Register every id with gymnasium, once however often this is called.

    Without the checker of gymnasium 1.4: where the first reset raised, it raises in each step, which the world made.
    """
    from gymnasium.envs.registration import register, registry

    if AGENT_ID not in registry:
        register(
            id=AGENT_ID,
            entry_point="ospbridge.envs.agent_env:AgentEnv",
            vector_entry_point="ospbridge.envs.vector:OspVectorEnv",
            # Simulators may draw noise that no seed reaches.
            nondeterministic=True,
            disable_env_checker=True,
        )
    for env_id, (scenario, nondeterministic) in SCENARIO_IDS.items():
        if env_id not in registry:
            register(
                id=env_id,
                entry_point="ospbridge.envs.agent_env:AgentEnv",
                vector_entry_point="ospbridge.envs.vector:OspVectorEnv",
                nondeterministic=nondeterministic,
                kwargs={"scenario": scenario},
                disable_env_checker=True,
            )
