"""One agent of a simulator as a Gymnasium environment, direct or through a daemon's hub."""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

import gymnasium
import numpy as np

from ospbridge.envs.annotations import annotate
from ospbridge.envs.connect import Connector
from ospbridge.envs.conventions import drawn_seed, gym_space, not_copied, osp_seed, tell_of_doubt
from ospbridge.envs.options import DEFAULTS, Options, validate_arguments
from ospbridge.envs.panel import FPS, no_render_mode, render_modes
from ospbridge.errors import OspBridgeError, SessionClosed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ospbridge.envs.backend import Backend
    from ospbridge.envs.observers import RecordingBackend
    from ospbridge.interface import AgentInterface

__all__ = ["AgentEnv"]


class AgentEnv(gymnasium.Env["NDArray[np.float32]", Any]):
    """``gymnasium.make("ospbridge/Agent-v0", simulator="127.0.0.1:45454", agent="cart")``.

    Observation: float32[n_outputs], the agent's outputs in the simulator's unit. Action: float32[n_inputs], its
    inputs. ``reset`` resets the world, takes one neutral step and returns what it brought, because an OSP reset
    carries no observation. ``info`` always has the keys ``osp_seed`` (the seed the simulator was given), ``infos``
    (by name), ``events``, ``values``, ``restored`` (the completion was lost and read back) and ``reason`` (why the
    bridge truncated the episode).

    With ``simulator`` the environment joins the simulator itself; with ``bridge`` ("unix:PATH") it attaches to a
    running ``ospbridge connect``; with neither it attaches to the daemon at the default path. A daemon on another host
    is "tls://HOST:PORT", with the PEM files ``tls_cert``, ``tls_key`` and ``tls_ca`` (the CA of the daemon's
    certificate). Limits are in seconds.
    ``scenario`` is a TOML file or the name of a shipped one: spaces, reward and ends are as it says. A daemon plays its
    own scenario, so it must have been started with the same. Without one, ``not_finite`` says what becomes of NaN and
    infinity in observations and rewards: "end" (the default) truncates the episode with the reason, "zero" or "pass".
    ``record`` names a directory that every episode is written to as it ends. ``render_mode`` "ansi" or "rgb_array"
    shows the agent's sensors and inputs over time.
    ``annotates=True`` says to a daemon that ``annotate`` will be called before each step: a learner upstream needs to
    know what the actions were drawn from.
    """

    metadata: dict[str, Any] = {"render_modes": render_modes(), "render_fps": FPS}  # noqa: RUF012  # as gymnasium.Env declares it

    @validate_arguments
    def __init__(
        self,
        simulator: str | None = None,
        agent: str | None = None,
        *,
        bridge: str | None = None,
        **given: Unpack[Options],
    ) -> None:
        options = DEFAULTS | given
        connector = Connector(simulator, bridge, options)
        self.render_mode = options["render_mode"]
        self._recording: RecordingBackend | None = None
        self._backend: Backend | None = None
        backend: Backend = connector.one(agent)
        if connector.record is not None or self.render_mode is not None:
            from ospbridge.envs.observers import RecordingBackend, spec_of_agent

            backend = self._recording = RecordingBackend(
                backend, connector.addresses[0], connector.record, self.render_mode, spec_of_agent(self)
            )
        self._backend = backend
        # Also when the environment is never closed: collected, or alive when the interpreter exits.
        self._finalizer = weakref.finalize(self, backend.close)
        self._annotate = partial(annotate, list(backend.next_notes.values()), simulator)
        ((self._name, taken),) = backend.agents.items()
        self.interface: AgentInterface = taken.interface
        self.observation_space = gym_space(taken.observation_space)
        self.action_space = gym_space(taken.action_space)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Reset the world (of all agents: OSP resets are global). Raises BarrierStuck where others do not reset."""
        super().reset(seed=seed)
        effective = drawn_seed(self.np_random) if seed is None else osp_seed(seed)
        feedback = self._open().reset(effective)[self._name]
        if feedback.reason:
            tell_of_doubt([feedback])
        return feedback.observation, feedback.info

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """One step of the world. What the bridge cuts is truncated, never terminated; ``info["reason"]`` says why.

        Raises BarrierStuck where the requests were taken and the step did not come within its limit.
        """
        backend = self._backend
        if backend is None:
            backend = self._open()
        try:
            feedback = backend.step_one(action)
            return (
                feedback.observation,
                feedback.reward,
                feedback.terminated,
                feedback.truncated,
                feedback.info,
            )
        except OspBridgeError:
            raise
        except BaseException:
            backend.cancel_step()
            raise

    def annotate(
        self,
        *,
        action_logp: Any,
        action_dist_inputs: Any,
        weights_seq_no: int | None = None,
        action: Any = None,
    ) -> None:
        """Say what the next step's action was drawn from, for whoever learns upstream of the daemon.

        ``action_logp``: the logarithm of its probability. ``action_dist_inputs``: float32[k], what the policy put out:
        the logits of a discrete action; the means and then the logarithms of the standard deviations of another.
        ``weights_seq_no``: which of the upstream's weights acted. ``action``: float32[m], the action as it was drawn,
        where the one that ``step`` is given was stretched or limited afterwards. Raises LocalProtocolError for what is
        not finite or has another size than before, UsageError where the environment was not made with
        ``annotates=True``.
        """
        self._annotate(
            action_logp=[action_logp],
            action_dist_inputs=[action_dist_inputs],
            weights_seq_no=weights_seq_no,
            action=[action],
        )

    def render(self) -> Any:
        """Sensors and inputs over time: text for "ansi", uint8[720, 960, 3] for "rgb_array"."""
        if self._recording is None or self.render_mode is None:
            raise no_render_mode()
        return self._recording.render()

    def close(self) -> None:
        """Give the agent back, within 2 s. Safe to call again, and from another thread than the one that steps."""
        self._backend = None
        self._finalizer()

    def __getstate__(self) -> NoReturn:
        raise not_copied(self, "gymnasium.make(env.spec)")

    def _open(self) -> Backend:
        if self._backend is None:
            raise SessionClosed("this environment was closed")
        return self._backend
