"""The upstream's policy at work for some agents of one kind: their steps in, fragments of episodes out."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import numpy as np

from ospbridge.daemon.relay.compatibility import Kind
from ospbridge.interface import BoxSpace, DiscreteSpace
from ospbridge.rllink.messages import EpisodeFragment, sendable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ospbridge.daemon.attachment import Attachment
    from ospbridge.interface import Feedback
    from ospbridge.policy.acting import Policy

__all__ = ["Actors", "Experience"]


class Experience:
    """One agent's episodes. ``begin``, then ``add`` for each step; ``take`` whenever a batch is due."""

    def __init__(self, kind: Kind, *, agent: str, simulator: str) -> None:
        self._kind = kind
        self._names = (sendable(agent), sendable(simulator))
        self._id = ""
        self._started = 0
        self._terminated = self._truncated = False
        self._weights_seq_no = 0
        self._observations: list[bytes] = []
        """One more than there are steps, in an episode."""
        self._steps: list[tuple[Any, float, float, bytes]] = []
        """Action, log-probability, reward, and what the action was drawn from."""

    @property
    def steps(self) -> int:
        """Since the last ``take``."""
        return len(self._steps)

    @property
    def under_way(self) -> bool:
        """An episode was begun, and has not ended."""
        return bool(self._id) and not (self._terminated or self._truncated)

    def begin(self, observation: NDArray[np.float32], *, weights_seq_no: int) -> None:
        """A reset brought float32[n] ``observation``. What was collected before must have been taken."""
        assert not self._steps, "an episode begins before the last one was taken"
        self._id = uuid.uuid4().hex
        self._started = 0
        self._terminated = self._truncated = False
        self._weights_seq_no = weights_seq_no
        self._observations = [observation.tobytes()]

    def add(self, action: Any, logp: float, dist_inputs: NDArray[np.float32], brought: Feedback) -> None:
        """``action`` as it was drawn, and what it brought."""
        self._steps.append((action, logp, brought.reward, dist_inputs.tobytes()))
        self._observations.append(brought.observation.tobytes())
        self._terminated = brought.terminated
        self._truncated = brought.truncated and not brought.terminated

    def cut(self) -> None:
        """The episode is over without another step: its last one was truncated."""
        self._truncated = not self._terminated

    def take(self, *, weights_seq_no: int | None = None) -> EpisodeFragment | None:
        """The steps since the last ``take``; None where there are none.

        An episode under way goes on, from now on under the weights of number ``weights_seq_no`` (None: the same).
        """
        fragment = None
        if self._steps:
            actions, logps, rewards, inputs = zip(*self._steps, strict=True)
            steps, space = len(actions), self._kind.action
            agent, simulator = self._names
            # What float32 cannot hold becomes infinite here, and is found before it is sent.
            with np.errstate(over="ignore"):
                fragment = EpisodeFragment(
                    self._id,
                    np.frombuffer(b"".join(self._observations), np.float32).reshape(steps + 1, -1),
                    np.array(actions, np.float32 if isinstance(space, BoxSpace) else np.int64),
                    np.array(rewards, np.float32),
                    self._terminated,
                    self._truncated,
                    np.frombuffer(b"".join(inputs), np.float32).reshape(steps, -1),
                    np.array(logps, np.float32),
                    self._started,
                    self._weights_seq_no,
                    agent,
                    simulator,
                    space.n if isinstance(space, DiscreteSpace) else None,
                )
            self._started += steps
            self._observations = self._observations[-1:]
            self._steps = []
        if weights_seq_no is not None:
            self._weights_seq_no = weights_seq_no
        return fragment


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
            attachment: Experience(kind, agent=attachment.name, simulator=simulator)
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
            life.add(action, logp, inputs, feedback)
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
