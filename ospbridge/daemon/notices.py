"""What a simulator told beside its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ospbridge.observe import logs
from ospbridge.osp.notices import told_by

if TYPE_CHECKING:
    from ospbridge.session.trio_session import TrioSession

__all__ = ["foreign_reset"]

log = logs.get(__name__)


def foreign_reset(session: TrioSession) -> str:
    """Whether somebody else reset the world; takes the session's notices, and logs all others."""
    told = told_by(session.pop_notices())
    for anomaly in told.anomalies:
        log.debug("anomaly", text=anomaly)
    for remark in told.remarks:
        # Sessions say it once.
        log.warning("the simulator is limited", reason=remark)
    return told.reset
