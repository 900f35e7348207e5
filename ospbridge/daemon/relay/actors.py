"""The upstream's policy at work for some agents of one kind: their steps in, fragments of episodes out."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.daemon.relay.compatibility import Kind
from ospbridge.interface import BoxSpace, DiscreteSpace
from ospbridge.rllink.messages import EpisodeFragment, sendable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ospbridge.daemon.attachment import Attachment
    from ospbridge.interface import Space
    from ospbridge.policy.acting import Policy

__all__ = ["Actors", "Experience"]

FIRST_ROWS: Final = 256


class Experience:
    """One agent's episodes. ``begin``, then ``add`` for each step; ``take`` whenever a batch is due.

    ``observations``, ``dist_inputs``: how many numbers of each a step has. ``agent``, ``simulator``: whose it is.
    """

    __slots__ = (
        "_action_shape",
        "_action_type",
        "_actions",
        "_agent",
        "_choices",
        "_id",
        "_inputs",
        "_logps",
        "_observations",
        "_rewards",
        "_rows",
        "_simulator",
        "_started",
        "_terminated",
        "_truncated",
        "_weights",
        "steps",
    )

    def __init__(
        self,
        observations: int,
        action_space: Space,
        dist_inputs: int,
        *,
        agent: str = "",
        simulator: str = "",
    ) -> None:
        box = isinstance(action_space, BoxSpace)
        self._agent = agent
        self._simulator = simulator
        self._choices = action_space.n if isinstance(action_space, DiscreteSpace) else None
        self._action_shape: tuple[int, ...] = (
            action_space.low.shape if isinstance(action_space, BoxSpace) else ()
        )
        self._action_type: type[Any] = np.float32 if box else np.int64
        self._id = ""
        self._started = 0
        self._terminated = self._truncated = False
        self._weights = 0
        self.steps = 0
        """Of the fragment under way."""
        self._allot(FIRST_ROWS, observations, dist_inputs)

    def _allot(self, rows: int, observations: int, dist_inputs: int) -> None:
        self._rows = rows
        self._observations = np.empty((rows + 1, observations), np.float32)
        self._inputs = np.empty((rows, dist_inputs), np.float32)
        self._actions: NDArray[Any] = np.empty((rows, *self._action_shape), self._action_type)
        self._rewards: NDArray[Any] = np.empty(rows, np.float64)
        self._logps = np.empty(rows, np.float32)

    def _grow(self) -> None:
        before = (self._observations, self._inputs, self._actions, self._rewards, self._logps)
        self._allot(2 * self._rows, self._observations.shape[1], self._inputs.shape[1])
        after = (self._observations, self._inputs, self._actions, self._rewards, self._logps)
        for old, new in zip(before, after, strict=True):
            new[: len(old)] = old

    # --- an episode --------------------------------------------------------------------------------------------------

    @property
    def under_way(self) -> bool:
        """An episode was begun, and has not ended."""
        return bool(self._id) and not (self._terminated or self._truncated)

    def begin(self, observation: NDArray[np.float32], *, weights_seq_no: int) -> None:
        """A reset brought float32[n] ``observation``. What was collected before must have been taken."""
        assert not self.steps, "an episode begins before the last one was taken"
        self._id = uuid.uuid4().hex
        self._started = 0
        self._terminated = self._truncated = False
        self._weights = weights_seq_no
        self._observations[0] = observation

    def add(
        self,
        action: Any,
        logp: float,
        dist_inputs: NDArray[np.float32],
        *,
        observation: NDArray[np.float32],
        reward: float,
        terminated: bool,
        truncated: bool,
    ) -> None:
        """``action`` as it was drawn, and what it brought."""
        at = self.steps
        if at == self._rows:
            self._grow()
        self._actions[at] = action
        self._logps[at] = logp
        self._inputs[at] = dist_inputs
        self._observations[at + 1] = observation
        self._rewards[at] = reward
        self._terminated = terminated
        self._truncated = truncated and not terminated
        self.steps = at + 1

    def cut(self) -> None:
        """The episode is over without another step: its last one was truncated."""
        self._truncated = not self._terminated

    # --- on its way --------------------------------------------------------------------------------------------------

    def take(self, *, weights_seq_no: int | None = None) -> EpisodeFragment | None:
        """The steps since the last ``take``; None where there are none.

        An episode under way goes on, from now on under the weights of number ``weights_seq_no`` (None: the same).
        """
        steps = self.steps
        fragment = None
        if steps:
            # What float32 cannot hold becomes infinite here, and is found before it is sent.
            with np.errstate(over="ignore"):
                rewards = self._rewards[:steps].astype(np.float32)
            fragment = EpisodeFragment(
                self._id,
                self._observations[: steps + 1].copy(),
                self._actions[:steps].copy(),
                rewards,
                self._terminated,
                self._truncated,
                self._inputs[:steps].copy(),
                self._logps[:steps].copy(),
                self._started,
                self._weights,
                self._agent,
                self._simulator,
                self._choices,
            )
            self._observations[0] = self._observations[steps]
            self._started += steps
            self.steps = 0
        if weights_seq_no is not None:
            self._weights = weights_seq_no
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
