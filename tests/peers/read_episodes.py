"""RLlib's own code reads our episodes back equal, and ours reads RLlib's.

A program, not a test: it needs ``ray[rllib]`` of release 2.49 or later, torch and msgpack-numpy, which have a virtual
environment of their own. Each message goes through a pair of sockets, read and written by RLlib's functions for
RLlink. Prints one JSON line per episode, and ends with 1 where any differs.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import numpy as np
import ray
from ray.rllib.env.external.rllink import RLlink, get_rllink_message, send_rllink_message
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

from ospbridge.rllink.checking import RLLIB, check_fragments
from ospbridge.rllink.cutting import cut
from ospbridge.rllink.dialects import MSGPACK
from ospbridge.rllink.fragments import EpisodeFragment
from ospbridge.rllink.framing import Deframer
from ospbridge.rllink.messages import EpisodesAndGetState, GetConfig, GetState, Ping, SetState
from ospbridge.rllink.weights import ModuleWeights

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT = 10.0
STEPS = 50
KINDS = {"discrete": 0, "continuous": 3}
ARRAYS = ("observations", "actions", "rewards", "action_dist_inputs", "action_logp")


def made(name: str, *, actions: int, terminated: bool = False, truncated: bool = False) -> EpisodeFragment:
    """``actions`` numbers of a box; 0: one of two choices."""
    rng = np.random.default_rng(len(name))
    return EpisodeFragment(
        id=name,
        observations=rng.normal(size=(STEPS + 1, 6)).astype(np.float32),
        actions=rng.normal(size=(STEPS, actions)) if actions else rng.integers(0, 2, STEPS),
        rewards=rng.normal(size=STEPS).astype(np.float32),
        action_dist_inputs=rng.normal(size=(STEPS, 2 * actions or 2)).astype(np.float32),
        action_logp=-rng.random(STEPS, dtype=np.float32),
        terminated=terminated,
        truncated=truncated,
    )


def episodes() -> list[EpisodeFragment]:
    found = []
    for kind, actions in KINDS.items():
        found += [
            made(f"{kind}, finished", actions=actions, terminated=True),
            made(f"{kind}, truncated", actions=actions, truncated=True),
            *cut(made(f"{kind}, continued", actions=actions, terminated=True), 20, continued=True),
        ]
    return found


def to_rllib(data: bytes | bytearray) -> tuple[Any, dict[str, Any]]:
    """What RLlib reads of our bytes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(WAIT)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * len(data) + 65536)
        ours.sendall(data)
        kind, body = get_rllink_message(theirs)
        return kind, body


def from_rllib(message: dict[str, Any]) -> Any:
    """What we read of RLlib's bytes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(WAIT)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1024 * 1024)
        send_rllink_message(theirs, message)
        theirs.close()
        data = b"".join(iter(lambda: ours.recv(65536), b""))
    (body,) = Deframer().bodies(data)
    return MSGPACK.decode(body)


def differences(one: EpisodeFragment, other: Any) -> list[str]:
    """The fields in which another fragment differs, or an episode of RLlib's."""
    if isinstance(other, SingleAgentEpisode):
        strange = (
            [] if other.is_numpy and len(other) == one.steps and not any(other.get_infos()) else ["form"]
        )
        arrays = {name: other.get_extra_model_outputs(name) for name in ("action_dist_inputs", "action_logp")}
        arrays |= {name: getattr(other, f"get_{name}")() for name in ("observations", "actions", "rewards")}
        # What a fragment converts to its own types would not be seen to differ.
        strange += [name for name, array in arrays.items() if array.dtype != getattr(one, name).dtype]
        ends = {"terminated": other.is_terminated, "truncated": other.is_truncated}
        return strange + differences(
            one, EpisodeFragment(other.id_, **arrays, **ends, t_started=other.t_started)
        )
    plain = ("id", "t_started", "terminated", "truncated")
    return [name for name in ARRAYS if not np.array_equal(getattr(one, name), getattr(other, name))] + [
        name for name in plain if getattr(one, name) != getattr(other, name)
    ]


def step_by_step(sent: EpisodeFragment) -> Any:
    """The same episode as RLlib's own environments make it: one step after the other, in lists."""
    assert sent.action_dist_inputs is not None
    assert sent.action_logp is not None
    episode = SingleAgentEpisode(id_=sent.id)
    episode.add_env_reset(sent.observations[0])
    for step in range(sent.steps):
        last = step == sent.steps - 1
        episode.add_env_step(
            sent.observations[step + 1],
            sent.actions[step],
            sent.rewards[step],
            {},
            terminated=last and sent.terminated,
            truncated=last and sent.truncated,
            extra_model_outputs={
                "action_dist_inputs": sent.action_dist_inputs[step],
                "action_logp": sent.action_logp[step],
            },
        )
    return episode


def read_again(episode: Any) -> EpisodeFragment:
    """What we read of an episode of RLlib's."""
    (again,) = from_rllib({"type": "EPISODES", "episodes": [episode.get_state()]}).fragments
    return again  # type: ignore[no-any-return]  # of a message of any kind


def found() -> Iterator[tuple[str, list[str]]]:
    """What was looked at, and what is different there."""
    for message in (Ping(), GetConfig(), GetState()):
        kind, body = to_rllib(MSGPACK.encode(message))
        expected = {Ping: RLlink.PING, GetConfig: RLlink.GET_CONFIG, GetState: RLlink.GET_STATE}[
            type(message)
        ]
        yield f"{expected} read by RLlib", [] if kind is expected and not body else ["type"]

    everything = episodes()
    check_fragments(everything, RLLIB)
    kind, body = to_rllib(MSGPACK.encode(EpisodesAndGetState(tuple(everything))))
    yield "the batch read by RLlib", [] if kind is RLlink.EPISODES_AND_GET_STATE else ["type"]
    read = [SingleAgentEpisode.from_state(state).to_numpy() for state in body["episodes"]]
    for sent, got in zip(everything, read, strict=True):
        yield f"{sent.id}, from {sent.t_started}: read by RLlib", differences(sent, got)
        yield f"{sent.id}, from {sent.t_started}: written as arrays", differences(sent, read_again(got))
        if not sent.t_started:
            listed = replace(sent, truncated=not sent.terminated)
            yield f"{sent.id}: written step by step", differences(listed, read_again(step_by_step(listed)))

    for name, actions in KINDS.items():
        first, second = (got for got in read if got.id_ == f"{name}, continued")
        whole = made(f"{name}, continued", actions=actions, terminated=True)
        returns = first.get_return() + second.get_return()
        first.concat_episode(second)
        yield f"{name}: pieces joined by RLlib", differences(whole, first)
        same = np.isclose(returns, whole.rewards.sum(), atol=1e-4)
        yield f"{name}: the return over pieces", [] if same else [f"{returns}"]

    layers = {"net.0.weight": np.ones((4, 3), np.float32), "net.0.bias": np.zeros(4, np.float32)}
    message = from_rllib({"type": "SET_STATE", "state": {"rl_module": layers, "weights_seq_no": 7}})
    got_layers = isinstance(message, SetState) and isinstance(message.weights, ModuleWeights)
    yield "SET_STATE written by RLlib", [] if got_layers and message.weights.seq_no == 7 else ["weights"]


def main() -> int:
    wrong = 0
    for what, different in found():
        wrong += bool(different)
        print(json.dumps({"what": what, "different": different}), flush=True)
    print(json.dumps({"ray": ray.__version__, "wrong": wrong}), flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
