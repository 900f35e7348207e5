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


def why(spoilt: int | None = None, stretched: float = 1.0, actions: float | None = None) -> str:
    """An episode of a policy like SAC's; the logarithm of the row ``spoilt`` is another."""
    inputs, drawn, logp = (np.array(column, np.float32) for column in zip(*SQUASHED, strict=True))
    if spoilt is not None:
        logp[spoilt] = -3.0
    given = stretched * drawn if actions is None else np.full_like(drawn, actions)
    steps = len(SQUASHED)
    fragment = EpisodeFragment(
        "e",
        np.zeros((steps + 1, 3), np.float32),
        given.reshape(-1, 1),
        np.zeros(steps, np.float32),
        truncated=True,
        action_dist_inputs=inputs,
        action_logp=logp,
    )
    return why_improbable(fragment, SPACE)


def test_actions_that_were_squashed_as_sac_does_are_believed() -> None:
    assert why() == ""


@pytest.mark.parametrize(
    "changes",
    [{"spoilt": 0}, {"spoilt": 4}, {"stretched": 2.0}, {"actions": 1.0}],
    ids=["the first row", "the last row", "stretched afterwards", "nothing but actions at the edge"],
)
def test_a_squashed_action_with_the_probability_of_another_is_told(changes: dict[str, float]) -> None:
    assert "action_logp is" in why(**changes)  # type: ignore[arg-type]
