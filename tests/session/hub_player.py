"""Plays all agents of a daemon for as long as it can: ``python -m tests.session.hub_player HUB``."""

from __future__ import annotations

import sys

import gymnasium
import numpy as np

import ospbridge

assert ospbridge.__version__

envs = gymnasium.make_vec(
    "ospbridge/Agent-v0",
    num_envs=3,
    bridge=f"unix:{sys.argv[1]}",
    wait=30,
    vectorization_mode="vector_entry_point",
)
envs.reset()
print("up", flush=True)
while True:
    envs.step(np.zeros(envs.action_space.shape or (), np.float32))
