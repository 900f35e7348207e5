"""What the driver wants of its upstream, whatever happens to the connection: what a batch is, weights, and learning.

An answer may take as long as it takes: nothing here has a limit of its own beyond those of single exchanges, since who
waits holds the world for a limited time only. Experience is never learned from with other weights than it was made
with: a batch whose fate is unknown is sent again only to a server that still has those very weights.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from ospbridge.daemon.relay.compatibility import SaidSpaces
from ospbridge.daemon.relay.link import ACTIVATION, ENV_STEPS, HEAD_ACTIVATION, NORMALIZE_ACTIONS, run_apart
from ospbridge.errors import (
    LocalProtocolError,
    OspBridgeError,
    RemoteProtocolError,
    UpstreamLost,
)
from ospbridge.observe import logs
from ospbridge.policy.rlmodule import same_activation
from ospbridge.rllink.batches import split
from ospbridge.rllink.exchanges import deliver, get_config, get_state, learn, newer_state
from ospbridge.rllink.framing import LARGEST_BODY, LARGEST_TAKEN
from ospbridge.rllink.messages import ModuleWeights
from ospbridge.rllink.pickled_config import FoundConfig, config_in
from ospbridge.text import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.daemon.relay.link import Connection, Link, Upstream
    from ospbridge.rllink.batches import BatchMode
    from ospbridge.rllink.messages import EpisodeFragment, SetConfig, Weights

__all__ = ["Learner", "Making", "Wanted"]

log = logs.get(__name__)
ASYNCHRONOUS: Final = frozenset({"APPO", "IMPALA"})
"""Algorithms that learn while their env runners wait for more experience, and for nothing else: seen on Ray 2.60.0 to
take one batch, and never to send weights for it."""
PAUSE: Final = 1.0
"""Seconds between tries on a connection that is up, but does not give what is asked for."""


@dataclass(frozen=True, slots=True)
class Making:
    """What a policy is made with, and no weights tell."""

    activation: str
    head_activation: str
    normalize_actions: bool
    clip_actions: bool
    spaces: SaidSpaces
    otherwise: str = ""
    """Why the server's own policy would act otherwise than the one that is made here."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the server wants of a batch, and what its weights do not tell."""

    env_steps: int
    on_policy: bool
    making: Making
    batch_mode: BatchMode | None
    assumed: frozenset[str]
    """Which of these nobody said: they are RLlib's defaults."""
    named: bool = False
    """The server says what it is called, as RLlib's do not."""


def _said(*said: bool | None) -> bool | None:
    return next((value for value in said if value is not None), None)


def _otherwise(upstream: Upstream, told: FoundConfig) -> str:
    """Why the server's own policy would act otherwise than the one that is made here; empty where nothing says so."""
    reasons = [told.unfamiliar] if told.unfamiliar else []
    if told.connectors:
        reasons.append(f"it has connectors of its own ({listed(told.connectors)})")
    model = told.model
    pairs = [("fcnet_activation", upstream.activation, model.fcnet_activation)]
    if model.head_fcnet_hiddens:
        pairs.append(("head_fcnet_activation", upstream.head_activation, model.head_fcnet_activation))
    reasons += [
        f"its {name} is {theirs}, and {ours} was said"
        for name, ours, theirs in pairs
        if ours is not None and theirs is not None and not same_activation(ours, theirs)
    ]
    return ", ".join(reasons)


async def _mark(weights: Weights) -> bytes:
    """Equal for equal weights, whatever their number."""
    parts: list[bytes | memoryview] = []
    if isinstance(weights, ModuleWeights):
        for name in sorted(weights.arrays):
            parts += (name.encode(), weights.arrays[name].ravel().data)
    else:
        parts.append(weights.model)

    def digest() -> bytes:
        found = hashlib.sha256()
        for part in parts:
            found.update(part)
        return found.digest()

    return await run_apart(sum(map(len, parts)), digest)


class Learner:
    """The upstream as its driver sees it. ``link.run`` must be running."""

    def __init__(self, upstream: Upstream, link: Link) -> None:
        self.batches = 0
        """Learned from."""
        self.steps = 0
        """Of those batches."""
        self.discarded = 0
        """Steps that nobody could learn from any more, or that could not be sent."""
        self.trouble = ""
        """Why no weights will come for a batch, as far as its settings tell; empty where some came."""
        self._wanted: Wanted | None = None
        self._upstream = upstream
        self._link = link
        self._asked: Connection | None = None
        self._unreadable = ""
        """Why, as it was told last."""
        self._mark = b""
        """Of the weights in force."""
        self._acting: Weights | None = None
        """Those."""
        self._making: Making | None = None
        """What else their policy was made with."""
        self._sure: Connection | None = None
        """Which connection's server is known to have them, since they were looked at with a batch at hand."""
        self._was_read = False
        """The batch was, and is not sent again to a server that has yet to learn from it."""

    @property
    def wanted(self) -> Wanted:
        """What the server wants; it has given weights before."""
        assert self._wanted is not None
        return self._wanted

    # --- what the server is like -------------------------------------------------------------------------------------

    async def _needs(self, connection: Connection) -> Wanted:
        """Of the server at this connection. Raises what keeps it from telling."""
        if self._wanted is None or self._asked is not connection:
            self._wanted = self._read(await connection.perform(get_config))
            self._asked = connection
        return self._wanted

    def _read(self, config: SetConfig) -> Wanted:
        """What the user said counts most, then what the server says, then RLlib's defaults."""
        upstream = self._upstream
        pickled = config.pickled
        self.trouble = ""
        told = self._found(pickled) if pickled is not None and upstream.read_pickle else FoundConfig()
        steps = upstream.env_steps or config.env_steps_per_sample or told.env_steps_per_sample
        activation = upstream.activation or told.model.fcnet_activation
        head_activation = upstream.head_activation or told.model.head_fcnet_activation
        normalize_actions = _said(upstream.normalize_actions, told.normalize_actions)
        clip_actions = _said(upstream.clip_actions, told.clip_actions)
        spaces = SaidSpaces.of(told)
        named = config.server is not None
        said = {
            "env_steps": steps,
            # An ONNX model, which the older servers send, has its activations inside.
            "activation": activation or pickled is None or told.defaults,
            "head_activation": head_activation or pickled is None or told.defaults,
            "normalize_actions": normalize_actions is not None,
            "actions": spaces.action is not None or pickled is None,
            "module": told.module is not None or pickled is None or named,
            "connectors": told.connectors is not None or named,
        }
        return Wanted(
            steps or ENV_STEPS,
            config.force_on_policy is not False,
            Making(
                activation or ACTIVATION,
                head_activation or HEAD_ACTIVATION,
                NORMALIZE_ACTIONS if normalize_actions is None else normalize_actions,
                bool(clip_actions),
                spaces,
                "" if upstream.play_anyway else _otherwise(upstream, told),
            ),
            upstream.batch_mode or told.batch_mode,
            frozenset(name for name, known in said.items() if not known),
            named=named,
        )

    def _found(self, pickled: bytes) -> FoundConfig:
        """What can be read counts; of the rest nobody said anything, which is told."""
        try:
            found = config_in(pickled)
            reason = " and ".join(sorted(found.unread))
            reason = reason and f"{reason} cannot be understood"
        except RemoteProtocolError as error:
            found, reason = FoundConfig(), error.message
        if reason and reason != self._unreadable:
            log.warning(
                "the upstream's settings cannot be read",
                upstream=str(self._link.address),
                reason=reason,
                hint="say them by hand, as with --rllink-env-steps; a report of this to the maintainers is welcome",
            )
        self._unreadable = reason
        if found.algorithm in ASYNCHRONOUS:
            self.trouble = f"its algorithm is {found.algorithm}, which sends no weights for a batch"
            log.error(
                "the upstream's algorithm does not answer a driver",
                upstream=str(self._link.address),
                algorithm=found.algorithm,
                hint="it takes one batch, and sends no weights for it: train with PPO, or let RLlib's own env runners "
                "attach to the hub",
            )
        return found

    # --- weights -----------------------------------------------------------------------------------------------------

    async def weights(self) -> Weights:
        """The current ones. Waits for the upstream."""
        while True:
            await self._link.connection()
            weights = await self.weights_at_once()
            if weights is not None:
                return weights

    async def weights_at_once(self) -> Weights | None:
        """The current ones; None where the upstream is away, or does not give them."""
        connection = self._link.connected
        if connection is None:
            return None
        try:
            return await self._weights(connection)
        except OspBridgeError as error:
            await self._again(connection, error)
            return None

    async def _weights(self, connection: Connection) -> Weights:
        """Those at this connection, and in ``wanted`` what else its server says. Raises what keeps them from coming."""
        await self._needs(connection)
        return await connection.perform(get_state)

    async def in_force(self, weights: Weights, making: Making) -> None:
        """These act from now on, in a policy that was made so."""
        self._mark = await _mark(weights)
        self._acting = weights
        self._making = making

    async def learn(self, fragments: Sequence[EpisodeFragment], *, wait: bool = True) -> Weights | None:
        """The weights that were learned from a batch; or, where it was lost, those that the upstream has now.

        ``wait`` for an upstream that is away, or None then: the batch may be given again. Where a batch was discarded,
        since no message can carry it, or was read and the upstream is away, the weights in force are returned.
        """
        self._was_read = False
        while wait or self._link.connected:
            connection = await self._link.connection()
            try:
                return await self._learned(connection, fragments, wait=wait)
            except OspBridgeError as error:
                await self._again(connection, error)
        return self._acting if self._was_read else None

    async def _learned(
        self, connection: Connection, fragments: Sequence[EpisodeFragment], *, wait: bool
    ) -> Weights | None:
        """As ``learn``, by this connection. Raises what keeps it from happening."""
        steps = sum(fragment.steps for fragment in fragments)
        wanted = await self._needs(connection)
        if wanted.making != self._making:
            why = "it makes another policy of its weights than the one that the batch was made with"
            return self._discard(steps, await self._weights(connection), why)
        assert self._acting is not None
        if self._was_read:
            return await self._taught(connection, steps)
        if self._sure is not connection or connection.machine.seq_no != self._acting.seq_no:
            # Another server may have taken the place of the one that gave the weights in force; and one that starts
            # gives weights that it replaces a moment later, under the same number.
            weights = await self._weights(connection)
            if await _mark(weights) != self._mark:
                # These, too, may be replaced: a learner that starts may yet restore its checkpoint.
                return self._discard(
                    steps, weights, "it has other weights than those that the batch was made with"
                )
            self._sure = connection
        if steps < wanted.env_steps:
            # A learner that came back wants more than the one that left, and would never answer.
            return None
        try:
            found = await self._delivered(connection, fragments, wanted, wait=wait)
        except LocalProtocolError as error:
            return self._discard(steps, self._acting, error.message)
        self._count(steps)
        return found

    def _count(self, steps: int) -> None:
        self.batches += 1
        self.steps += steps
        self.trouble = ""

    async def _taught(self, connection: Connection, steps: int) -> Weights:
        """The weights that were learned from a batch which was read over another connection. Raises as ``_learned``."""
        assert self._acting is not None
        weights = await self._weights(connection)
        if await _mark(weights) == self._mark:
            until = trio.current_time() + self._link.limits.proof
            old = weights.seq_no
            try:
                weights = await connection.perform(lambda machine: newer_state(machine, old, until=until))
            except UpstreamLost:
                # A server that was started anew may have the very same weights, and has read nothing.
                self._was_read = trio.current_time() < until
                raise
        if weights.seq_no <= self._acting.seq_no:
            return self._discard(
                steps, weights, "its answer was lost, and the server has weights of another run"
            )
        self._count(steps)
        return weights

    def _read_by_server(self) -> None:
        self._was_read = True

    async def _delivered(
        self, connection: Connection, fragments: Sequence[EpisodeFragment], wanted: Wanted, *, wait: bool
    ) -> Weights | None:
        messages = split(
            fragments,
            connection.dialect,
            await_weights=wanted.on_policy,
            least_steps=wanted.env_steps,
            # Where weights are awaited the last message must hold all of a batch; else servers may want less.
            largest=LARGEST_BODY if wanted.on_policy else LARGEST_TAKEN,
        )
        if wanted.on_policy:
            return await connection.perform(
                lambda machine: learn(machine, messages, on_read=self._read_by_server)
            )
        await connection.perform(lambda machine: deliver(machine, messages))
        # It was read: whatever happens from here on, it must not be sent again.
        return await (self.weights() if wait else self.weights_at_once()) or self._acting

    def _discard(self, steps: int, weights: Weights, why: str) -> Weights:
        self.discarded += steps
        log.warning(
            "a batch is discarded",
            upstream=str(self._link.address),
            steps=steps,
            reason=why,
            weights_seq_no=weights.seq_no,
        )
        return weights

    async def _again(self, connection: Connection, error: OspBridgeError) -> None:
        """Something failed on ``connection``: leave it, which tells why, and go on with the next one."""
        self._link.drop(connection, error)
        await trio.sleep(PAUSE)
