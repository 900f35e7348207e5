"""Seats and groups that also record: what the environment is given, and what it does."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ospbridge.errors import LocalProtocolError, OspBridgeError
from ospbridge.record.collecting import EpisodeCollector, Recorded, at_once
from ospbridge.record.recorder import EpisodeRecorder
from ospbridge.record.writing import EpisodeWriter

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping

    from ospbridge.envs.group import Group
    from ospbridge.envs.seat import Seat
    from ospbridge.interface import Feedback

__all__ = ["RecordingGroup", "RecordingSeat", "recorded", "recorded_group"]


def recorded(seat: Seat, directory: str | os.PathLike[str], simulator: str) -> RecordingSeat:
    """``seat``, recorded; or closed again where the directory cannot be written to. Raises ConfigurationError."""
    try:
        return RecordingSeat(seat, directory, simulator=simulator)
    except BaseException:
        seat.close()
        raise


def recorded_group(group: Group, directory: str | os.PathLike[str], simulator: str) -> RecordingGroup:
    """``group``, recorded; or closed again. Raises ConfigurationError."""
    try:
        return RecordingGroup(group, directory, simulator=simulator)
    except BaseException:
        group.close()
        raise


class RecordingGroup:
    """A group that also records, each agent's episodes in files of their own.

    An episode that cannot be written costs no other agent's: all are tried, and the first error is raised then.
    """

    def __init__(self, group: Group, directory: str | os.PathLike[str], *, simulator: str) -> None:
        self._group = group
        self.interfaces = group.interfaces
        self.observation_spaces = group.observation_spaces
        self.action_spaces = group.action_spaces
        writer = EpisodeWriter(directory)
        self._recorders = {
            name: EpisodeCollector(
                Recorded(
                    simulator,
                    name,
                    group.observation_spaces[name],
                    group.action_spaces[name],
                    tuple(agent.info_names),
                ),
                at_once(writer.write),
            )
            for name, agent in group.interfaces.items()
        }

    @property
    def playing(self) -> bool:
        """Somebody plays."""
        return self._group.playing

    def reset(self, seed: int) -> Mapping[str, Feedback]:
        """Reset, and record from here on."""
        self._end_all("abandoned", "reset before its end")
        found = self._group.reset(seed)
        for name, feedback in found.items():
            self._recorders[name].begin(feedback)
        return found

    def step(self, actions: Mapping[str, Any]) -> Mapping[str, Feedback]:
        """One step; the episodes that it ends are on disk when this returns."""
        try:
            found = self._group.step(actions)
        except LocalProtocolError:
            # Nothing was sent: the episodes go on.
            raise
        except OspBridgeError as error:
            with suppress(OspBridgeError):
                self._end_all("lost", error.message)
            raise
        _try_all(
            partial(self._recorders[name].step, actions[name], feedback) for name, feedback in found.items()
        )
        return found

    def _end_all(self, how: str, reason: str) -> None:
        _try_all(partial(recorder.end, how, reason) for recorder in self._recorders.values())

    def close(self) -> None:
        """Give the agents back, then write what is under way."""
        try:
            self._group.close()
        finally:
            self._end_all("abandoned", "closed before its end")


def _try_all(calls: Iterable[Callable[[], None]]) -> None:
    """Raises the first error when all have been tried."""
    errors = []
    for call in calls:
        try:
            call()
        except OspBridgeError as error:
            errors.append(error)
    if errors:
        raise errors[0]


class RecordingSeat:
    """``simulator``: the address that the recording names."""

    def __init__(self, seat: Seat, directory: str | os.PathLike[str], *, simulator: str) -> None:
        self._seat = seat
        self.interface = seat.interface
        self.observation_space = seat.observation_space
        self.action_space = seat.action_space
        self.observation_names = seat.observation_names
        self.action_names = seat.action_names
        names = tuple(seat.interface.info_names)
        self._recorder = EpisodeRecorder(
            directory,
            Recorded(simulator, seat.interface.name, seat.observation_space, seat.action_space, names),
        )

    def reset(self, seed: int) -> Feedback:
        """Reset, and record from here on. An episode that had not ended is on disk before."""
        self._recorder.end("abandoned", "reset before its end")
        feedback = self._seat.reset(seed)
        self._recorder.begin(feedback)
        return feedback

    def step(self, action: Any) -> Feedback:
        """One step; the episode that it ends is on disk when this returns."""
        try:
            feedback = self._seat.step(action)
        except LocalProtocolError:
            # Nothing was sent: the episode goes on.
            raise
        except OspBridgeError as error:
            with suppress(OspBridgeError):
                self._recorder.end("lost", error.message)
            raise
        self._recorder.step(action, feedback)
        return feedback

    def close(self) -> None:
        """Give the agent back, then write what is under way."""
        try:
            self._seat.close()
        finally:
            self._recorder.close()
