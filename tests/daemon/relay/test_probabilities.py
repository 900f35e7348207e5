"""Whether annotations are of the actions that they came with."""

from __future__ import annotations

import numpy as np
import pytest

from ospbridge.daemon.relay.probabilities import why_improbable
from ospbridge.interface import BoxSpace
from ospbridge.rllink.fragments import EpisodeFragment

SPACE = BoxSpace(np.full(1, -2, np.float32), np.full(1, 2, np.float32))
SQUASHED = (
    # Outputs of a module, the action, and its logarithm, as TorchSquashedGaussian of Ray 2.60.0 has them.
    ((0.5, -0.3), 0.75733745, 0.01465189),
    ((0.1, 0.2), 0.40199137, -0.9783063),
    ((-1.2, -1.0), -0.82660156, 1.2288659),
    ((2.0, 0.5), 0.99528956, 3.0552235),
    ((0.0, -2.0), -0.06108266, 0.9826900),
)


def fragment(*, spoilt: dict[int, float] | None = None, stretched: float = 1.0) -> EpisodeFragment:
    """An episode of a policy like SAC's; ``spoilt`` has other logarithms, by row."""
    steps = len(SQUASHED)
    logp = [(spoilt or {}).get(row, said) for row, (_, _, said) in enumerate(SQUASHED)]
    return EpisodeFragment(
        "e",
        np.zeros((steps + 1, 3), np.float32),
        np.array([[stretched * action] for _, action, _ in SQUASHED], np.float32),
        np.zeros(steps, np.float32),
        truncated=True,
        action_dist_inputs=np.array([inputs for inputs, _, _ in SQUASHED], np.float32),
        action_logp=np.array(logp, np.float32),
    )


def test_actions_that_were_squashed_as_sac_does_are_believed() -> None:
    assert why_improbable(fragment(), SPACE) == ""


@pytest.mark.parametrize("row", [0, 4])
def test_a_squashed_action_with_the_probability_of_another_is_told(row: int) -> None:
    assert "action_logp is" in why_improbable(fragment(spoilt={row: -3.0}), SPACE)


def test_a_squashed_action_that_was_stretched_afterwards_is_told() -> None:
    assert "action_logp is" in why_improbable(fragment(stretched=2.0), SPACE)


def test_nothing_but_actions_at_the_edge_are_not_taken_for_squashed_ones() -> None:
    at_the_edge = fragment()
    at_the_edge.actions[:] = 1.0
    assert "action_logp is" in why_improbable(at_the_edge, SPACE)
