"""A seat that also records: what the environment is given, and what it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ospbridge.errors import LocalProtocolError, OspBridgeError
from ospbridge.record.recorder import EpisodeRecorder, Recorded

if TYPE_CHECKING:
    import os

    from ospbridge.envs.seat import Seat
    from ospbridge.interface import Feedback

__all__ = ["RecordingSeat", "recorded"]


def recorded(seat: Seat, directory: str | os.PathLike[str], simulator: str) -> RecordingSeat:
    """``seat``, recorded; or closed again where the directory cannot be written to. Raises ConfigurationError."""
    try:
        return RecordingSeat(seat, directory, simulator=simulator)
    except BaseException:
        seat.close()
        raise


class RecordingSeat:
    """``simulator``: the address that the recording names."""

    def __init__(self, seat: Seat, directory: str | os.PathLike[str], *, simulator: str) -> None:
        self._seat = seat
        self.interface = seat.interface
        self.observation_space = seat.observation_space
        self.action_space = seat.action_space
        self.observation_names = seat.observation_names
        self.action_names = seat.action_names
        names = tuple(value.name for value in seat.interface.infos)
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
