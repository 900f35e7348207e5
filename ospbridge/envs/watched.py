"""Seats and groups that also tell onlookers what the environment is given, and what it does."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ospbridge.envs.groups.onlookers import Onlookers, place_of, places_of, try_all
from ospbridge.errors import OspBridgeError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from ospbridge.envs.groups.group import Found, NamedGroup
    from ospbridge.envs.seat import Seat
    from ospbridge.interface import Feedback

__all__ = ["WatchedGroup", "WatchedSeat"]


class WatchedSeat:
    """``record``: a directory, None for no recording; ``mode``: of rendering, as ``check_render_mode`` allows it.

    ``env_spec``: what recordings say of how the environment was made, by address and agent.

    Where that cannot be, the seat is closed again. Raises ConfigurationError.
    """

    def __init__(
        self,
        seat: Seat,
        simulator: str,
        record: str | os.PathLike[str] | None,
        mode: str | None,
        env_spec: Callable[[str, str], str] = lambda *_: "",
    ) -> None:
        self._seat = seat
        self.interface = seat.interface
        self.observation_space = seat.observation_space
        self.action_space = seat.action_space
        self.observation_names = seat.observation_names
        self.action_names = seat.action_names
        self._name = seat.interface.name
        try:
            places = {self._name: place_of(seat, simulator)}
            self.onlookers = Onlookers.of(places, record, mode, env_spec=env_spec)
        except BaseException:
            seat.close()
            raise

    def reset(self, seed: int) -> Feedback:
        """An episode that had not ended is on disk before."""
        self.onlookers.resetting((self._name,))
        feedback = self._seat.reset(seed)
        self.onlookers.began(self._name, feedback)
        return feedback

    def step(self, action: Any) -> Feedback:
        """An episode that this ends is on disk when it returns."""
        try:
            feedback = self._seat.step(action)
        except OspBridgeError as error:
            self.onlookers.failed((self._name,), error)
            raise
        self.onlookers.stepped(self._name, action, feedback)
        return feedback

    def cancel_step(self) -> None:
        """The one who is watched."""
        self._seat.cancel_step()

    def close(self) -> None:
        """Give the agent back, then write what is under way."""
        try:
            self._seat.close()
        finally:
            self.onlookers.close()

    def render(self) -> str | NDArray[np.uint8]:
        """Where there is a mode."""
        return self.onlookers.panels[self._name].render()


class WatchedGroup:
    """As ``WatchedSeat``, of all agents of a group.

    An episode that cannot be written costs no other agent's: all are tried, and the first error is raised then.
    """

    def __init__(
        self, group: NamedGroup, simulator: str, record: str | os.PathLike[str] | None, mode: str | None
    ) -> None:
        self._group = group
        self._mode = mode
        self.interfaces = group.interfaces
        self.observation_spaces = group.observation_spaces
        self.action_spaces = group.action_spaces
        try:
            places = dict(zip(group.interfaces, places_of(group, simulator), strict=True))
            self._onlookers = Onlookers.of(places, record, mode)
        except BaseException:
            group.close()
            raise

    @property
    def playing(self) -> bool:
        """Somebody plays."""
        return self._group.playing

    def reset(self, seed: int) -> Found:
        """Episodes that had not ended are on disk before."""
        self._onlookers.resetting(self.interfaces)
        found = self._group.reset(seed)
        for name, feedback in found.items():
            self._onlookers.began(name, feedback)
        return found

    def step(self, actions: Mapping[str, Any]) -> Found:
        """The episodes that this ends are on disk when it returns."""
        try:
            found = self._group.step(actions)
        except OspBridgeError as error:
            self._onlookers.failed(actions, error)
            raise
        try_all(
            partial(self._onlookers.stepped, name, actions[name], feedback)
            for name, feedback in found.items()
        )
        return found

    def close(self) -> None:
        """Give the agents back, then write what is under way."""
        try:
            self._group.close()
        finally:
            self._onlookers.close()

    def render(self) -> str | NDArray[np.uint8]:
        """The texts of all agents below each other, or uint8[height, width, 3] of a size that never changes."""
        shown: list[Any] = [panel.render() for panel in self._onlookers.panels.values()]
        if self._mode == "ansi":
            return "\n".join(shown)
        from ospbridge.envs.panel_picture import beside_each_other

        return beside_each_other(shown)
