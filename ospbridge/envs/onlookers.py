"""Those who look on at environments of several agents: recorders of their episodes, and panels that show them.

Each agent has a key of its own, whatever the environment tells its agents apart by. Onlookers are told what the
environment gives its caller, after everything that it does itself; environments that nobody looks on at have none.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ospbridge.errors import OspBridgeError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from ospbridge.envs.group import NamedGroup
    from ospbridge.envs.panel import Instruments
    from ospbridge.interface import AgentInterface, BoxSpace, Feedback, Space
    from ospbridge.record.collecting import EpisodeCollector

__all__ = ["Onlookers", "Place", "panels_of", "places_of", "recorders_of"]

K = TypeVar("K")


@dataclass(slots=True)
class Place:
    """One agent of an environment of several; ``simulator``: the address that recordings name."""

    simulator: str
    interface: AgentInterface
    observation_space: BoxSpace
    action_space: Space
    observation_names: list[str]
    action_names: list[str]


def places_of(group: NamedGroup, simulator: str) -> list[Place]:
    """The agents of a group, in their order."""
    return [
        Place(
            simulator,
            interface,
            group.observation_spaces[name],
            group.action_spaces[name],
            group.observation_names[name],
            group.action_names[name],
        )
        for name, interface in group.interfaces.items()
    ]


def recorders_of(places: Mapping[K, Place], directory: str | os.PathLike[str]) -> dict[K, EpisodeCollector]:
    """One for each, into one directory. Raises ConfigurationError where it cannot be written to."""
    from ospbridge.record.collecting import EpisodeCollector, Recorded, at_once
    from ospbridge.record.writing import EpisodeWriter

    # The writer counts: agents of one name on several simulators would else have files of one name.
    writer = EpisodeWriter(directory)
    return {
        key: EpisodeCollector(
            Recorded(
                place.simulator,
                place.interface.name,
                place.observation_space,
                place.action_space,
                tuple(place.interface.info_names),
            ),
            at_once(writer.write),
        )
        for key, place in places.items()
    }


def panels_of(places: Mapping[K, Place], mode: str, titles: Mapping[K, str]) -> dict[K, Instruments]:
    """One for each; ``mode`` as ``check_render_mode`` allows it."""
    from ospbridge.envs.panel import Instruments

    return {key: Instruments(place, mode, title=titles[key]) for key, place in places.items()}


class Onlookers(Generic[K]):
    """Recorders raise ConfigurationError where an episode that ends cannot be written."""

    def __init__(self, recorders: Mapping[K, EpisodeCollector], panels: Mapping[K, Instruments]) -> None:
        self._recorders = recorders
        self.panels = panels

    def resetting(self, keys: Iterable[K]) -> None:
        """These are about to be reset: episodes that have not ended are abandoned."""
        if self._recorders:
            for key in keys:
                self._recorders[key].end("abandoned", "reset before its end")

    def began(self, key: K, feedback: Feedback) -> None:
        """A reset brought ``feedback``."""
        if self._recorders:
            self._recorders[key].begin(feedback)
        if self.panels:
            self.panels[key].began(feedback)

    def stepped(self, key: K, action: Any, feedback: Feedback) -> None:
        """``action`` brought ``feedback``. An episode that this ends is on disk when this returns."""
        if self.panels:
            self.panels[key].stepped(action, feedback)
        if self._recorders:
            self._recorders[key].step(action, feedback)

    def failed(self, keys: Iterable[K], error: Exception) -> None:
        """The step of these ended in ``error``, which is raised next: nothing else may be."""
        if not isinstance(error, OspBridgeError):
            return
        for key in keys:
            if self.panels:
                self.panels[key].failed(error)
            if self._recorders:
                with suppress(OspBridgeError):
                    self._recorders[key].end("lost", error.message)

    def close(self) -> None:
        """What is under way is abandoned, and written. Raises the first error when all have been tried."""
        errors = []
        for recorder in self._recorders.values():
            try:
                recorder.close()
            except OspBridgeError as error:
                errors.append(error)
        if errors:
            raise errors[0]
