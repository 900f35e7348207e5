"""The upstream's policy at work for some agents of one kind: their steps in, fragments of episodes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from ospbridge.daemon.relay.experience import Experience
from ospbridge.errors import UsageError
from ospbridge.interface import BoxSpace, DiscreteSpace
from ospbridge.rllink.checking import Needs
from ospbridge.rllink.fragments import sendable
from ospbridge.text import listed, pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ospbridge.daemon.attachment import Attachment
    from ospbridge.interface import Space
    from ospbridge.policy.acting import Policy
    from ospbridge.rllink.fragments import EpisodeFragment
    from ospbridge.task.base import Task

__all__ = ["Actors", "Kind", "kind_of"]

MOST_BOUNDS: Final = 8
"""Inputs whose bounds are told."""


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


class Actors:
    """Decides for attachments of one kind, and keeps what comes of it.

    An episode of an attachment: ``begin``, then ``moves`` and ``stepped`` in turn. ``simulator``: where they live.
    """

    def __init__(
        self,
        attachments: Sequence[Attachment],
        policy: Policy,
        kind: Kind,
        *,
        weights_seq_no: int,
        simulator: str,
    ) -> None:
        self.policy = policy
        self.weights_seq_no = weights_seq_no
        self._discrete = isinstance(kind.action, DiscreteSpace)
        self._lives = {
            attachment: Experience(
                len(kind.observation.low),
                kind.action,
                kind.dist_inputs,
                agent=sendable(attachment.name),
                simulator=sendable(simulator),
            )
            for attachment in attachments
        }
        self._observations: dict[Attachment, NDArray[np.float32]] = {}
        self._decided: dict[Attachment, tuple[Any, float, NDArray[np.float32]]] = {}

    @property
    def attachments(self) -> list[Attachment]:
        return list(self._lives)

    @property
    def steps(self) -> int:
        """Since the last ``take``, of all together."""
        return sum(life.steps for life in self._lives.values())

    @property
    def playing(self) -> list[Attachment]:
        """Whose episodes are under way."""
        return [attachment for attachment, life in self._lives.items() if life.under_way]

    def begin(self) -> None:
        """A reset ran: each attachment's ``feedback`` is what its episode begins with."""
        for attachment, life in self._lives.items():
            assert attachment.feedback is not None
            life.begin(attachment.feedback.observation, weights_seq_no=self.weights_seq_no)
            self._observations[attachment] = attachment.feedback.observation
            attachment.policy.weights_seq_no = self.weights_seq_no

    def moves(self) -> list[tuple[Attachment, bytes]]:
        """The next action of everybody who plays, as the conductor takes it.

        Raises ConfigurationError where the policy cannot decide: an observation or its output is not finite.
        """
        playing = self.playing
        if len(playing) == 1:
            attachment = playing[0]
            one = self.policy.act(self._observations[attachment])
            self._decided[attachment] = (one.action, one.logp, one.dist_inputs)
            return [(attachment, self._as_sent(one.sent_action))]
        all_ = self.policy.act(np.stack([self._observations[attachment] for attachment in playing]))
        for at, attachment in enumerate(playing):
            self._decided[attachment] = (all_.action[at], float(all_.logp[at]), all_.dist_inputs[at])
        return [(attachment, self._as_sent(all_.sent_action[at])) for at, attachment in enumerate(playing)]

    def _as_sent(self, action: Any) -> bytes:
        # A choice travels as one float32, as with environments at the hub.
        return (np.float32(action) if self._discrete else np.asarray(action, np.float32)).tobytes()

    def stepped(self) -> int:
        """The moves were made: each attachment's ``feedback`` is what they brought. How many steps that are."""
        steps = 0
        for attachment, (action, logp, inputs) in self._decided.items():
            feedback = attachment.feedback
            life = self._lives[attachment]
            assert feedback is not None
            if attachment.episode.unmoved:
                # The bridge ended the episode, and no step of the simulator brought this.
                life.cut()
                continue
            steps += 1
            life.add(
                action,
                logp,
                inputs,
                observation=feedback.observation,
                reward=feedback.reward,
                terminated=feedback.terminated,
                truncated=feedback.truncated,
            )
            self._observations[attachment] = feedback.observation
        self._decided.clear()
        return steps

    def cut(self) -> None:
        """All episodes are over without another step."""
        self._decided.clear()
        for life in self._lives.values():
            life.cut()

    def take(self) -> list[EpisodeFragment]:
        """What was lived since the last time. Episodes under way go on."""
        found = (life.take() for life in self._lives.values())
        return [fragment for fragment in found if fragment is not None]

    def act_from(self, policy: Policy, weights_seq_no: int) -> None:
        """``policy`` decides from now on, by these weights; what was lived before must have been taken."""
        self.policy = policy
        self.weights_seq_no = weights_seq_no
        for attachment, life in self._lives.items():
            life.take(weights_seq_no=weights_seq_no)
            attachment.policy.weights_seq_no = weights_seq_no
