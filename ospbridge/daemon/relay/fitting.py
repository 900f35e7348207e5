"""Whether experience fits the module that is to learn from it, as far as the upstream's weights tell.

Observed on Ray 2.60.0: a batch of another width is read, and proven so, before it is learned from; then it ends the
whole training. So the upstream is asked before anything is sent, once for each connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.daemon.relay.upstream import policy_weights
from ospbridge.errors import ConfigurationError
from ospbridge.observe import logs
from ospbridge.policy.describing import describe
from ospbridge.rllink.exchanges import get_config, get_state

if TYPE_CHECKING:
    from ospbridge.daemon.relay.link import Connection
    from ospbridge.policy.describing import Description
    from ospbridge.rllink.fragments import EpisodeFragment

__all__ = ["Fitting"]

log = logs.get(__name__)
SINK: Final = "ospbridge sink"
"""How the server begins its name that learns nothing, and takes what comes."""
MOST_LOST: Final = 2
"""Connections in a row that may be lost over the question: a server that gives no weights is sent all the same then."""


class Fitting:
    """Of one upstream. ``ask`` before ``misfit``."""

    def __init__(self) -> None:
        self._asked: Connection | None = None
        self._found: Description | None = None
        self._lost = 0

    async def ask(self, connection: Connection) -> None:
        """What its module is like, unless it was asked already. Raises what ends the connection."""
        if self._asked is connection:
            return
        self._found = None
        if self._lost >= MOST_LOST:
            log.warning(
                "the upstream does not say what its module takes",
                connections=self._lost,
                hint="experience of another width would end the training of a server of RLlib: see that its spaces are "
                "those of the agents; for other servers say --rllink-unannotated, and it is not asked",
            )
            self._asked = connection
            return
        self._lost += 1
        config = await connection.perform(get_config)
        if not (config.server or "").startswith(SINK):
            weights = await connection.perform(get_state)
            try:
                self._found = describe(policy_weights(weights))
            except ConfigurationError:
                # Of a kind that nothing here can read: what it takes is not known.
                self._found = None
        self._asked = connection
        self._lost = 0

    def arrived(self) -> None:
        """Something was delivered: the next connection may be asked again, once."""
        self._lost = min(self._lost, MOST_LOST - 1)

    def misfit(self, fragment: EpisodeFragment) -> str:
        """Why the module cannot learn from it; empty where it can, or where that is not known."""
        found = self._found
        if found is None:
            return ""
        width = fragment.observations.shape[1]
        if found.observation not in (None, width):
            return f"its observations have {width} numbers, the server's module takes {found.observation}"
        if fragment.action_dist_inputs is None:
            return ""
        outputs = fragment.action_dist_inputs.shape[1]
        if found.outputs not in (None, outputs):
            return (
                f"its actions were drawn from {outputs} numbers, the server's module puts out {found.outputs}"
            )
        return ""
