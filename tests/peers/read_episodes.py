"""RLlib's own code reads our episodes back equal: discrete and continuous, ended, truncated and in pieces.

A program, not a test: it needs ``ray[rllib]`` of release 2.49 or later, torch and msgpack-numpy, which have a virtual
environment of their own. The batch goes through a pair of sockets, and is read by RLlib's function for RLlink. Prints
one JSON line per episode, and ends with 1 where any differs. What RLlib writes, ours reads in ``tests/rllink``.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import numpy as np
import ray
from ray.rllib.env.external.rllink import RLlink, get_rllink_message
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

from ospbridge.rllink.batches import RLLIB, check_fragments, cut
from ospbridge.rllink.dialects import MSGPACK
from ospbridge.rllink.messages import EpisodeFragment, EpisodesAndGetState

STEPS = 50
KINDS = {"discrete": 0, "continuous": 3}


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


def read(fragments: list[EpisodeFragment]) -> list[Any]:
    """The episodes that RLlib reads of our bytes."""
    data = MSGPACK.encode(EpisodesAndGetState(tuple(fragments)))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(10.0)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * len(data) + 65536)
        ours.sendall(data)
        kind, body = get_rllink_message(theirs)
    assert kind is RLlink.EPISODES_AND_GET_STATE
    return [SingleAgentEpisode.from_state(state).to_numpy() for state in body["episodes"]]


def differences(sent: EpisodeFragment, got: Any) -> list[str]:
    """What RLlib's episode has that ours has not."""
    arrays = {name: getattr(got, f"get_{name}")() for name in ("observations", "actions", "rewards")}
    arrays |= {name: got.get_extra_model_outputs(name) for name in ("action_dist_inputs", "action_logp")}
    plain = {
        "id": (sent.id, got.id_),
        "steps": (sent.steps, len(got)),
        "time": ((sent.t_started, sent.t), (got.t_started, got.t)),
        "end": ((sent.terminated, sent.truncated), (got.is_terminated, got.is_truncated)),
        "infos": ([{}] * (sent.steps + 1), list(got.get_infos())),
        "numpy": (True, got.is_numpy),
    }
    return [name for name, (ours, theirs) in plain.items() if ours != theirs] + [
        name
        for name, theirs in arrays.items()
        if not np.array_equal(getattr(sent, name), theirs) or getattr(sent, name).dtype != theirs.dtype
    ]


def compared() -> Iterator[tuple[str, list[str]]]:
    """What was looked at, and what is different there."""
    sent = []
    for kind, actions in KINDS.items():
        sent.append(made(f"{kind}, finished", actions=actions, terminated=True))
        sent.append(made(f"{kind}, truncated", actions=actions, truncated=True))
        sent += cut(made(f"{kind}, continued", actions=actions, terminated=True), 20, continued=True)
    check_fragments(sent, RLLIB)
    episodes = read(sent)
    for ours, theirs in zip(sent, episodes, strict=True):
        yield f"{ours.id}, from {ours.t_started}", differences(ours, theirs)
    for kind, actions in KINDS.items():
        first, second = (episode for episode in episodes if episode.id_ == f"{kind}, continued")
        whole = made(f"{kind}, continued", actions=actions, terminated=True)
        same = np.isclose(first.get_return() + second.get_return(), whole.rewards.sum(), atol=1e-4)
        yield f"{kind}: the return over pieces", [] if same else ["return"]
        first.concat_episode(second)
        yield f"{kind}: pieces joined by RLlib", differences(whole, first)


def main() -> int:
    wrong = 0
    for what, different in compared():
        wrong += bool(different)
        print(json.dumps({"what": what, "different": different}), flush=True)
    print(json.dumps({"ray": ray.__version__, "wrong": wrong}), flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
