"""Episodes to send: whole arrays that a policy of four or two numbers might have made."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ospbridge.rllink.messages import EpisodeFragment

FIELDS = ("observations", "actions", "rewards", "action_dist_inputs", "action_logp")


def episode(
    steps: int = 5,
    *,
    observation: int = 4,
    action: int = 0,
    seed: int = 0,
    id: str | None = None,  # noqa: A002  # as the field is called
    terminated: bool = True,
    **more: Any,
) -> EpisodeFragment:
    """``action`` numbers of a box; 0: one of three choices."""
    rng = np.random.default_rng((seed, steps))
    actions: NDArray[Any]
    if action:
        actions = rng.normal(size=(steps, action)).astype(np.float32)
    else:
        actions = rng.integers(0, 3, steps)
    given: dict[str, Any] = {
        "id": f"episode-{seed}" if id is None else id,
        "observations": rng.normal(size=(steps + 1, observation)).astype(np.float32),
        "actions": actions,
        "rewards": rng.normal(size=steps).astype(np.float32),
        "action_dist_inputs": rng.normal(size=(steps, 2 * action or 3)).astype(np.float32),
        "action_logp": -rng.random(steps, dtype=np.float32),
        "terminated": terminated,
    }
    return EpisodeFragment(**(given | more))


def arrays_of(fragment: EpisodeFragment) -> dict[str, Any]:
    return {name: getattr(fragment, name) for name in FIELDS}


def assert_equal(one: EpisodeFragment, other: EpisodeFragment, *, named: bool = True) -> None:
    """Bit for bit. ``named`` false leaves out what the dialect json does not tell."""
    for name, array in arrays_of(one).items():
        again = getattr(other, name)
        if array is None:
            assert again is None, name
            continue
        assert again.dtype == array.dtype, name
        assert again.shape == array.shape, name
        assert again.tobytes() == array.tobytes(), name
    assert (one.terminated, one.truncated) == (other.terminated, other.truncated)
    if named:
        assert (one.id, one.t_started, one.t) == (other.id, other.t_started, other.t)
