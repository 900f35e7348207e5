"""The client of RLlink that Ray brings as an example, with its own CartPole: ``python -m tests.peers.own_client PORT``.

It needs the interpreter that has Ray, and never ends by itself.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray

if ray.__version__.startswith(("2.47.", "2.48.")):
    from ray.rllib.env.tcp_client_inference_env_runner import _dummy_client as play
else:
    from ray.rllib.examples.envs.classes.utils.dummy_external_client import _dummy_external_client as play

if __name__ == "__main__":
    play(int(sys.argv[1]))
