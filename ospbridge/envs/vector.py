"""Many agents as one Gymnasium vector environment: of one simulator, of a fleet of them, or of daemons' hubs.

How episodes end and begin again is said in docs/explanation/autoreset.md.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final, NoReturn, Unpack

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from ospbridge.envs.annotating import annotate_rows, not_annotated
from ospbridge.envs.arguments import told_apart
from ospbridge.envs.copying import not_copied
from ospbridge.envs.env_spec import spec_of_agent
from ospbridge.envs.groups.beginning_again import groups_in_mask, mask_in, mode_named
from ospbridge.envs.groups.fleet import Turn
from ospbridge.envs.groups.fleet_making import fleet_of
from ospbridge.envs.groups.group_seats import seats_of
from ospbridge.envs.groups.infos import InfoColumns, in_columns
from ospbridge.envs.groups.rows import FeedbackRows, all_in_rows
from ospbridge.envs.groups.vector_onlookers import looked_on
from ospbridge.envs.joining import Joining
from ospbridge.envs.noticing import tell_of_doubt
from ospbridge.envs.options import DEFAULTS, Options
from ospbridge.envs.panel import FPS, no_render_mode, render_modes
from ospbridge.envs.seeding import each_seed
from ospbridge.envs.spaces import gym_space
from ospbridge.errors import LocalProtocolError, OspBridgeError, SessionClosed
from ospbridge.session.one_thread import OneThread
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ospbridge.envs.groups.fleet import Fleet
    from ospbridge.envs.groups.group import Found
    from ospbridge.envs.groups.group_seats import GroupSeats
    from ospbridge.envs.groups.vector_onlookers import VectorOnlookers

__all__ = ["OspVectorEnv"]


LEAVES_WITHIN: Final = 2.0
"""Seconds for a thread that steps to notice that another one has closed the environment."""


class OspVectorEnv(VectorEnv["NDArray[np.float32]", Any, "NDArray[Any]"]):
    """``gymnasium.make_vec("ospbridge/Agent-v0", num_envs=4, simulator="127.0.0.1:45454", agents="robot*")``.

    Environment i is agent i: those of the first simulator in its order, then those of the next. ``simulator`` is an
    address or several (a fleet), ``bridge`` one hub or several; ``agents`` a name, a glob, or several, for each of
    them. ``num_envs`` must equal the number of agents found.

    The agents of one simulator step and reset together: the end of one's episode truncates the others', with the
    reason in ``info``; simulators of a fleet do so each on its own. A lost simulator truncates its environments and is
    rebuilt by their next reset. ``scenario`` is as in ``AgentEnv``, and says which agents where ``agents`` does not.
    Autoreset is as gymnasium's ``SyncVectorEnv`` has it, in all three modes; observations, actions and infos are those
    of ``AgentEnv``. Hubs on other hosts ("tls://HOST:PORT") all get the same TLS files, as ``AgentEnv`` has them.
    Limits are in seconds. ``record``, ``render_mode`` and ``annotates`` are as in ``AgentEnv``, for each environment.
    """

    @told_apart
    def __init__(
        self,
        num_envs: int = 1,
        simulator: str | Sequence[str] | None = None,
        agents: str | Sequence[str] = (),
        *,
        bridge: str | Sequence[str] | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        copy: bool = True,
        **given: Unpack[Options],
    ) -> None:
        options = DEFAULTS | given
        self.autoreset_mode = mode_named(autoreset_mode)
        joining = Joining(simulator, bridge, options)
        render_mode, record = options["render_mode"], joining.record
        looked_at = record is not None or render_mode is not None
        fleet = fleet_of(joining, agents, num_envs, in_rows=not looked_at)
        self._next_notes = [note for group in fleet.groups for note in group.next_notes.values()]
        self._simulator = simulator
        self._onlookers: VectorOnlookers | None = None
        try:
            if looked_at:
                self._onlookers = looked_on(
                    fleet.groups, joining.addresses, record, render_mode, spec_of_agent(self)
                )
        except BaseException:
            fleet.close()
            raise
        # Also when the environment is never closed: collected, or alive when the interpreter exits.
        self._finalizer = weakref.finalize(self, _leave, fleet, self._onlookers)
        self._in_use = OneThread("the agents of a vector environment")
        # From here on close() has something to do.
        self._fleet: Fleet | None = fleet
        self.num_envs = num_envs
        self.render_mode = render_mode
        mode = self.autoreset_mode
        self.metadata = {"render_modes": render_modes(), "render_fps": FPS, "autoreset_mode": mode}
        self.copy = copy
        self._groups = seats_of(fleet.groups)
        group = fleet.groups[0]
        name = self._groups[0].names[0]
        self.single_observation_space = gym_space(group.observation_spaces[name])
        self.single_action_space = gym_space(group.action_spaces[name])
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._observations = np.zeros((num_envs, *group.observation_spaces[name].low.shape), np.float32)
        self._rewards = np.zeros(num_envs, np.float64)
        self._terminations = np.zeros(num_envs, np.bool_)
        self._truncations = np.zeros(num_envs, np.bool_)
        self._infos: list[dict[str, Any] | None] = [None] * num_envs
        self._columns = InfoColumns()
        self._sent: list[tuple[GroupSeats, Turn]] = []

    # --- resets ----------------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Reset all worlds, or those that ``options["reset_mask"]`` (bool[num_envs]) covers.

        ``seed``: an int gives environment i the seed ``seed + i``, a sequence says each. A world takes that of its
        first environment. Raises BarrierStuck where other clients do not reset.
        """
        with self._in_use:
            self._ready()
            seeds = each_seed(seed, self.num_envs)
            mask = mask_in(options)
            chosen = self._groups
            if mask is not None:
                chosen = [
                    self._groups[at] for at in groups_in_mask(mask, [len(s.names) for s in self._groups])
                ]
            super().reset(seed=int(seed) if isinstance(seed, (int, np.integer)) else None)
            for seats in chosen:
                if (own := seeds[seats.first]) is not None:
                    seats.seed(own)
            self._infos = [None] * self.num_envs
            self._begin_again(chosen)
            for seats in chosen:
                self._terminations[seats.slice] = self._truncations[seats.slice] = False
            return self._told_observations(), self._told_infos()

    def _begin_again(self, chosen: Sequence[GroupSeats]) -> None:
        """Reset worlds side by side."""
        fleet = self._open()
        if self._onlookers is not None:
            self._onlookers.resetting(at for seats in chosen for at in seats.numbers)
        turns = [(seats, Turn(self._groups.index(seats), seats.draw())) for seats in chosen]
        if turns:
            fleet.send([turn for _, turn in turns])
            results = fleet.recv()
            for (seats, _), found in zip(turns, results, strict=True):
                if not isinstance(found, Exception):
                    self._take_begun(seats, found)
            _raise_first(results)

    def _take_begun(self, seats: GroupSeats, found: Found) -> None:
        seats.ended = False
        tell_of_doubt(found[name] for name in seats.names)
        for at, name in enumerate(seats.names, seats.first):
            feedback = found[name]
            self._observations[at] = feedback.observation
            self._infos[at] = feedback.info
            if self._onlookers is not None:
                self._onlookers.began(at, feedback)

    # --- steps -----------------------------------------------------------------------------------------------------

    def step(
        self, actions: Any
    ) -> tuple[NDArray[np.float32], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """One action of each environment. Raises BarrierStuck where other clients hold a simulator up."""
        sent: list[tuple[GroupSeats, Turn]] = []
        try:
            with self._in_use:
                self._send(actions)
                sent = self._sent
                return self._recv()
        except OspBridgeError:
            raise
        except BaseException:
            self._cancel_steps(sent or self._sent)
            raise

    def send(self, actions: Any) -> None:
        """The first half of ``step``: returns while the simulators work. ``recv`` must follow."""
        with self._in_use:
            self._send(actions)

    def _send(self, actions: Any) -> None:
        fleet = self._ready()
        try:
            given = len(actions)
        except TypeError:
            given = None
        if given != self.num_envs:
            raise _not_each(actions, given, self.num_envs)
        if self._onlookers is not None:
            # They are told of them when the caller may have others in that place.
            actions = deepcopy(actions)
        turns = []
        for at, seats in enumerate(self._groups):
            if seats.ended and self.autoreset_mode is AutoresetMode.NEXT_STEP:
                turns.append((seats, Turn(at, seats.draw())))
            elif seats.ended or not seats.group.playing:
                raise seats.not_playing(self.autoreset_mode)
            else:
                try:
                    own = actions[seats.slice]
                except (TypeError, KeyError):
                    raise _not_each(actions, None, self.num_envs) from None
                turns.append((seats, Turn(at, actions=fleet.actions(seats.names, own))))
        fleet.send([turn for _, turn in turns])
        self._sent = turns

    def annotate(
        self,
        *,
        action_logp: Any,
        action_dist_inputs: Any,
        weights_seq_no: int | None = None,
        action: Any = None,
    ) -> None:
        """As ``AgentEnv.annotate``, with a row for each environment; those that are reset next are passed over."""
        if not self._next_notes:
            raise not_annotated(self._simulator)
        annotate_rows(self._next_notes, action_logp, action_dist_inputs, weights_seq_no, action)

    def recv(self) -> tuple[NDArray[np.float32], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """The second half of ``step``."""
        sent = self._sent
        try:
            with self._in_use:
                return self._recv()
        except OspBridgeError:
            raise
        except BaseException:
            self._cancel_steps(sent)
            raise

    def _recv(self) -> tuple[NDArray[np.float32], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        # In this order: whoever closes from another thread forgets the fleet first.
        sent = self._sent
        fleet = self._open()
        if not sent:
            raise LocalProtocolError("no step is under way", hint="call send first")
        self._sent = []
        return self._received(fleet, sent)

    def _received(
        self, fleet: Fleet, sent: Sequence[tuple[GroupSeats, Turn]]
    ) -> tuple[NDArray[np.float32], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        results = fleet.recv()
        if self._onlookers is None and (rows := all_in_rows(results)):
            return self._told_rows(rows)
        finals: dict[str, Any] = {}
        ended = []
        for (seats, turn), found in zip(sent, results, strict=True):
            if isinstance(found, Exception):
                if self._onlookers is not None and not turn.seed:
                    self._onlookers.failed(seats.numbers, found)
                continue
            if turn.seed:
                self._take_begun(seats, found)
                self._rewards[seats.slice] = 0.0
                self._terminations[seats.slice] = self._truncations[seats.slice] = False
                continue
            seats.end_together(found)
            self._take_step(seats, found, finals)
            if seats.ended:
                ended.append(seats)
        if self._onlookers is not None:
            results += self._onlookers.took_turns(sent, results)
        _raise_first(results)
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            self._begin_again(ended)
        return (
            self._told_observations(),
            self._rewards.copy(),
            self._terminations.copy(),
            self._truncations.copy(),
            self._told_infos() | finals,
        )

    def _told_rows(
        self, rows: list[FeedbackRows]
    ) -> tuple[NDArray[np.float32], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """What a step told that all environments took, and that ended none of their episodes."""
        # The observations as they came stay as they are: whoever is lost next is cut with them.
        if len(rows) == 1:
            rewards = rows[0].rewards
            self._observations[:] = rows[0].observations
        else:
            rewards = np.concatenate([found.rewards for found in rows])
            np.concatenate([found.observations for found in rows], out=self._observations)
        return (
            self._told_observations(),
            rewards,
            np.zeros(self.num_envs, np.bool_),
            np.zeros(self.num_envs, np.bool_),
            self._columns.of(rows),
        )

    def _take_step(self, seats: GroupSeats, found: Found, finals: dict[str, Any]) -> None:
        feedbacks = [found[name] for name in seats.names]
        mine = seats.slice
        # One call for all of them costs as much as one for each of three.
        np.concatenate([each.observation for each in feedbacks], out=self._observations[mine].reshape(-1))
        self._rewards[mine] = [each.reward for each in feedbacks]
        self._terminations[mine] = [each.terminated for each in feedbacks]
        self._truncations[mine] = [each.truncated for each in feedbacks]
        self._infos[mine] = [each.info for each in feedbacks]
        if seats.ended and self.autoreset_mode is AutoresetMode.SAME_STEP:
            for at, feedback in enumerate(feedbacks, seats.first):
                self._add_info(finals, {"final_obs": feedback.observation, "final_info": feedback.info}, at)

    # --- what is shown ---------------------------------------------------------------------------------------------

    def render(self) -> tuple[Any, ...]:
        """One for each environment, as ``AgentEnv.render`` has it. Raises UsageError without a render_mode."""
        if self._onlookers is None or self.render_mode is None:
            raise no_render_mode()
        return tuple(panel.render() for panel in self._onlookers.panels.values())

    # --- what is told ----------------------------------------------------------------------------------------------

    def _told_observations(self) -> NDArray[np.float32]:
        return self._observations.copy() if self.copy else self._observations

    def _told_infos(self) -> dict[str, Any]:
        """In gymnasium's layout, of those environments that have told one."""
        told = [info for info in self._infos if info is not None]
        infos = in_columns(told) if len(told) == self.num_envs else None
        if infos is None:
            infos = {}
            for at, info in enumerate(self._infos):
                if info is not None:
                    self._add_info(infos, info, at)
        return infos

    # --- the end ---------------------------------------------------------------------------------------------------

    def close_extras(self, **_: Any) -> None:
        """Give all agents back, within 2 s. Safe to call again, and from another thread than the one that steps."""
        fleet, self._fleet = getattr(self, "_fleet", None), None
        if fleet is not None:
            self._in_use.refuse()
            fleet.close()
            # Whoever stepped may still tell the observers.
            self._in_use.close(LEAVES_WITHIN)
            self._in_use.leave()
            self._finalizer()

    def __getstate__(self) -> NoReturn:
        raise not_copied(self, "gymnasium.make_vec(env.spec)")

    def _open(self) -> Fleet:
        if self._fleet is None:
            raise SessionClosed("this environment was closed")
        return self._fleet

    def _cancel_steps(self, sent: Sequence[tuple[GroupSeats, Turn]]) -> None:
        """Whatever was not interrupted itself may have gone on, and nobody was told."""
        self._sent = []
        for seats, turn in sent:
            seats.ended = bool(turn.seed)
        if self._fleet is not None:
            self._fleet.cancel_step([turn for _, turn in sent])

    def _ready(self) -> Fleet:
        fleet = self._open()
        if self._sent:
            raise LocalProtocolError("a step is under way", hint="call recv first")
        return fleet


def _leave(fleet: Fleet, onlookers: VectorOnlookers | None) -> None:
    """Give the agents back, then write what is under way."""
    try:
        fleet.close()
    finally:
        if onlookers is not None:
            onlookers.close()


def _not_each(actions: Any, given: int | None, count: int) -> LocalProtocolError:
    """The error for actions that are not one of each environment."""
    told = f"actions of type {type(actions).__name__}" if given is None else pluralize(given, "action")
    return LocalProtocolError(
        f"{told} for {pluralize(count, 'environment')}", hint="env.action_space.sample() shows the form"
    )


def _raise_first(results: Iterable[object]) -> None:
    """What concerns one world is raised when all have been taken in."""
    for result in results:
        if isinstance(result, Exception):
            raise result
