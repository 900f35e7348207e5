"""A group whose episodes can be looked at: the panels of all its agents, as one text or one picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ospbridge.envs.onlookers import panels_of
from ospbridge.errors import LocalProtocolError, OspBridgeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from ospbridge.envs.group import Group
    from ospbridge.envs.onlookers import Place
    from ospbridge.interface import Feedback

__all__ = ["PanelGroup"]


class PanelGroup:
    """``places``: the group's agents, by name; ``mode`` as ``check_render_mode`` allows it."""

    def __init__(self, group: Group, places: Mapping[str, Place], mode: str) -> None:
        self._group = group
        self.interfaces = group.interfaces
        self.observation_spaces = group.observation_spaces
        self.action_spaces = group.action_spaces
        self._mode = mode
        self._panels = panels_of(places, mode, {name: name for name in places})

    @property
    def playing(self) -> bool:
        """Somebody plays."""
        return self._group.playing

    def reset(self, seed: int) -> Mapping[str, Feedback]:
        """Reset, and show new episodes."""
        found = self._group.reset(seed)
        for name, feedback in found.items():
            self._panels[name].began(feedback)
        return found

    def step(self, actions: Mapping[str, Any]) -> Mapping[str, Feedback]:
        """One step, shown; whose episode is over stands still."""
        try:
            found = self._group.step(actions)
        except LocalProtocolError:
            # Nothing was sent: the episodes go on.
            raise
        except OspBridgeError as error:
            for name in actions:
                self._panels[name].failed(error)
            raise
        for name, feedback in found.items():
            self._panels[name].stepped(actions[name], feedback)
        return found

    def close(self) -> None:
        """Give the agents back."""
        self._group.close()

    def render(self) -> str | NDArray[np.uint8]:
        """The texts of all agents below each other, or uint8[height, width, 3] of a size that never changes."""
        shown: list[Any] = [panel.render() for panel in self._panels.values()]
        if self._mode == "ansi":
            return "\n".join(shown)
        from ospbridge.envs.panel_picture import beside_each_other

        return beside_each_other(shown)
