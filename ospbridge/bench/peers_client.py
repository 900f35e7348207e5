"""``python -m ospbridge.bench.peers_client``: steps of other ways to an environment in another process.

A process of its own for each, as their libraries start threads and fork. Each environment has the spaces of a
responder's agent, and computes nothing. The output is one JSON line: a ``Run``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
import gymnasium
import msgspec
import numpy as np

from ospbridge.bench.figures import Run, timed

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ASYNC_VECTOR", "DM_ENV_RPC", "Nothing"]

ASYNC_VECTOR: Final = "gymnasium AsyncVectorEnv, 1 environment"
DM_ENV_RPC: Final = "dm_env_rpc"
CONNECT_WITHIN: Final = 20.0
"""Seconds for the server of a peer to answer."""


class Nothing(gymnasium.Env["NDArray[np.float32]", "NDArray[np.float32]"]):
    """An environment that computes nothing."""

    def __init__(self, inputs: int, outputs: int) -> None:
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (inputs,), np.float32)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (outputs,), np.float32)
        self._observation = np.zeros(outputs, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """The one observation there is."""
        return self._observation, {}

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """The same again."""
        return self._observation, 0.0, False, False, {}


def _async_vector(_: str, inputs: int, outputs: int, steps: int, warm_up: int) -> Run:
    """As gymnasium has it by default: shared memory, one process for the environment."""
    envs = gymnasium.vector.AsyncVectorEnv([lambda: Nothing(inputs, outputs)])
    try:
        envs.reset(seed=1)
        actions = np.full((1, inputs), 0.5, np.float32)
        return timed(lambda: envs.step(actions), steps, warm_up, alone=False)
    finally:
        envs.close()


def _dm_env_rpc(address: str, inputs: int, outputs: int, steps: int, warm_up: int) -> Run:
    """By its own connection and environment."""
    from dm_env_rpc.v1 import connection, dm_env_adaptor

    from ospbridge.bench.peers_server import ACTION, OBSERVATION

    with connection.create_secure_channel_and_connect(address, timeout=CONNECT_WITHIN) as joined:
        world = dm_env_adaptor.create_world(joined, {})
        env = dm_env_adaptor.join_world(joined, world, {})
        try:
            observation = env.reset().observation[OBSERVATION]
            assert observation.shape == (outputs,)
            actions = {ACTION: np.full(inputs, 0.5, np.float32)}
            return timed(lambda: env.step(actions), steps, warm_up, alone=False)
        finally:
            env.close()


WAYS: Final = {ASYNC_VECTOR: _async_vector, DM_ENV_RPC: _dm_env_rpc}


@click.command()
@click.argument("name", type=click.Choice(list(WAYS)))
@click.option("--address", default="", help="Of the peer's server, where it has one.")
@click.option("--inputs", type=click.IntRange(1), default=8, help="Numbers of an action.")
@click.option("--outputs", type=click.IntRange(1), default=16, help="Numbers of an observation.")
@click.option("--steps", type=click.IntRange(1), default=2000, help="Steps that count.")
@click.option("--warm-up", type=click.IntRange(0), default=200, help="Steps before.")
def main(*, name: str, address: str, inputs: int, outputs: int, steps: int, warm_up: int) -> None:
    """Step an environment behind the way NAME, and print what it took."""
    click.echo(msgspec.json.encode(WAYS[name](address, inputs, outputs, steps, warm_up)))


if __name__ == "__main__":
    main()
