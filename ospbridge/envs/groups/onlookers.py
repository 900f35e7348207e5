"""Those who look on at environments of several agents: recorders of their episodes, and panels that show them.

Each agent has a key of its own, whatever the environment tells its agents apart by. Onlookers are told what the
environment gives its caller, after everything that it does itself; environments that nobody looks on at have none.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from ospbridge.errors import LocalProtocolError, OspBridgeError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping

    from ospbridge.envs.groups.group import NamedGroup
    from ospbridge.envs.panel import Instruments
    from ospbridge.envs.seat import Seat
    from ospbridge.interface import AgentInterface, BoxSpace, Feedback, Space
    from ospbridge.record.collecting import EpisodeCollector

__all__ = ["Onlookers", "Place", "place_of", "places_of", "try_all"]

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


def place_of(seat: Seat, simulator: str) -> Place:
    """The agent of a seat."""
    return Place(
        simulator,
        seat.interface,
        seat.observation_space,
        seat.action_space,
        seat.observation_names,
        seat.action_names,
    )


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


def _recorders_of(
    places: Mapping[K, Place], directory: str | os.PathLike[str], env_spec: Callable[[str, str], str]
) -> dict[K, EpisodeCollector]:
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
                partial(env_spec, place.simulator, place.interface.name),
            ),
            at_once(writer.write),
        )
        for key, place in places.items()
    }


class Onlookers(Generic[K]):
    """Recorders raise ConfigurationError where an episode that ends cannot be written."""

    def __init__(self, recorders: Mapping[K, EpisodeCollector], panels: Mapping[K, Instruments]) -> None:
        self._recorders = recorders
        self.panels = panels

    @classmethod
    def of(
        cls,
        places: Mapping[K, Place],
        record: str | os.PathLike[str] | None,
        mode: str | None,
        *,
        title: Callable[[K, str], str] = lambda _, name: name,
        env_spec: Callable[[str, str], str] = lambda *_: "",
    ) -> Self:
        """Recorders into the directory ``record``, panels in the render mode ``mode``; none where that is None.

        ``title``: of the panel for a key and the agent's name. ``env_spec``: of a recorded environment, by the address
        and the name of its agent. Raises ConfigurationError where the directory cannot be written to.
        """
        from ospbridge.envs.panel import Instruments

        return cls(
            {} if record is None else _recorders_of(places, record, env_spec),
            {}
            if mode is None
            else {
                key: Instruments(place, mode, title=title(key, place.interface.name))
                for key, place in places.items()
            },
        )

    def resetting(self, keys: Iterable[K]) -> None:
        """These are about to be reset: episodes that have not ended are abandoned."""
        if self._recorders:
            how = "abandoned", "reset before its end"
            try_all(partial(self._recorders[key].end, *how) for key in keys)

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
        if not isinstance(error, OspBridgeError) or isinstance(error, LocalProtocolError):
            # Of the latter nothing was sent: the episode goes on.
            return
        for key in keys:
            if self.panels:
                self.panels[key].failed(error)
            if self._recorders:
                with suppress(OspBridgeError):
                    self._recorders[key].end("lost", error.message)

    def close(self) -> None:
        """What is under way is abandoned, and written. Raises the first error when all have been tried."""
        try_all(recorder.close for recorder in self._recorders.values())


def try_all(calls: Iterable[Callable[[], None]]) -> None:
    """Raises the first error when all have been tried."""
    errors = []
    for call in calls:
        try:
            call()
        except OspBridgeError as error:
            errors.append(error)
    if errors:
        raise errors[0]
