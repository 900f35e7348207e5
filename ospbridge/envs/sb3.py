"""A vector environment of ospbridge for Stable-Baselines3, which has a vector interface of its own.

Several agents or simulators, one learner, requests to all simulators out before any answer is read:
``OspVecEnv.make("ospbridge/CartPole-v0", num_envs=8, simulator=[...])``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, Unpack

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from ospbridge.envs.options import Options, spelled_out
from ospbridge.envs.vector import OspVectorEnv
from ospbridge.errors import ConfigurationError, UsageError

try:
    from stable_baselines3.common.vec_env import VecEnv
except ImportError as error:
    raise ConfigurationError(
        f"Stable-Baselines3 cannot be imported: {error}", hint="pip install 'ospbridge[sb3]'"
    ) from None

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gymnasium.vector import VectorEnv
    from numpy.typing import NDArray

__all__ = ["OspVecEnv"]


class OspVecEnv(VecEnv):  # type: ignore[misc,unused-ignore]  # untyped where it is not installed
    """A ``VecEnv`` of Stable-Baselines3, for many agents. Make one with ``OspVecEnv.make``.

    ``env`` must be an ``OspVectorEnv`` whose autoreset mode is SAME_STEP: Stable-Baselines3 knows no other.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        if not isinstance(env, OspVectorEnv):
            raise UsageError(
                f"OspVecEnv takes a vector environment of ospbridge as it was made, got {env}",
                hint="wrappers of Stable-Baselines3, such as VecNormalize, go around OspVecEnv; those of gymnasium "
                "have no place",
            )
        if env.metadata.get("autoreset_mode") is not AutoresetMode.SAME_STEP:
            raise UsageError(
                f"autoreset mode {env.metadata.get('autoreset_mode')} does not fit Stable-Baselines3",
                hint="make it with autoreset_mode='SameStep', or use OspVecEnv.make",
            )
        self.env = env
        self._seeds_asked: list[int | None] | None = None
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

    @classmethod
    @spelled_out
    def make(
        cls,
        env_id: str = "ospbridge/Agent-v0",
        *,
        num_envs: int = 1,
        simulator: str | Sequence[str] | None = None,
        agents: str | Sequence[str] = (),
        bridge: str | Sequence[str] | None = None,
        copy: bool = True,
        **options: Unpack[Options],
    ) -> Self:
        """Make a vector environment and wrap it; ``options`` are those of ``gymnasium.make_vec`` for ``env_id``."""
        return cls(
            gymnasium.make_vec(
                env_id,
                num_envs,
                vectorization_mode="vector_entry_point",
                autoreset_mode=AutoresetMode.SAME_STEP,
                simulator=simulator,
                agents=agents,
                bridge=bridge,
                copy=copy,
                **options,
            )
        )

    def reset(self) -> NDArray[np.float32]:
        """Reset all worlds, with the seeds that ``seed`` was given."""
        seeds, self._seeds_asked = self._seeds_asked, None
        observations, infos = self.env.reset(seed=seeds)
        self.reset_infos = self._told_apart(infos)
        return observations

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Environment i is given ``seed + i`` at the next reset."""
        self._seeds_asked = [None if seed is None else seed + at for at in range(self.num_envs)]
        return self._seeds_asked

    def step_async(self, actions: NDArray[Any]) -> None:
        """All requests out; ``step_wait`` reads the answers."""
        self.env.send(actions)

    def step_wait(
        self,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Observations (of the next episode where one ended), rewards, whether episodes ended, infos."""
        observations, rewards, terminations, truncations, infos = self.env.recv()
        ended = terminations | truncations
        told = self._told_apart(infos)
        for at in np.flatnonzero(ended):
            last = _info_of(infos["final_info"], at)
            told[at] = last | told[at]
            told[at]["terminal_observation"] = infos["final_obs"][at]
            told[at]["TimeLimit.truncated"] = bool(truncations[at] and not terminations[at])
            told[at]["reason"] = last["reason"]
        return observations, rewards.astype(np.float32), ended, told

    def _told_apart(self, infos: dict[str, Any]) -> list[dict[str, Any]]:
        """One dict each; of a step that ends no episode only what a learner can use is carried over."""
        told: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for key in ("osp_seed", "reason"):
            if key in infos:
                columns = zip(told, infos[f"_{key}"].tolist(), infos[key].tolist(), strict=True)
                for mine, tells, value in columns:
                    if tells:
                        mine[key] = value
        return told

    def close(self) -> None:
        """Give all agents back."""
        self.env.close()

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        """One picture of each environment; they must have been made with ``render_mode="rgb_array"``."""
        return list(self.env.render())

    def get_attr(self, attr_name: str, indices: int | Iterable[int] | None = None) -> list[Any]:
        """An attribute of the vector environment, for each index alike."""
        value = getattr(self.env, attr_name)
        return [value for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: int | Iterable[int] | None = None) -> None:
        """The environments of one vector have no attributes of their own."""
        raise UsageError(
            f"{attr_name!r} cannot be set for single environments of a vector", hint="set it when making them"
        )

    def env_method(
        self, method_name: str, *args: Any, indices: int | Iterable[int] | None = None, **kwargs: Any
    ) -> list[Any]:
        """Call a method of the vector environment once; its result for each index alike."""
        result = getattr(self.env, method_name)(*args, **kwargs)
        return [result for _ in self._get_indices(indices)]

    def env_is_wrapped(
        self, wrapper_class: type[Any], indices: int | Iterable[int] | None = None
    ) -> list[bool]:
        """Single environments of a vector are never wrapped."""
        return [False for _ in self._get_indices(indices)]


def _info_of(infos: dict[str, Any], at: np.integer[Any]) -> dict[str, Any]:
    """The info of one environment, in infos of gymnasium's layout."""
    return {
        key: _info_of(column, at) if isinstance(column, dict) else column[at]
        for key, column in infos.items()
        if f"_{key}" in infos and infos[f"_{key}"][at]
    }
