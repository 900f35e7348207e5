"""Many agents as one Gymnasium vector environment: of one simulator, of a fleet of them, or of daemons' hubs.

How episodes end and begin again is said in docs/explanation/autoreset.md.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import partial
from itertools import repeat
from operator import is_
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, Unpack

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from ospbridge.envs.annotations import annotate
from ospbridge.envs.backend import all_in_rows
from ospbridge.envs.connect import Connector
from ospbridge.envs.conventions import each_seed, gym_space, not_copied, tell_of_doubt
from ospbridge.envs.fleet import Turn, fleet_of
from ospbridge.envs.observers import Observers, spec_of_agent
from ospbridge.envs.options import DEFAULTS, Options, validate_arguments
from ospbridge.envs.panel import FPS, no_render_mode, render_modes
from ospbridge.errors import LocalProtocolError, OspBridgeError, SessionClosed, UsageError
from ospbridge.session.one_thread import OneThread
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ospbridge.envs.backend import FeedbackRows, Found
    from ospbridge.envs.fleet import Fleet, Group

__all__ = ["OspVectorEnv"]

Batch: TypeAlias = "tuple[NDArray[np.float32], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]"
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

    @validate_arguments
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
        self.autoreset_mode = mode = mode_named(autoreset_mode)
        connector = Connector(simulator, bridge, options)
        render_mode, record = options["render_mode"], connector.record
        observed = record is not None or render_mode is not None
        fleet = fleet_of(connector, agents, num_envs, in_rows=not observed)
        backends = [group.backend for group in fleet.groups]
        self._observers: Observers[int] | None = None
        try:
            if observed:
                placed = [
                    (address, agent)
                    for backend, address in zip(backends, connector.addresses, strict=True)
                    for agent in backend.agents.values()
                ]
                self._observers = Observers.of(
                    dict(enumerate(placed)),
                    record,
                    render_mode,
                    title=lambda at, name: f"{at}: {name}",
                    env_spec=spec_of_agent(self),
                )
        except BaseException:
            fleet.close()
            raise
        # Also when the environment is never closed: collected, or alive when the interpreter exits.
        self._finalizer = weakref.finalize(self, _leave, fleet, self._observers)
        self._in_use = OneThread("the agents of a vector environment")
        # From here on close() has something to do.
        self._fleet: Fleet | None = fleet
        notes = [note for backend in backends for note in backend.next_notes.values()]
        self._annotate = partial(annotate, notes, simulator)
        self._sent: list[Turn] = []
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.metadata = {"render_modes": render_modes(), "render_fps": FPS, "autoreset_mode": mode}
        first = next(iter(backends[0].agents.values()))
        self.single_observation_space = gym_space(first.observation_space)
        self.single_action_space = gym_space(first.action_space)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._latest = _Latest(num_envs, first.observation_space.low.shape, copy=copy)

    # --- resets ----------------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Reset all worlds, or those that ``options["reset_mask"]`` (bool[num_envs]) covers.

        ``seed``: an int gives environment i the seed ``seed + i``, a sequence says each. A world takes that of its
        first environment. Raises BarrierStuck where other clients do not reset.
        """
        with self._in_use:
            fleet = self._ready()
            seeds = each_seed(seed, self.num_envs)
            chosen = _groups_in_mask(options, fleet.groups, self.num_envs)
            super().reset(seed=int(seed) if isinstance(seed, (int, np.integer)) else None)
            for group in chosen:
                if (own := seeds[group.first]) is not None:
                    group.seed(own)
            latest = self._latest
            latest.infos = [None] * self.num_envs
            self._begin_again(chosen)
            for group in chosen:
                latest.begin(group)
            return latest.told_observations(), self._told_infos()

    def _begin_again(self, chosen: Sequence[Group[Any]]) -> None:
        """Reset worlds side by side."""
        fleet = self._open()
        if self._observers is not None:
            self._observers.resetting(at for group in chosen for at in group.numbers)
        if chosen:
            fleet.send([Turn(group, group.draw()) for group in chosen])
            results = fleet.recv()
            for group, found in zip(chosen, results, strict=True):
                if not isinstance(found, Exception):
                    self._take_begun(group, found)
            _raise_first(results)

    def _take_begun(self, group: Group[Any], found: Found) -> None:
        group.ended = False
        tell_of_doubt(found[name] for name in group.names)
        for at, name in enumerate(group.names, group.first):
            feedback = found[name]
            self._latest.observations[at] = feedback.observation
            self._latest.infos[at] = feedback.info
            if self._observers is not None:
                self._observers.began(at, feedback)

    # --- steps -----------------------------------------------------------------------------------------------------

    def step(self, actions: Any) -> Batch:
        """One action of each environment. Raises BarrierStuck where other clients hold a simulator up."""
        sent: list[Turn] = []
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
        if self._observers is not None:
            # They are told of them when the caller may have others in that place.
            actions = deepcopy(actions)
        turns = []
        for group in fleet.groups:
            if group.ended and self.autoreset_mode is AutoresetMode.NEXT_STEP:
                turns.append(Turn(group, group.draw()))
            elif group.ended or not group.backend.playing:
                raise group.not_playing(self.autoreset_mode)
            else:
                try:
                    own = actions[group.slice]
                except (TypeError, KeyError):
                    raise _not_each(actions, None, self.num_envs) from None
                turns.append(Turn(group, actions=fleet.actions(group.names, own)))
        fleet.send(turns)
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
        self._annotate(
            action_logp=action_logp,
            action_dist_inputs=action_dist_inputs,
            weights_seq_no=weights_seq_no,
            action=action,
        )

    def recv(self) -> Batch:
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

    def _recv(self) -> Batch:
        # In this order: whoever closes from another thread forgets the fleet first.
        sent = self._sent
        fleet = self._open()
        if not sent:
            raise LocalProtocolError("no step is under way", hint="call send first")
        self._sent = []
        results = fleet.recv()
        latest = self._latest
        if self._observers is None and (rows := all_in_rows(results)):
            return latest.of_rows(rows)
        finals: dict[str, Any] = {}
        ended = []
        for (group, seed, _), found in zip(sent, results, strict=True):
            if isinstance(found, Exception):
                if self._observers is not None and not seed:
                    self._observers.failed(group.numbers, found)
            elif seed:
                self._take_begun(group, found)
                latest.begin(group)
            else:
                group.end_together(found)
                latest.take_step(group, found)
                if group.ended:
                    ended.append(group)
                    self._add_finals(group, found, finals)
        if self._observers is not None:
            results += self._observers.stepped_each(
                (at, turn.actions[name], found[name])
                for turn, found in zip(sent, results, strict=True)
                if not (turn.seed or isinstance(found, Exception))
                for at, name in enumerate(turn.group.names, turn.group.first)
            )
        _raise_first(results)
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            self._begin_again(ended)
        return (
            latest.told_observations(),
            latest.rewards.copy(),
            latest.terminations.copy(),
            latest.truncations.copy(),
            self._told_infos() | finals,
        )

    def _add_finals(self, group: Group[Any], found: Found, finals: dict[str, Any]) -> None:
        """What the last step of an episode told, where the next one begins in the same step."""
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            for at, name in enumerate(group.names, group.first):
                last = {"final_obs": found[name].observation, "final_info": found[name].info}
                self._add_info(finals, last, at)

    def _told_infos(self) -> dict[str, Any]:
        """In gymnasium's layout, of those environments that have told one."""
        each = self._latest.infos
        told = [info for info in each if info is not None]
        infos = in_columns(told) if len(told) == self.num_envs else None
        if infos is None:
            infos = {}
            for at, info in enumerate(each):
                if info is not None:
                    self._add_info(infos, info, at)
        return infos

    def render(self) -> tuple[Any, ...]:
        """One for each environment, as ``AgentEnv.render`` has it. Raises UsageError without a render_mode."""
        if self._observers is None or self.render_mode is None:
            raise no_render_mode()
        return tuple(panel.render() for panel in self._observers.panels.values())

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

    def _cancel_steps(self, sent: Sequence[Turn]) -> None:
        """Whatever was not interrupted itself may have gone on, and nobody was told."""
        self._sent = []
        for group, seed, _ in sent:
            group.ended = bool(seed)
            if self._fleet is not None and not seed:
                group.backend.cancel_step()

    def _ready(self) -> Fleet:
        fleet = self._open()
        if self._sent:
            raise LocalProtocolError("a step is under way", hint="call recv first")
        return fleet


def _leave(fleet: Fleet, observers: Observers[int] | None) -> None:
    """Give the agents back, then write what is under way."""
    try:
        fleet.close()
    finally:
        if observers is not None:
            observers.close()


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


# --- how episodes begin again ----------------------------------------------------------------------------------------


def mode_named(given: str | AutoresetMode) -> AutoresetMode:
    """Gymnasium's constant, its name or its value. Raises UsageError for anything else."""
    for mode in AutoresetMode:
        if given in (mode, mode.name, mode.value):
            return mode
    raise UsageError(
        f"autoreset_mode is one of {', '.join(AutoresetMode.__members__)}, got {given!r}",
        hint="see gymnasium.vector.AutoresetMode",
    )


def _groups_in_mask(options: Any, groups: Sequence[Group[Any]], count: int) -> Sequence[Group[Any]]:
    """The groups that ``options["reset_mask"]`` covers, all without one. Raises UsageError for what is none."""
    if options is None:
        return groups
    if not isinstance(options, Mapping):
        raise UsageError(
            f"options are a dict, got a {type(options).__name__}", hint='the only one is "reset_mask"'
        )
    mask = options.get("reset_mask")
    if mask is None:
        return groups
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (count,):
        given = f"{mask.dtype}{list(mask.shape)}" if isinstance(mask, np.ndarray) else type(mask).__name__
        raise UsageError(
            f'options["reset_mask"] must be a numpy array bool[{count}], got {given}',
            hint="terminations | truncations is one",
        )
    if not mask.any():
        raise UsageError(
            'options["reset_mask"] covers no environment', hint="leave the option out to reset all"
        )
    chosen = []
    for group in groups:
        part = mask[group.slice]
        if part.any() and not part.all():
            left_out = ", ".join(str(group.first + i) for i in np.flatnonzero(~part))
            raise UsageError(
                f'options["reset_mask"] covers only a part of environments {group.first} to {group.numbers[-1]}, which '
                f"are agents of one simulator and reset together: {left_out} left out",
                hint="cover a simulator's environments wholly or not at all",
            )
        if part.any():
            chosen.append(group)
    return chosen


# --- what is told, in gymnasium's layout -----------------------------------------------------------------------------


class _Latest:
    """What the environments were told latest, in one array each. ``copy``: observations are the caller's own."""

    def __init__(self, count: int, shape: tuple[int, ...], *, copy: bool) -> None:
        self.observations = np.zeros((count, *shape), np.float32)
        self.rewards = np.zeros(count, np.float64)
        self.terminations = np.zeros(count, np.bool_)
        self.truncations = np.zeros(count, np.bool_)
        self.infos: list[dict[str, Any] | None] = [None] * count
        self._columns = InfoColumns()
        self._copy = copy

    def begin(self, group: Group[Any]) -> None:
        """A reset was no step."""
        self.rewards[group.slice] = 0.0
        self.terminations[group.slice] = self.truncations[group.slice] = False

    def take_step(self, group: Group[Any], found: Found) -> None:
        feedbacks = [found[name] for name in group.names]
        mine = group.slice
        # One call for all of them costs as much as one for each of three.
        np.concatenate([each.observation for each in feedbacks], out=self.observations[mine].reshape(-1))
        self.rewards[mine] = [each.reward for each in feedbacks]
        self.terminations[mine] = [each.terminated for each in feedbacks]
        self.truncations[mine] = [each.truncated for each in feedbacks]
        self.infos[mine] = [each.info for each in feedbacks]

    def of_rows(self, rows: list[FeedbackRows]) -> Batch:
        """What a step told that all environments took, and that ended none of their episodes."""
        # The observations as they came stay as they are: whoever is lost next is cut with them.
        if len(rows) == 1:
            rewards = rows[0].rewards
            self.observations[:] = rows[0].observations
        else:
            rewards = np.concatenate([found.rewards for found in rows])
            np.concatenate([found.observations for found in rows], out=self.observations)
        return (
            self.told_observations(),
            rewards,
            np.zeros(len(rewards), np.bool_),
            np.zeros(len(rewards), np.bool_),
            self._columns.of(rows),
        )

    def told_observations(self) -> NDArray[np.float32]:
        return self.observations.copy() if self._copy else self.observations


class InfoColumns:
    """What ``in_columns`` makes of steps that bring rows, of which only the infos' numbers differ."""

    def __init__(self) -> None:
        self._seeds: list[int] = []
        """Of the worlds of the latest rows, whose agents stay the same."""
        self._keys: dict[str, Any] = {}
        """In the order of the first."""
        self._others: list[tuple[str, Any]] = []
        """What all of them have but flags: arrays to be copied, and what is empty."""
        self._flags: tuple[list[str], NDArray[np.bool_]] = [], np.ones((0, 0), np.bool_)
        """Columns of flags, whose names are behind one another: copied in one piece."""

    def of(self, worlds: Sequence[FeedbackRows]) -> dict[str, Any]:
        """Arrays of the caller's own, of the agents of all these, which have infos of the same names."""
        seeds = [rows.seed for rows in worlds]
        if seeds != self._seeds:
            self._learn(seeds, worlds)
        names, flags = self._flags
        flags = flags.copy()
        found = self._keys.copy()
        found.update(zip(names, flags, strict=False))
        for key, column in self._others:
            found[key] = column.copy()
        info_names = worlds[0].info_names
        if info_names:
            infos = found["infos"] = {}
            told = flags[len(names) :]
            every = [rows.infos for rows in worlds]
            numbers = (every[0] if len(every) == 1 else np.concatenate(every)).T.astype(float, order="C")
            for name, column, everybody in zip(info_names, numbers, told, strict=True):
                infos[name] = column
                infos["_" + name] = everybody
        return found

    def _learn(self, seeds: list[int], worlds: Sequence[FeedbackRows]) -> None:
        each = [feedback.info for rows in worlds for feedback in rows.values()]
        columns = in_columns(each) or {}
        self._seeds = seeds
        self._keys = dict.fromkeys(columns)
        names = [key for key, column in columns.items() if getattr(column, "dtype", None) == np.bool_]
        self._others = [(key, column) for key, column in columns.items() if key not in names]
        everybody = np.ones((len(worlds[0].info_names), len(each)), np.bool_)
        self._flags = names, np.vstack([*(columns[key] for key in names), everybody])


def in_columns(infos: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """What ``_add_info`` makes of the infos of all environments; None where they are not all alike."""
    found: dict[str, Any] = {}
    count = len(infos)
    if len(set(map(len, infos))) > 1:
        return None
    everybody = np.ones((len(infos[0]), count), np.bool_)
    for at, key in enumerate(infos[0]):
        try:
            column = [info[key] for info in infos]
        except KeyError:
            return None
        values = _values(column, count)
        if values is None:
            return None
        found[key] = values
        found["_" + key] = everybody[at]
    return found


def _values(column: list[Any], count: int) -> Any:
    """One key's, of all environments; None where they are not alike."""
    first = column[0]
    kind = type(first)
    # Nearly always all tell the same.
    if kind is str or kind is tuple:
        if column.count(first) < count:
            return np.fromiter(column, dtype=object, count=count)
        return _filled(count, object, first)
    if kind is dict and not any(column):
        return {} if set(map(type, column)) == {dict} else None
    same = all(map(is_, column, repeat(first)))
    if not same and len(set(map(type, column))) > 1:
        return None
    if kind is dict:
        return in_columns(column)
    if kind in (int, float, bool) or issubclass(kind, np.number):
        return _filled(count, kind, first) if same else np.array(column, dtype=kind)
    return None


def _filled(count: int, kind: type, value: Any) -> NDArray[Any]:
    """``numpy.full``, which takes longer."""
    values: NDArray[Any] = np.empty(count, kind)
    values.fill(value)
    return values
