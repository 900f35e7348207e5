"""Annotations for upstreams, as environments take them: what each action was drawn from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ospbridge.errors import LocalProtocolError, UsageError
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.session.hub_client import NextNote

__all__ = ["annotate_rows", "check_annotates", "not_annotated"]


def check_annotates(annotates: bool, simulator: object) -> None:
    """Raises UsageError where nobody would hear of annotations."""
    if annotates and simulator is not None:
        raise UsageError(
            "annotates=True was given, but annotations go upstream through a daemon, and this environment joins the "
            "simulator itself",
            hint="attach to `ospbridge connect` with bridge=..., or leave annotates out",
        )


def not_annotated(simulator: object) -> UsageError:
    """The error for an annotation by an environment that does not annotate."""
    if simulator is not None:
        return UsageError(
            "only environments of a daemon's hub feed an upstream, and this one joined the simulator itself",
            hint="leave out the call of annotate, or attach to `ospbridge connect` with bridge=... and annotates=True",
        )
    return UsageError(
        "this environment was made without annotates=True, so its daemon expects no annotations",
        hint='gymnasium.make("ospbridge/Agent-v0", ..., annotates=True)',
    )


def annotate_rows(
    notes: Sequence[NextNote],
    action_logp: Any,
    action_dist_inputs: Any,
    weights_seq_no: int | None,
    actions: Any = None,
) -> None:
    """A row for each agent. Raises LocalProtocolError."""
    drawn = [None] * len(notes) if actions is None else actions
    if not len(action_logp) == len(action_dist_inputs) == len(drawn) == len(notes):
        raise LocalProtocolError(
            f"expected {pluralize(len(notes), 'row')}, one for each environment, got "
            f"{len(action_logp)} of action_logp, {len(action_dist_inputs)} of action_dist_inputs and "
            f"{'none' if actions is None else len(drawn)} of action"
        )
    for note, logp, inputs, action in zip(notes, action_logp, action_dist_inputs, drawn, strict=True):
        note.set(logp, inputs, weights_seq_no, action)
