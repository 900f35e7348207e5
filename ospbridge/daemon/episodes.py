"""The end of an episode: why, and the one line of the log that it leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from ospbridge.observe import logs

if TYPE_CHECKING:
    from ospbridge.daemon.attachment import Attachment

__all__ = ["STOPPED", "log_episode"]

log = logs.get(__name__)
STOPPED: Final = "the daemon was stopped"
"""Why an episode ends that is under way when the daemon does."""


def log_episode(attachment: Attachment, how: str, reason: str, *, seed: int, session: int) -> None:
    """It is over: ``how`` it ended, and why the bridge ended it, if it did."""
    weights = attachment.weights_seq_no
    log.info(
        "episode",
        agent=attachment.name,
        episode=attachment.held.episodes,
        session=session,
        steps=attachment.steps,
        reward=round(attachment.reward, 6),
        ended=how,
        reason=reason,
        seconds=round(trio.current_time() - attachment.started, 3),
        seed=seed,
        driver=str(attachment.driver),
        **({} if weights is None else {"weights_seq_no": weights}),
    )
