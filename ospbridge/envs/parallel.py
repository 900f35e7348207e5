"""All agents of one simulator as a PettingZoo ``ParallelEnv``. Needs the extra ``pettingzoo``."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

from gymnasium.utils.seeding import np_random

from ospbridge.envs.annotations import annotate
from ospbridge.envs.connect import Connector
from ospbridge.envs.conventions import drawn_seed, gym_space, not_copied, osp_seed, tell_of_doubt
from ospbridge.envs.options import DEFAULTS, Options, spelled_out, validate_arguments
from ospbridge.envs.panel import FPS, no_render_mode, render_modes
from ospbridge.errors import ConfigurationError, LocalProtocolError, SessionClosed

try:
    from pettingzoo import ParallelEnv
except ImportError:
    raise ConfigurationError(
        "the parallel environment needs PettingZoo, which is not installed",
        hint="pip install 'ospbridge[pettingzoo]'",
    ) from None

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import gymnasium
    import numpy as np
    from numpy.typing import NDArray

    from ospbridge.envs.backend import Backend
    from ospbridge.envs.observers import RecordingBackend
    from ospbridge.interface import Feedback

__all__ = ["AgentsParallelEnv", "parallel_env"]


class AgentsParallelEnv(ParallelEnv):  # type: ignore[misc]  # PettingZoo does not say its types
    """``parallel_env(simulator="127.0.0.1:45454", agents="robot*")``: the matching agents step together.

    An agent whose episode is over leaves ``agents`` and rests at its neutral inputs until all are over.
    ``possible_agents`` never changes. Observations, actions, rewards and infos are those of ``AgentEnv``, by agent.
    A lost session truncates all that play, ``info["reason"]`` says why, and the next reset rebuilds it.

    ``agents``: a name, a glob, or several; default: all that are free. Where they are found, and the limits, are said
    as for ``AgentEnv``, and so are the TLS files, ``scenario`` (which also says which agents, where none are named),
    ``record``, ``render_mode`` and ``annotates``. Raises AgentsInUse where this thread has another environment on that
    simulator.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012  # as PettingZoo has it
        "name": "ospbridge_v0",
        "render_modes": render_modes(),
        "render_fps": FPS,
    }

    @validate_arguments
    def __init__(
        self,
        simulator: str | None = None,
        agents: str | Sequence[str] = (),
        *,
        bridge: str | None = None,
        **given: Unpack[Options],
    ) -> None:
        options = DEFAULTS | given
        connector = Connector(simulator, bridge, options)
        connector.only_one()
        self.render_mode = options["render_mode"]
        backend: Backend
        (backend,) = connector.direct_backends(agents) if connector.direct else connector.hub_backends(agents)
        self._recording: RecordingBackend | None = None
        if connector.record is not None or self.render_mode is not None:
            from ospbridge.envs.observers import RecordingBackend

            backend = self._recording = RecordingBackend(
                backend, connector.addresses[0], connector.record, self.render_mode
            )
        self._backend: Backend | None = backend
        # Also when the environment is never closed: collected, or alive when the interpreter exits.
        self._finalizer = weakref.finalize(self, backend.close)
        self._next_notes = backend.next_notes
        self._simulator = simulator
        self.interfaces = {name: agent.interface for name, agent in backend.agents.items()}
        self.possible_agents = list(backend.agents)
        self.agents: list[str] = []
        taken = backend.agents.items()
        self.observation_spaces = {name: gym_space(agent.observation_space) for name, agent in taken}
        self.action_spaces = {name: gym_space(agent.action_space) for name, agent in taken}
        self.np_random, _ = np_random()
        """What seeds are drawn from where a reset is given none. Wrappers look for it under this name."""

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        """The agent's own, always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        """The agent's own, always the same object."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, NDArray[np.float32]], dict[str, dict[str, Any]]]:
        """Reset the world; all agents play. Raises BarrierStuck where others do not reset."""
        backend = self._open()
        self.agents = []
        if seed is not None:
            self.np_random, _ = np_random(seed)
        found = backend.reset(drawn_seed(self.np_random) if seed is None else osp_seed(seed))
        tell_of_doubt(found.values())
        self.agents = list(self.possible_agents)
        return _own_observations(found), _own_infos(found)

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[
        dict[str, NDArray[np.float32]],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, dict[str, Any]],
    ]:
        """One action of every agent in ``agents``. What the bridge cuts is truncated, never terminated."""
        # In this order: whoever closes from another thread forgets the backend first.
        playing = self.agents
        backend = self._open()
        if not playing:
            raise LocalProtocolError("the episodes are over, or none was begun", hint="call reset first")
        try:
            given = actions.keys()
        except AttributeError:
            raise LocalProtocolError(
                f"actions are a dict by agent, got a {type(actions).__name__}",
                hint="{agent: env.action_space(agent).sample() for agent in env.agents} shows the form",
            ) from None
        if given != set(playing):
            missing, surplus = sorted(set(playing) - set(actions)), sorted(set(actions) - set(playing))
            raise LocalProtocolError(
                f"a step needs one action of every agent that plays: missing {missing}, not playing {surplus}",
                hint="give actions for env.agents, which those leave whose episode is over",
            )
        try:
            found = backend.step(actions)
            self.agents = [name for name in playing if not found[name].over]
            return (
                _own_observations(found),
                _each(found, "reward"),
                _each(found, "terminated"),
                _each(found, "truncated"),
                _own_infos(found),
            )
        except LocalProtocolError:
            # Nothing was sent: the episodes go on.
            raise
        except BaseException:
            self.agents = []
            raise

    def annotate(
        self,
        *,
        action_logp: Mapping[str, Any],
        action_dist_inputs: Mapping[str, Any],
        weights_seq_no: int | None = None,
        action: Mapping[str, Any] | None = None,
    ) -> None:
        """As ``AgentEnv.annotate``, by agent, of every agent in ``agents``."""
        drawn = dict.fromkeys(self.agents) if action is None else action
        names = self.agents if self._next_notes else []
        missing = sorted(set(names) - (set(action_logp) & set(action_dist_inputs) & set(drawn)))
        if missing:
            raise LocalProtocolError(
                f"annotations of {missing} are missing", hint="annotate the actions of env.agents"
            )
        annotate(
            [self._next_notes[name] for name in names],
            self._simulator,
            action_logp=[action_logp[name] for name in names],
            action_dist_inputs=[action_dist_inputs[name] for name in names],
            weights_seq_no=weights_seq_no,
            action=[drawn[name] for name in names],
        )

    def render(self) -> Any:
        """All agents' sensors and inputs over time: text for "ansi", uint8[height, width, 3] for "rgb_array"."""
        if self._recording is None or self.render_mode is None:
            raise no_render_mode()
        return self._recording.render()

    def close(self) -> None:
        """Give the agents back, within 2 s. Safe to call again, and from another thread than the one that steps."""
        self._backend = None
        self.agents = []
        self._finalizer()

    def __getstate__(self) -> NoReturn:
        raise not_copied(self, "parallel_env(...)")

    def _open(self) -> Backend:
        if self._backend is None:
            raise SessionClosed("this environment was closed")
        return self._backend


@spelled_out
def parallel_env(
    simulator: str | None = None,
    agents: str | Sequence[str] = (),
    *,
    bridge: str | None = None,
    **options: Unpack[Options],
) -> AgentsParallelEnv:
    """The agents of a simulator or daemon as a ``ParallelEnv`` of PettingZoo, which the result derives from.

    ``options``: as the page on environments lists them. Raises ConfigurationError where PettingZoo is not installed.
    """
    return AgentsParallelEnv(simulator, agents, bridge=bridge, **options)


def _own_observations(found: Mapping[str, Feedback]) -> dict[str, NDArray[np.float32]]:
    """The caller may do with them what it wants; the bridge may have to tell them once more."""
    return {name: feedback.observation.copy() for name, feedback in found.items()}


def _own_infos(found: Mapping[str, Feedback]) -> dict[str, dict[str, Any]]:
    return {name: dict(feedback.info) for name, feedback in found.items()}


def _each(found: Mapping[str, Feedback], field: str) -> dict[str, Any]:
    return {name: getattr(feedback, field) for name, feedback in found.items()}
