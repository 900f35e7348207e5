"""Real messages decode, and what can be written back is the same byte for byte.

Two things are written otherwise, and are compared by what they mean: experience in json, which Ray's client writes
with white space and with the digits of the float64 next to each float32; and an episode step by step, which we send
as whole arrays.
"""

from __future__ import annotations

import json

import numpy as np
import orjson
import pytest

from ospbridge.interface import BoxSpace
from ospbridge.rllink.dialects import JSON, MSGPACK
from ospbridge.rllink.messages import (
    EpisodesAndGetState,
    SetConfig,
)
from ospbridge.rllink.pickled_config import config_in
from tests.rllink.episodes import assert_equal
from tests.rllink.recordings import body_of, decoded, golden, handshake, native_episode

GOLDEN = golden()
HANDSHAKE = handshake()
JSON_EXPERIENCE = "json EPISODES_AND_GET_STATE (2-step discrete episode)"


@pytest.mark.parametrize("name", [name for name in GOLDEN if name != JSON_EXPERIENCE])
def test_each_exact_message_is_written_back_byte_for_byte(name: str) -> None:
    dialect, message = decoded(GOLDEN[name])
    assert dialect.encode(message) == GOLDEN[name]


@pytest.mark.parametrize("name", HANDSHAKE)
def test_a_whole_handshake_is_written_back_byte_for_byte(name: str) -> None:
    dialect, message = decoded(HANDSHAKE[name])
    assert dialect is MSGPACK
    assert dialect.encode(message) == HANDSHAKE[name]


def test_experience_in_json_differs_in_white_space_only_where_digits_are_short() -> None:
    _, message = decoded(GOLDEN[JSON_EXPERIENCE])
    ours = body_of(JSON.encode(message))
    assert json.dumps(orjson.loads(ours)).encode() == body_of(GOLDEN[JSON_EXPERIENCE])


def test_an_episode_of_rays_own_client_is_read_and_comes_back_as_whole_arrays() -> None:
    dialect, message = decoded(native_episode())
    assert isinstance(message, EpisodesAndGetState)
    (fragment,) = message.fragments
    assert fragment.id == "aab9d551f76d49fe9f6457fc6219b6ea"
    assert fragment.observations.shape == (4, 4)
    assert fragment.observations[1].tolist() == [1, 1, 1, 1]
    assert fragment.actions.tolist() == [1, 1, 1]
    assert fragment.rewards.tolist() == [1, 1, 1]
    assert fragment.action_logp is not None
    assert fragment.action_logp.tolist() == np.full(3, -0.69, np.float32).tolist()
    assert (fragment.terminated, fragment.t) == (True, 3)
    again = dialect.decode(body_of(dialect.encode(message)))
    assert isinstance(again, EpisodesAndGetState)
    assert_equal(fragment, again.fragments[0])


def test_the_settings_are_found_in_the_pickle_without_unpickling_it() -> None:
    _, message = decoded(HANDSHAKE["s2c SET_CONFIG"])
    assert isinstance(message, SetConfig)
    assert message.pickled is not None
    found = config_in(message.pickled)
    assert found.algorithm == "PPO"
    assert (found.module, found.unfamiliar) == ("ray.rllib.algorithms.ppo.ppo.PPOConfig", "")
    assert found.connectors == ()
    assert found.env_steps_per_sample == found.train_batch_size_per_learner == 1000
    assert (found.num_env_runners, found.num_envs_per_env_runner) == (0, 1)
    assert found.rollout_fragment_length is None
    assert found.batch_mode == "truncate_episodes"
    assert (found.normalize_actions, found.clip_actions) == (True, False)
    model = found.model
    assert (model.fcnet_hiddens, model.fcnet_activation) == ((64, 64), "tanh")
    assert (model.head_fcnet_hiddens, model.head_fcnet_activation) == ((), "relu")
    assert (model.vf_share_layers, model.free_log_std, model.use_lstm) == (False, False, False)
    assert isinstance(found.observation_space, BoxSpace)
    assert found.observation_space.high.tolist() == [np.inf] * 5
    assert isinstance(found.action_space, BoxSpace)
    assert found.action_space.low.tolist() == [-1, -1]
    assert found.action_space.high.tolist() == [1, 1]
