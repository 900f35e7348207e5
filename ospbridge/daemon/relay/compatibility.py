"""Whether agents, experience and annotations fit what an upstream learns for, as far as its settings and weights tell.

The mean and the deviation of one number are as many outputs as two choices have, so that widths do not tell one from
the other. Observed on Ray 2.60.0: a batch of another width, or of another kind of action, is read, and proven so,
before it is learned from; then it ends the whole training, or is learned from without a word and without any use. So
the upstream is asked before anything is sent, once for each connection. Of experience without annotations only a sink
can make anything: it may wait in a spool since a daemon that was told to send it.

A learner weighs each step by how much more or less probable its own policy makes the action. Where what was said is of
another action, as of one before it was stretched to its bounds, it learns from noise, and nothing else tells.

Observed on Ray 2.47.1: a row of numbers stays the list that JSON made of it, and the learner takes that for a tuple of
actions, which ends the whole training. A server that was mended learns from them, and nothing tells the two apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from ospbridge.daemon.relay.link import run_apart
from ospbridge.errors import ConfigurationError, RemoteProtocolError, UsageError
from ospbridge.interface import BoxSpace, DiscreteSpace
from ospbridge.observe import logs
from ospbridge.policy.describing import box_of, describe, one_of
from ospbridge.policy.distributions import DiagGaussian, distribution
from ospbridge.rllink.batches import Needs
from ospbridge.rllink.exchanges import get_config, get_state
from ospbridge.rllink.messages import OnnxWeights
from ospbridge.rllink.pickled_config import config_in
from ospbridge.text import listed, pluralize

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ospbridge.daemon.attachment import Attachment
    from ospbridge.daemon.relay.link import Connection
    from ospbridge.interface import Space
    from ospbridge.policy.describing import Description
    from ospbridge.rllink.dialects import Dialect
    from ospbridge.rllink.messages import EpisodeFragment, SetConfig
    from ospbridge.rllink.pickled_config import FoundConfig, OtherSpace
    from ospbridge.task.base import Task

__all__ = [
    "Fitting",
    "Kind",
    "SaidSpaces",
    "actions_of",
    "described",
    "kind_of",
    "other_bounds",
    "require_same_actions",
    "tell_numbers",
    "why_improbable",
]

POLICY: Final = (-1.0, 1.0)
"""Within these a policy acts whose actions are stretched."""


MOST_BOUNDS: Final = 8
"""Inputs whose bounds are told."""
log = logs.get(__name__)
SINK: Final = "ospbridge sink"
"""How the server begins its name that learns nothing, and takes what comes."""
MOST_LOST: Final = 2
"""Connections in a row that may be lost over the question: a server that gives no weights is sent all the same then."""
NEAR: Final = 0.01
"""So far, and by so much of it, logarithms may differ: the float32 of others are not added up as ours are."""
EDGE: Final = 0.99
"""Beyond it float32 does not tell how far from 0 an action was before it was squashed."""


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """What agents must have in common to share a policy."""

    observation: BoxSpace
    action: Space

    @classmethod
    def of(cls, task: Task) -> Self:
        """That of an agent with this task."""
        return cls(task.observation_space, task.action_space)

    @property
    def dist_inputs(self) -> int:
        """How many numbers a policy puts out for an action."""
        action = self.action
        return action.n if isinstance(action, DiscreteSpace) else 2 * len(action.low)

    @property
    def stretched(self) -> bool:
        """Whether an action within [-1, 1] is another one once it was stretched to the action space."""
        action = self.action
        if isinstance(action, DiscreteSpace):
            return False
        bounds = np.array([-action.low, action.high])
        return bool(np.isfinite(bounds).all() and (bounds != 1).any())

    @property
    def needs(self) -> Needs:
        """What their episodes must be like."""
        return Needs(
            observation_size=len(self.observation.low),
            action=self.action,
            dist_inputs_size=self.dist_inputs,
        )

    def __str__(self) -> str:
        action = self.action
        told = (
            pluralize(action.n, "choice")
            if isinstance(action, DiscreteSpace)
            else pluralize(len(action.low), "input")
        )
        return f"{pluralize(len(self.observation.low), 'observation')}, {told}"

    def beside(self, *others: Kind) -> str:
        """As text that tells it from these, also where nothing but the bounds of inputs do."""
        action = self.action
        if isinstance(action, DiscreteSpace) or all(
            str(other) != str(self) or other == self for other in others
        ):
            return str(self)
        bounds = [f"{low:g} to {high:g}" for low, high in zip(action.low, action.high, strict=True)]
        more = ", ..." * (len(bounds) > MOST_BOUNDS)
        return f"{self} ({', '.join(bounds[:MOST_BOUNDS])}{more})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kind) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[object, ...]:
        action = self.action
        bounds = () if isinstance(action, DiscreteSpace) else (action.low.tobytes(), action.high.tobytes())
        return str(self), bounds


def kind_of(attachments: Sequence[Attachment]) -> Kind:
    """The kind of all of them. Raises UsageError where one policy cannot act for all."""
    kinds: dict[Kind, list[Attachment]] = {}
    for attachment in attachments:
        kinds.setdefault(Kind.of(attachment.held.task), []).append(attachment)
    if len(kinds) > 1:
        told = "; ".join(
            f"{listed(a.name for a in alike)}: {kind.beside(*kinds)}" for kind, alike in kinds.items()
        )
        raise UsageError(
            f"one policy cannot act for agents of several kinds: {told}",
            hint="choose agents of one kind with --rllink-agents",
        )
    (kind,) = kinds
    return kind


@dataclass(frozen=True, slots=True)
class SaidSpaces:
    """What a server's settings say of its spaces; None: nothing that is understood."""

    observation: tuple[int, ...] | str | None = None
    """The shape of a box, or what else it is."""
    action: str | None = None
    """In the words of ``Description.actions``, or what else it is."""
    bounds: tuple[tuple[float, ...], tuple[float, ...]] | None = field(default=None, compare=False)
    """Of the numbers of an action, least and most. The policy is the same whatever they are."""

    @classmethod
    def of(cls, found: FoundConfig) -> Self:
        observation, action = found.observation_space, found.action_space
        return cls(
            observation.low.shape if isinstance(observation, BoxSpace) else _in_words(observation),
            _in_words(action),
            _bounds(action) if isinstance(action, BoxSpace) else None,
        )


def _bounds(space: BoxSpace) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(space.low.ravel().tolist()), tuple(space.high.ravel().tolist())


def other_bounds(kind: Kind, said: SaidSpaces) -> str:
    """Which number of an action has other bounds in the server's settings; empty where none has, or they do not say.

    Those that a policy acts within before it is stretched are as good as the agents' own.
    """
    if said.bounds is None or not isinstance(kind.action, BoxSpace):
        return ""
    ours = list(zip(*_bounds(kind.action), strict=True))
    theirs = list(zip(*said.bounds, strict=True))
    if len(ours) != len(theirs) or set(theirs) == {POLICY}:
        return ""
    at = next((at for at, (own, other) in enumerate(zip(ours, theirs, strict=True)) if own != other), None)
    if at is None:
        return ""
    (low, high), (least, most) = ours[at], theirs[at]
    return (
        f"number {at} of an action is between {low:g} and {high:g} for the agents, and between {least:g} and {most:g} "
        "for the server"
    )


def _in_words(space: Space | OtherSpace | None) -> str | None:
    if space is None:
        return None
    if isinstance(space, BoxSpace):
        # Its shape does not matter: an action is drawn as one row of numbers.
        return box_of(space.low.size)
    return one_of(space.n) if isinstance(space, DiscreteSpace) else space.name


def actions_of(space: Space) -> str:
    """The action space of an agent, in the words of ``Description.actions``."""
    return one_of(space.n) if isinstance(space, DiscreteSpace) else box_of(len(space.low))


def action_of(fragment: EpisodeFragment) -> str | None:
    """As ``actions_of``, of whoever lived it; None where it does not say how many choices there were."""
    if fragment.actions.dtype == np.float32:
        return box_of(fragment.actions.shape[1])
    return None if fragment.choices is None else one_of(fragment.choices)


def described(policy: Mapping[str, NDArray[np.float32]] | bytes, *, named: bool) -> Description:
    """What weights tell. ``named``: of a server that says what it is called, as RLlib's do not.

    That the outputs of a Gaussian are joined from two is so in RLlib's exports; in a model of a user's own it need not.
    """
    found = describe(policy)
    return replace(found, actions=()) if named and isinstance(policy, bytes) else found


def actions_misfit(action: str, said: SaidSpaces, weights: Description | None) -> str:
    """What the server learns for instead of ``action``; empty where that is the same, or not known."""
    if said.action is not None:
        return said.action if said.action != action else ""
    if weights is None or not weights.actions or action in weights.actions:
        return ""
    return " or ".join(weights.actions)


def require_same_actions(kind: Kind, said: SaidSpaces, weights: Description) -> None:
    """Raises ConfigurationError where the server learns for other actions than those of these agents."""
    if weights.outputs not in (None, kind.dist_inputs) or weights.trouble:
        # Whoever makes the policy tells that better.
        return
    action = actions_of(kind.action)
    other = actions_misfit(action, said, weights)
    if other:
        raise ConfigurationError(
            f"the action space of the agents is {action}, the one that the server learns for is {other}",
            hint="give the server the action space of these agents, or the agents a scenario with that one",
        )


class Fitting:
    """Of one upstream. ``ask`` before ``misfit``. ``read_pickle``: its spaces are looked for in its settings, too."""

    def __init__(self, *, read_pickle: bool) -> None:
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
            self._weights = await run_apart(
                inf if isinstance(weights, OnnxWeights) else 0,
                partial(described, weights.policy, named=self._named),
            )
            self._look(connection)
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

    def _look(self, connection: Connection) -> None:
        """Say what is not known of it."""
        found, said = self._weights, self._said
        untold = []
        if said.observation is None and (found is None or found.observation is None):
            untold.append("how many numbers an observation has")
        if said.action is None and (found is None or found.outputs is None):
            untold.append("how many numbers an action is drawn from")
        elif said.action is None and found is not None and self.is_rllib and len(found.actions) > 1:
            # Servers whose settings have no spaces are none of RLlib's, and may take both.
            untold.append(f"whether an action is {' or '.join(found.actions)}")
        if untold:
            self._tell_unknown(connection, f"its weights do not tell it: {', '.join(untold)}")

    def _tell_unknown(self, connection: Connection, reason: str, *, lost: int = 0) -> None:
        read = "leave out --no-rllink-read-pickle, since its settings tell; or " * (
            self.is_rllib and not self._read_pickle
        )
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


def why_improbable(fragment: EpisodeFragment, space: Space) -> str:
    """The first step of a checked fragment that its ``action_logp`` cannot be of; empty where there is none.

    As far as actions are drawn from RLlib's distributions: those of PPO, or the squashed one that SAC has for numbers.
    """
    inputs, said = fragment.action_dist_inputs, fragment.action_logp
    drawn_from = distribution(space)
    if inputs is None or said is None or inputs.shape[1] != drawn_from.inputs:
        return ""
    with np.errstate(all="ignore"):
        found = drawn_from.logp(inputs, fragment.actions)
        wrong = _apart(found, said)
    if not wrong.any() or (isinstance(space, BoxSpace) and _squashed(inputs, fragment.actions, said)):
        return ""
    row = int(np.argmax(wrong))
    return (
        f"step {fragment.t_started + row}: action_logp is {said[row]:.4g}, and {found[row]:.4g} by the action and its "
        f"action_dist_inputs; so it is in {int(wrong.sum())} of {fragment.steps} steps"
    )


def _apart(found: NDArray[np.float32], said: NDArray[np.float32]) -> NDArray[np.bool_]:
    apart: NDArray[np.bool_] = np.abs(found - said) > NEAR * (1 + np.abs(found))
    return apart


def _squashed(inputs: NDArray[np.float32], actions: NDArray[np.float32], said: NDArray[np.float32]) -> bool:
    """Whether ``said`` is of numbers that the hyperbolic tangent brought within [-1, 1]: ``TorchSquashedGaussian``."""
    size = actions.shape[1]
    inside = (np.abs(actions) <= EDGE).all(1)
    if not inside.any() or (np.abs(actions) > 1).any():
        return False
    inputs, actions, said = inputs[inside], actions[inside].astype(np.float64), said[inside]
    with np.errstate(all="ignore"):
        before = DiagGaussian(size).logp(inputs, np.arctanh(actions).astype(np.float32))
        found = before - np.log1p(-actions * actions).sum(1)
        return not _apart(found, said).any()


def tell_numbers(upstream: str, dialect: Dialect, action: str) -> None:
    """That actions which are numbers may end this server, by its dialect. ``action``: such a one, in words.

    For servers that do not say what they are called: RLlib's do not.
    """
    if not dialect.survives_numbers:
        log.warning(
            "the upstream may not survive actions that are numbers",
            upstream=upstream,
            actions=action,
            hint=f"the training of Ray {dialect.releases} ends over them with a TypeError, unless its server is "
            "mended: use Ray 2.49 or later",
        )
