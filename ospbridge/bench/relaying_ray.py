"""The client of RLlink that Ray brings as an example, for its own interpreter: nothing of ospbridge is imported.

``PYTHON relaying_ray.py make CONFIG WEIGHTS STEPS`` writes the settings and the weights that such a client is
sent: PPO of 64 x 64 for CartPole. ``PYTHON relaying_ray.py play PORT`` plays CartPole in its own process, and never
ends by itself. Ray 2.49 or later.
"""

import os
import sys

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")


def make(config_file: str, weights_file: str, steps: int) -> None:
    """What a server of Ray's would send."""
    import gymnasium
    import numpy as np
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.rllib.env.external import env_runner_server_for_external_inference as rays_server

    config = (
        PPOConfig()
        .environment(
            observation_space=gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32),
            action_space=gymnasium.spaces.Discrete(2),
        )
        .env_runners(num_env_runners=0, rollout_fragment_length=steps)
        .training(train_batch_size_per_learner=steps)
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], vf_share_layers=True))
    )
    module = config.get_rl_module_spec().build()
    np.savez(weights_file, **module.get_state(inference_only=True))
    with open(config_file, "wb") as file:  # noqa: PTH123
        # In the way in which Ray's own server sends them.
        file.write(rays_server.pickle.dumps(config))


def play(port: int) -> None:
    """Ray's own loop."""
    from ray.rllib.examples.envs.classes.utils.dummy_external_client import _dummy_external_client

    _dummy_external_client(port)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        play(int(sys.argv[2]))
