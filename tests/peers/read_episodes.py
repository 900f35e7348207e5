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
from typing import Any

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

WAIT = 10.0
STEPS = 50


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
    for kind, actions in (("discrete", 0), ("continuous", 3)):
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


def differences(sent: EpisodeFragment, got: Any) -> list[str]:
    """What RLlib's episode has that ours has not."""
    pairs: dict[str, tuple[Any, Any]] = {
        "observations": (sent.observations, got.get_observations()),
        "actions": (sent.actions, got.get_actions()),
        "rewards": (sent.rewards, got.get_rewards()),
        "action_dist_inputs": (sent.action_dist_inputs, got.get_extra_model_outputs("action_dist_inputs")),
        "action_logp": (sent.action_logp, got.get_extra_model_outputs("action_logp")),
        "id": (sent.id, got.id_),
        "steps": (sent.steps, len(got)),
        "time": ((sent.t_started, sent.t), (got.t_started, got.t)),
        "end": ((sent.terminated, sent.truncated), (got.is_terminated, got.is_truncated)),
        "infos": ([{}] * (sent.steps + 1), list(got.get_infos())),
        "numpy": (True, got.is_numpy),
    }
    return [
        name
        for name, (ours, theirs) in pairs.items()
        if not (
            np.array_equal(ours, theirs) and ours.dtype == np.asarray(theirs).dtype
            if isinstance(ours, np.ndarray)
            else ours == theirs
        )
    ]


def same(one: EpisodeFragment, other: EpisodeFragment) -> list[str]:
    names = ("observations", "actions", "rewards", "action_dist_inputs", "action_logp")
    plain = ("id", "t_started", "terminated", "truncated")
    return [name for name in names if not np.array_equal(getattr(one, name), getattr(other, name))] + [
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


def main() -> int:
    wrong = 0

    def tell(what: str, found: list[str]) -> None:
        nonlocal wrong
        wrong += bool(found)
        print(json.dumps({"what": what, "different": found}), flush=True)

    for message, expected in ((Ping(), "PING"), (GetConfig(), "GET_CONFIG"), (GetState(), "GET_STATE")):
        kind, body = to_rllib(MSGPACK.encode(message))
        tell(f"{expected} read by RLlib", [] if kind is RLlink[expected] and not body else ["type"])

    all_of_them = episodes()
    check_fragments(all_of_them, RLLIB)
    kind, body = to_rllib(MSGPACK.encode(EpisodesAndGetState(tuple(all_of_them))))
    tell("the batch read by RLlib", [] if kind is RLlink.EPISODES_AND_GET_STATE else ["type"])
    read = [SingleAgentEpisode.from_state(state).to_numpy() for state in body["episodes"]]
    for sent, got in zip(all_of_them, read, strict=True):
        tell(f"{sent.id}, from {sent.t_started}: read by RLlib", differences(sent, got))
        (again,) = from_rllib({"type": "EPISODES", "episodes": [got.get_state()]}).fragments
        tell(f"{sent.id}, from {sent.t_started}: written by RLlib as arrays", same(sent, again))

    for sent in all_of_them:
        if sent.t_started:
            continue
        listed = replace(sent, terminated=sent.terminated, truncated=sent.truncated or not sent.terminated)
        state = step_by_step(listed).get_state()
        (again,) = from_rllib({"type": "EPISODES", "episodes": [state]}).fragments
        tell(f"{sent.id}: written by RLlib step by step", same(listed, again))

    for kind_of_action in ("discrete", "continuous"):
        first, second = (got for got in read if got.id_ == f"{kind_of_action}, continued")
        whole = made(
            f"{kind_of_action}, continued", actions=0 if kind_of_action == "discrete" else 3, terminated=True
        )
        returns = first.get_return() + second.get_return()
        first.concat_episode(second)
        tell(f"{kind_of_action}: pieces joined by RLlib", differences(whole, first))
        tell(
            f"{kind_of_action}: the return over pieces",
            [] if np.isclose(returns, whole.rewards.sum(), atol=1e-4) else [f"{returns}"],
        )

    layers = {"net.0.weight": np.ones((4, 3), np.float32), "net.0.bias": np.zeros(4, np.float32)}
    message = from_rllib({"type": "SET_STATE", "state": {"rl_module": layers, "weights_seq_no": 7}})
    got_layers = isinstance(message, SetState) and isinstance(message.weights, ModuleWeights)
    tell("SET_STATE written by RLlib", [] if got_layers and message.weights.seq_no == 7 else ["weights"])
    print(json.dumps({"ray": ray.__version__, "episodes": len(all_of_them), "wrong": wrong}), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
