"""One agent of a simulator as a Gymnasium environment, direct or through a daemon's hub."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

import gymnasium
import numpy as np

from ospbridge.envs.annotating import not_annotated
from ospbridge.envs.arguments import told_apart
from ospbridge.envs.copying import not_copied
from ospbridge.envs.env_spec import spec_of_agent
from ospbridge.envs.joining import Joining
from ospbridge.envs.noticing import tell_of_doubt
from ospbridge.envs.options import DEFAULTS, Options
from ospbridge.envs.panel import FPS, no_render_mode, render_modes
from ospbridge.envs.seeding import drawn_seed, osp_seed
from ospbridge.envs.spaces import gym_space
from ospbridge.errors import OspBridgeError, SessionClosed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ospbridge.envs.seat import Seat
    from ospbridge.envs.watched import WatchedSeat
    from ospbridge.interface import AgentInterface
    from ospbridge.session.hub_client import NextNote

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

    @told_apart
    def __init__(
        self,
        simulator: str | None = None,
        agent: str | None = None,
        *,
        bridge: str | None = None,
        **given: Unpack[Options],
    ) -> None:
        options = DEFAULTS | given
        joining = Joining(simulator, bridge, options)
        render_mode, record = options["render_mode"], joining.record
        self.render_mode = render_mode
        self._watched: WatchedSeat | None = None
        self._simulator = simulator
        self._next_note: NextNote | None = None
        self._seat: Seat | None = None
        seat: Seat
        if joining.direct:
            seat = joining.direct_seat(agent)
        else:
            seat = attached = joining.hub_seat(agent)
            self._next_note = attached.next_note
        self._seat = seat
        if record is not None or render_mode is not None:
            from ospbridge.envs.watched import WatchedSeat

            seat = self._seat = self._watched = WatchedSeat(
                seat, joining.addresses[0], record, render_mode, spec_of_agent(self)
            )
        self.interface: AgentInterface = seat.interface
        # Also when the environment is never closed: collected, or alive when the interpreter exits.
        self._finalizer = weakref.finalize(self, seat.close)
        self.observation_space = gym_space(seat.observation_space)
        self.action_space = gym_space(seat.action_space)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Reset the world (of all agents: OSP resets are global). Raises BarrierStuck where others do not reset."""
        super().reset(seed=seed)
        effective = drawn_seed(self.np_random) if seed is None else osp_seed(seed)
        feedback = self._open().reset(effective)
        if feedback.reason:
            tell_of_doubt([feedback])
        return feedback.observation, feedback.info

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """One step of the world. What the bridge cuts is truncated, never terminated."""
        seat = self._seat
        if seat is None:
            seat = self._open()
        try:
            feedback = seat.step(action)
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
            seat.cancel_step()
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
        if self._next_note is None:
            raise not_annotated(self._simulator)
        self._next_note.set(action_logp, action_dist_inputs, weights_seq_no, action)

    def render(self) -> Any:
        """Sensors and inputs over time: text for "ansi", uint8[720, 960, 3] for "rgb_array"."""
        if self._watched is None or self.render_mode is None:
            raise no_render_mode()
        return self._watched.render()

    def close(self) -> None:
        """Give the agent back, within 2 s. Safe to call again, and from another thread than the one that steps."""
        self._seat = None
        self._finalizer()

    def __getstate__(self) -> NoReturn:
        raise not_copied(self, "gymnasium.make(env.spec)")

    def _open(self) -> Seat:
        if self._seat is None:
            raise SessionClosed("this environment was closed")
        return self._seat
