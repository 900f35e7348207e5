"""Whether experience fits the module that is to learn from it, as far as the upstream's settings and weights tell.

Observed on Ray 2.60.0: a batch of another width, or of another kind of action, is read, and proven so, before it is
learned from; then it ends the whole training. So the upstream is asked before anything is sent, once for each
connection. Of experience without annotations only a sink can make anything: it may wait in a spool since a daemon that
was told to send it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.daemon.relay.old_servers import tell_numbers
from ospbridge.daemon.relay.spaces import SaidSpaces, action_of, actions_misfit, described
from ospbridge.daemon.relay.upstream import policy_weights
from ospbridge.errors import ConfigurationError, RemoteProtocolError
from ospbridge.observe import logs
from ospbridge.rllink.exchanges import get_config, get_state
from ospbridge.rllink.pickled_config import config_in
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.daemon.relay.link import Connection
    from ospbridge.policy.describing import Description
    from ospbridge.rllink.fragments import EpisodeFragment
    from ospbridge.rllink.messages import SetConfig

__all__ = ["Fitting"]

log = logs.get(__name__)
SINK: Final = "ospbridge sink"
"""How the server begins its name that learns nothing, and takes what comes."""
MOST_LOST: Final = 2
"""Connections in a row that may be lost over the question: a server that gives no weights is sent all the same then."""


class Fitting:
    """Of one upstream. ``ask`` before ``misfit``. ``read_pickle``: its spaces are looked for in its settings, too."""

    def __init__(self, *, read_pickle: bool = False) -> None:
        self._read_pickle = read_pickle
        self._asked: Connection | None = None
        self._weights: Description | None = None
        self._said = SaidSpaces()
        self._takes_all = False
        self._named = False
        self._told: Connection | None = None
        """Which one may not survive actions that are numbers, as was said."""
        self._lost = 0
        self.is_rllib = False
        """The server's settings are a pickle, as those of Ray 2.49 and later are."""

    async def ask(self, connection: Connection) -> None:
        """What its module is like, unless it was asked already. Raises what ends the connection."""
        if self._asked is connection:
            return
        self._weights = None
        self._said = SaidSpaces()
        self._takes_all = self._named = self.is_rllib = False
        if self._lost >= MOST_LOST:
            self._tell_unknown(connection, "it was lost over the question for its weights", lost=self._lost)
            self._asked = connection
            return
        self._lost += 1
        config = await connection.perform(get_config)
        self._named = config.server is not None
        self._takes_all = (config.server or "").startswith(SINK)
        self.is_rllib = config.pickled is not None
        if not self._takes_all:
            weights = await connection.perform(get_state)
            self._said = self._spaces_in(config, connection)
            try:
                self._weights = described(policy_weights(weights), named=config.server is not None)
                reason = "its weights do not tell it"
            except ConfigurationError as error:
                reason = error.message
            self._look(connection, reason, pickled=config.pickled is not None)
        self._asked = connection
        self._lost = 0

    def _spaces_in(self, config: SetConfig, connection: Connection) -> SaidSpaces:
        if config.pickled is None or not self._read_pickle:
            return SaidSpaces()
        try:
            return SaidSpaces.of(config_in(config.pickled))
        except RemoteProtocolError as error:
            log.warning(
                "the upstream's settings cannot be read",
                upstream=connection.machine.peer,
                reason=error.message,
                hint="its weights alone tell what it takes; a report of this to the maintainers is welcome",
            )
            return SaidSpaces()

    def _look(self, connection: Connection, reason: str, *, pickled: bool) -> None:
        """Say what is not known of it. ``reason``: why; ``pickled``: its settings have it."""
        found, said = self._weights, self._said
        untold = []
        if said.observation is None and (found is None or found.observation is None):
            untold.append("how many numbers an observation has")
        if said.action is None and (found is None or found.outputs is None):
            untold.append("how many numbers an action is drawn from")
        elif said.action is None and found is not None and pickled and len(found.actions) > 1:
            # Servers whose settings have no spaces are none of RLlib's, and may take both.
            untold.append(f"whether an action is {' or '.join(found.actions)}")
        if untold:
            self._tell_unknown(connection, f"{reason}: {', '.join(untold)}", pickled=pickled)

    def _tell_unknown(
        self, connection: Connection, reason: str, *, pickled: bool = False, lost: int = 0
    ) -> None:
        read = "say --rllink-read-pickle, since its settings tell; or " * (pickled and not self._read_pickle)
        log.warning(
            "the upstream does not say what its module takes",
            upstream=connection.machine.peer,
            connections=lost,
            reason=reason,
            hint="experience of another width, or of other actions, may end the training of a server of RLlib: "
            f"{read}see that its spaces are those of the agents; for other servers say --rllink-unannotated, and it is "
            "not asked",
        )

    def ask_again(self) -> None:
        """Something was delivered, or waits for another server: the next connection may be asked again, once."""
        self._lost = min(self._lost, MOST_LOST - 1)

    def tell_risk(self, connection: Connection, fragments: Sequence[EpisodeFragment]) -> None:
        """What fits, and may end the server's training all the same; once for each connection."""
        if self._named or self._told is connection:
            return
        numbers = next((each for each in fragments if each.actions.dtype == np.float32), None)
        if numbers is not None:
            self._told = connection
            tell_numbers(connection.machine.peer, connection.dialect, action_of(numbers) or "")

    def misfit(self, fragment: EpisodeFragment) -> str:
        """Why the module cannot learn from it; empty where it can, or where that is not known."""
        if not self._takes_all and (fragment.action_dist_inputs is None or fragment.action_logp is None):
            return (
                "it has no action_logp and no action_dist_inputs, which no learner does without: it was played with "
                "--rllink-unannotated"
            )
        found, said = self._weights, self._said
        width = fragment.observations.shape[1]
        if found is not None and found.observation is not None:
            if found.observation != width:
                return (
                    f"its observations have {pluralize(width, 'number')}, the server's module "
                    f"takes {found.observation}"
                )
        elif said.observation not in (None, (width,)):
            kind = "kind" if isinstance(said.observation, str) else "shape"
            return (
                f"its observations have {pluralize(width, 'number')}, those of the server "
                f"are of the {kind} {said.observation}"
            )
        if found is not None and fragment.action_dist_inputs is not None:
            outputs = fragment.action_dist_inputs.shape[1]
            if found.outputs not in (None, outputs):
                return (
                    f"its actions were drawn from {pluralize(outputs, 'number')}, the "
                    f"server's module puts out {found.outputs}"
                )
        action = action_of(fragment)
        other = actions_misfit(action, said, found) if action is not None else ""
        return f"its actions are {action}, the server learns for {other}" if other else ""
