"""The one line of the log that each episode leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ospbridge.observe import logs

if TYPE_CHECKING:
    from ospbridge.daemon.attachment import Attachment

__all__ = ["log_episode"]

log = logs.get(__name__)


def log_episode(attachment: Attachment, how: str, reason: str, *, seed: int) -> None:
    """It is over: ``how`` it ended, and why the bridge ended it, if it did."""
    weights = attachment.weights_seq_no
    log.info(
        "episode",
        agent=attachment.name,
        steps=attachment.steps,
        reward=round(attachment.reward, 6),
        ended=how,
        reason=reason,
        seconds=round(trio.current_time() - attachment.started, 3),
        seed=seed,
        driver=str(attachment.driver),
        **({} if weights is None else {"weights_seq_no": weights}),
    )
