"""The episodes of attachments: collected step by step, logged as they end, and counted.

An episode that the bridge cuts while its environment is silent stays open until that one learns of it with its next
step, resets, or leaves. Who listens is handed each episode as it ends; all of them the same one, which does not
change any more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import trio

from ospbridge.hub.status import STEP_BOUNDS, DatagramCounts, StepTimes
from ospbridge.interface import DiscreteSpace
from ospbridge.observe import logs
from ospbridge.observe.tally import Tally, by_name
from ospbridge.record.collecting import EpisodeCollector, Recorded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ospbridge.daemon.attachment import Attachment
    from ospbridge.errors import OspBridgeError
    from ospbridge.record.collecting import Collected

__all__ = ["STOPPED", "EpisodeTracker", "Listener", "Stats", "log_episode"]

log = logs.get(__name__)
STOPPED: Final = "the daemon was stopped"
"""Why an episode ends that is under way when the daemon does."""
_WHY: Final = {"detached": "closed before its end", "abandoned": "reset before its end"}


class Listener(Protocol):
    """Who wants episodes."""

    @property
    def largest(self) -> int:
        """Bytes of an episode that goes on, about, of which a part is handed over."""
        ...

    def admit(self, attachment: Attachment) -> None:
        """An environment takes an agent. Raises UsageError where its episodes would be of no use."""
        ...

    def wants(self, attachment: Attachment) -> bool:
        """Whether its episodes are wanted; the same for as long as it is attached."""
        ...

    def finished(self, attachment: Attachment, episode: Collected) -> None:
        """An episode has ended. Must not wait."""
        ...


class EpisodeTracker:
    """``simulator``: the address that episodes name. Does nothing while nobody listens."""

    def __init__(self, *, simulator: str) -> None:
        self.listeners: list[Listener] = []
        self._simulator = simulator
        self._collectors: dict[Attachment, EpisodeCollector] = {}
        self._untold: dict[Attachment, str] = {}
        """Whose episode was cut, and why, without its environment knowing yet."""

    def admit(self, attachments: Iterable[Attachment]) -> None:
        """Environments take agents. Raises UsageError where somebody who listens cannot use what they will play."""
        for listener in self.listeners:
            for attachment in attachments:
                listener.admit(attachment)

    # --- what happens ----------------------------------------------------------------------------------------------

    def began(self, playing: Iterable[Attachment]) -> None:
        """A reset ran for these."""
        for attachment in playing:
            collector = self._collectors.get(attachment) or self._collector(attachment)
            if collector is not None:
                assert attachment.feedback is not None
                collector.begin(attachment.feedback, weights_seq_no=attachment.policy.weights_seq_no)

    def _collector(self, attachment: Attachment) -> EpisodeCollector | None:
        """None where nobody wants its episodes."""
        listeners = [listener for listener in self.listeners if listener.wants(attachment)]
        if not listeners:
            return None
        task = attachment.held.task
        whose = Recorded(
            self._simulator,
            attachment.name,
            task.observation_space,
            task.action_space,
            tuple(task.info_names),
        )

        def finished(episode: Collected) -> None:
            for listener in listeners:
                listener.finished(attachment, episode)

        # All are handed the same parts: where somebody records as well, files are not cut for the sake of others.
        memory = max(listener.largest for listener in listeners)
        collector = self._collectors[attachment] = EpisodeCollector(whose, finished, memory=memory)
        return collector

    def told(self, attachment: Attachment) -> None:
        """Its action was answered by the news that the episode had been cut."""
        reason = self._untold.pop(attachment, None)
        if reason is None:
            return
        if _possible(attachment):
            self._step(attachment)
        else:
            self._collectors[attachment].end("truncated", reason)

    def stepped(self, playing: Iterable[Attachment]) -> None:
        """A step ran for these, and their episodes go on."""
        for attachment in playing:
            collector = self._collectors.get(attachment)
            if collector is not None:
                feedback = attachment.feedback
                assert feedback is not None
                policy = attachment.policy
                collector.weights_seq_no = policy.weights_seq_no
                # What the next request or answer may replace is copied here, all else later.
                collector.add(
                    (
                        attachment.action,
                        feedback.observation.tobytes(),
                        feedback.reward,
                        attachment.infos.tolist() if collector.has_infos else (),
                        policy.logp,
                        policy.dist_inputs,
                        policy.drawn,
                    )
                )

    def ended(self, attachment: Attachment, how: str, reason: str) -> None:
        """An episode is over, by its last step or by something else."""
        collector = self._collectors.get(attachment)
        if collector is None:
            return
        if attachment.cut:
            self._untold[attachment] = reason
        elif attachment.episode.unmoved and attachment.policy.annotates is None:
            # What its driver sends upstream ends with the last step that ran, and no environment was told of another.
            collector.end("truncated", reason)
        elif how in {"terminated", "truncated"}:
            self._step(attachment)
        elif how == "failed":
            collector.end("lost", reason)
        else:
            collector.end("abandoned", reason or _WHY[how])

    def turned_away(self, attachments: Iterable[Attachment]) -> None:
        """These reset or leave: of an episode that was cut they will not be told any more."""
        for attachment in attachments:
            reason = self._untold.pop(attachment, None)
            if reason is not None:
                self._collectors[attachment].end("truncated", reason)

    def left(self, attachments: Iterable[Attachment]) -> None:
        """These will not play again."""
        self.turned_away(attachments)
        for attachment in attachments:
            self._collectors.pop(attachment, None)

    def close(self) -> None:
        """The daemon is stopped: what is under way ends here."""
        self.turned_away(self._collectors)
        for collector in self._collectors.values():
            collector.end("abandoned", STOPPED)

    def _step(self, attachment: Attachment) -> None:
        """One that ended the episode."""
        self.stepped((attachment,))
        assert attachment.feedback is not None
        self._collectors[attachment].finish(attachment.feedback)


def _possible(attachment: Attachment) -> bool:
    """Whether what no step was given is an action at all."""
    data = attachment.action
    space = attachment.held.task.action_space
    if isinstance(space, DiscreteSpace):
        return len(data) == 4 and 0 <= np.frombuffer(data, "<f4")[0] < space.n
    return len(data) == 4 * len(space.low) and bool(np.isfinite(np.frombuffer(data, "<f4")).all())


def log_episode(attachment: Attachment, how: str, reason: str, *, seed: int, session: int) -> None:
    """It is over: ``how`` it ended, and why the bridge ended it, if it did."""
    weights, episode = attachment.policy.weights_seq_no, attachment.episode
    log.info(
        "episode",
        agent=attachment.name,
        episode=attachment.held.episodes,
        session=session,
        steps=episode.steps,
        reward=round(episode.reward, 6),
        ended=how,
        reason=reason,
        seconds=round(trio.current_time() - episode.started, 3),
        seed=seed,
        driver=str(attachment.driver),
        **({} if weights is None else {"weights_seq_no": weights}),
    )


class Stats:
    """What is counted of one simulator for status and metrics, through all sessions, from the daemon's beginning."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.rebuilds: Counter[str] = Counter()
        """By the names of the errors that a session was lost to."""
        self.episodes: Counter[tuple[str, str]] = Counter()
        """By the names of agents, and how an episode ended."""
        self._steps = [0] * (len(STEP_BOUNDS) + 1)
        self._seconds = 0.0
        self._retries = 0
        """Of sessions that are over."""

    def stepped(self, seconds: float) -> None:
        """A step of the simulator took so long."""
        self._steps[bisect_left(STEP_BOUNDS, seconds)] += 1
        self._seconds += seconds

    def left(self, retries: int) -> None:
        """A session is over that had asked so often again."""
        self._retries += retries

    def rebuilt(self, error: OspBridgeError) -> None:
        """A session was lost to this, and is made anew."""
        self.rebuilds[type(error).__name__] += 1

    @property
    def step_times(self) -> StepTimes:
        return StepTimes(tuple(self._steps), self._seconds)

    def datagrams(self, retries: int) -> DatagramCounts:
        """``retries``: of the session that goes on."""
        return DatagramCounts(by_name(self.tally.sent), by_name(self.tally.received), self._retries + retries)
