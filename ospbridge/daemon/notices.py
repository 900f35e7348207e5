"""What a simulator told beside its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ospbridge.observe import logs
from ospbridge.osp.notices import Anomaly, WorldReset

if TYPE_CHECKING:
    from ospbridge.session.trio_session import TrioSession

__all__ = ["foreign_reset"]

log = logs.get(__name__)


def foreign_reset(session: TrioSession) -> str:
    """Whether somebody else reset the world; takes the session's notices, and logs all others."""
    found = ""
    for notice in session.take_notices():
        if isinstance(notice, WorldReset):
            found = notice.text
        elif isinstance(notice, Anomaly):
            log.debug("anomaly", text=notice.text)
        else:
            # Sessions say it once.
            log.warning("the simulator is limited", reason=notice.text)
    return found
