"""Observers of environments: recorders of episodes, and panels that show them.

Each agent has a key, whatever the environment tells its agents apart by. Observers are told what the environment gives
its caller, after everything that it does itself; environments that nobody observes have none.
"""

from __future__ import annotations

import json
import os
import weakref
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from ospbridge.errors import LocalProtocolError, OspBridgeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import numpy as np
    from gymnasium import Env
    from gymnasium.envs.registration import EnvSpec
    from gymnasium.vector import VectorEnv
    from numpy.typing import NDArray

    from ospbridge.envs.annotations import NextNote
    from ospbridge.envs.backend import Backend, DrivenAgent, Found
    from ospbridge.envs.panel import Instruments
    from ospbridge.interface import Feedback
    from ospbridge.record.collecting import EpisodeCollector

__all__ = ["Observers", "RecordingBackend", "spec_of_agent"]

K = TypeVar("K")
OF_VECTORS: Final = frozenset({"num_envs", "agents", "autoreset_mode", "copy", "vectorization_mode"})
"""Keywords of vector environments only: an agent of one is recorded as a single environment has it."""


class Observers(Generic[K]):
    """Recorders raise ConfigurationError where an episode that ends cannot be written."""

    def __init__(self, recorders: Mapping[K, EpisodeCollector], panels: Mapping[K, Instruments]) -> None:
        self._recorders = recorders
        self.panels = panels

    @classmethod
    def of(
        cls,
        agents: Mapping[K, tuple[str, DrivenAgent]],
        record: str | os.PathLike[str] | None,
        mode: str | None,
        *,
        title: Callable[[K, str], str] = lambda _, name: name,
        env_spec: Callable[[str, str], str] = lambda *_: "",
    ) -> Self:
        """Recorders into the directory ``record``, panels in the render mode ``mode``; none where that is None.

        ``agents``: with the address that recordings name. ``title``: of the panel for a key and the agent's name.
        ``env_spec``: of a recorded environment, by the address and the name of its agent. Raises ConfigurationError
        where the directory cannot be written to.
        """
        from ospbridge.envs.panel import Instruments

        panels = {}
        if mode is not None:
            for key, (_, agent) in agents.items():
                panels[key] = Instruments(agent, mode, title=title(key, agent.interface.name))
        return cls({} if record is None else _recorders_of(agents, record, env_spec), panels)

    def resetting(self, keys: Iterable[K]) -> None:
        """These are about to be reset: episodes that have not ended are abandoned."""
        if self._recorders:
            how = "abandoned", "reset before its end"
            _try_all(partial(self._recorders[key].end, *how) for key in keys)

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

    def stepped_each(self, stepped: Iterable[tuple[K, Any, Feedback]]) -> list[OspBridgeError]:
        """The same for several agents: what could not be written, when all have been told."""
        return _errors_of(partial(self.stepped, *each) for each in stepped)

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
        _try_all(recorder.close for recorder in self._recorders.values())


def _recorders_of(
    agents: Mapping[K, tuple[str, DrivenAgent]],
    directory: str | os.PathLike[str],
    env_spec: Callable[[str, str], str],
) -> dict[K, EpisodeCollector]:
    """One for each, into one directory. Raises ConfigurationError where it cannot be written to."""
    from ospbridge.record.collecting import EpisodeCollector, Recorded, at_once
    from ospbridge.record.writing import EpisodeWriter

    # The writer counts: agents of one name on several simulators would else have files of one name.
    writer = EpisodeWriter(directory)
    recorders = {}
    for key, (address, agent) in agents.items():
        recorded = Recorded(
            address,
            agent.interface.name,
            agent.observation_space,
            agent.action_space,
            tuple(agent.interface.info_names),
            partial(env_spec, address, agent.interface.name),
        )
        recorders[key] = EpisodeCollector(recorded, at_once(writer.write))
    return recorders


def _errors_of(calls: Iterable[Callable[[], None]]) -> list[OspBridgeError]:
    """Make all calls; what they raised."""
    errors = []
    for call in calls:
        try:
            call()
        except OspBridgeError as error:
            errors.append(error)
    return errors


def _try_all(calls: Iterable[Callable[[], None]]) -> None:
    """Raises the first error when all have been tried."""
    if errors := _errors_of(calls):
        raise errors[0]


# --- a backend and its observers -------------------------------------------------------------------------------------


class RecordingBackend:
    """A backend that also tells observers what the environment is given, and what it does.

    ``record``: a directory, None for no recording; ``mode``: of rendering, as ``check_render_mode`` allows it.
    ``env_spec``: what recordings say of how the environment was made, by address and agent. An episode that cannot be
    written costs no other agent's: all are tried, and the first error is raised then.

    Where that cannot be, the backend is closed again. Raises ConfigurationError.
    """

    def __init__(
        self,
        backend: Backend,
        address: str,
        record: str | os.PathLike[str] | None,
        mode: str | None,
        env_spec: Callable[[str, str], str] = lambda *_: "",
    ) -> None:
        self._backend = backend
        self._mode = mode
        self.agents = backend.agents
        self.next_notes: Mapping[str, NextNote] = backend.next_notes
        try:
            observed = {name: (address, agent) for name, agent in backend.agents.items()}
            self._observers = Observers.of(observed, record, mode, env_spec=env_spec)
        except BaseException:
            backend.close()
            raise

    def reset(self, seed: int) -> Found:
        """Episodes that had not ended are on disk before."""
        self._observers.resetting(self.agents)
        found = self._backend.reset(seed)
        for name, feedback in found.items():
            self._observers.began(name, feedback)
        return found

    def step(self, actions: Mapping[str, Any]) -> Found:
        """The episodes that this ends are on disk when it returns."""
        try:
            found = self._backend.step(actions)
        except OspBridgeError as error:
            self._observers.failed(actions, error)
            raise
        told = ((name, actions[name], feedback) for name, feedback in found.items())
        if errors := self._observers.stepped_each(told):
            raise errors[0]
        return found

    def step_one(self, action: Any) -> Feedback:
        """The same of the only agent."""
        try:
            feedback = self._backend.step_one(action)
        except OspBridgeError as error:
            self._observers.failed(self.agents, error)
            raise
        (name,) = self.agents
        self._observers.stepped(name, action, feedback)
        return feedback

    def cancel_step(self) -> None:
        """The one that is observed."""
        self._backend.cancel_step()

    def close(self) -> None:
        """Give the agents back, then write what is under way."""
        try:
            self._backend.close()
        finally:
            self._observers.close()

    def render(self) -> str | NDArray[np.uint8]:
        """The texts of all agents below each other, or uint8[height, width, 3] of a size that never changes."""
        shown: list[Any] = [panel.render() for panel in self._observers.panels.values()]
        if self._mode == "ansi":
            return "\n".join(shown)
        if len(shown) == 1:
            picture: NDArray[np.uint8] = shown[0]
            return picture
        from ospbridge.envs.panel_picture import beside_each_other

        return beside_each_other(shown)


# --- what recorded environments were made with -----------------------------------------------------------------------


def spec_of_agent(env: Env[Any, Any] | VectorEnv[Any, Any, Any]) -> Callable[[str, str], str]:
    """Tells for an address and an agent of ``env`` with what ``gymnasium.make`` makes its environment: JSON.

    Gymnasium tells an environment its spec once that is made, so that it is asked for when an episode begins. Empty
    where gymnasium did not make ``env``, and where its spec cannot be written down. Keeps no environment alive.
    """
    made = weakref.ref(env)

    def told(address: str, agent: str) -> str:
        env = made()
        if env is None or env.spec is None:
            return ""
        try:
            return _of_one(env.spec, address, agent).to_json()
        except (TypeError, ValueError):
            # A class or function is registered, not its name.
            return ""

    return told


def _of_one(spec: EnvSpec, address: str, agent: str) -> EnvSpec:
    kwargs = _writable(spec.kwargs)
    if "num_envs" in kwargs:
        kwargs = {name: given for name, given in kwargs.items() if name not in OF_VECTORS}
        kwargs["agent"] = agent
        for where in ("simulator", "bridge"):
            if kwargs.get(where) is not None:
                kwargs[where] = address
    return replace(spec, kwargs=kwargs)


def _writable(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Those that JSON can hold, and paths as texts."""
    found = {}
    for name, given in kwargs.items():
        value = os.fspath(given) if isinstance(given, os.PathLike) else given
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            continue
        found[name] = value
    return found
