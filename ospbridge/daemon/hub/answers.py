"""What the requests of one connection come to: agents taken and given back, resets, actions, and what they brought."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ospbridge.daemon.attachment import State
from ospbridge.errors import LocalProtocolError, OspBridgeError
from ospbridge.finite import all_finite
from ospbridge.hub.descriptions import AgentDescription
from ospbridge.hub.recurring import FLOAT, AgainFrame, NumbersFrame
from ospbridge.hub.replies import (
    AgentFeedback,
    Attached,
    Detached,
    Feedbacks,
    HubReply,
    Moments,
    Observing,
    Refusal,
)
from ospbridge.hub.requests import (
    AnnotatedStep,
    Attach,
    Detach,
    Hello,
    HubRequest,
    MomentsSince,
    Observe,
    Reset,
    Step,
)
from ospbridge.interface import DrawnSeed, Match
from ospbridge.task.base import ANY_NUMBER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from ospbridge.daemon.attachment import Attachment, Driver, HeldAgent
    from ospbridge.daemon.conductor import Conductor
    from ospbridge.hub.status import StatusReply

    Move = tuple[Attachment, bytes]

__all__ = ["MOST_PATTERNS", "HubAnswers", "LoneStep", "RequestTemplate"]

MOST_PATTERNS: Final = 1024
"""Names and globs that one request may give."""
LONGEST: Final = 3600.0
"""Seconds that are reckoned at most for the steps of one action, or of one reset, together."""
SHORT: Final = 4096
"""Bytes of a request that is copied once more rather than looked at in its place."""
LONG: Final = 65_536
"""Numbers of observations beside which the making of a message takes no time."""
_least: Final = np.minimum.reduce
_most: Final = np.maximum.reduce


class HubAnswers:
    """For ``driver``, whose environments' agents it keeps."""

    def __init__(self, conductor: Conductor, driver: Driver, status: Callable[[], StatusReply]) -> None:
        self.driver = driver
        self._conductor = conductor
        self._status = status
        self._attachments: dict[str, Attachment] = {}
        self._annotates = False
        """Some of them annotate their steps."""

    def leave(self, why: str) -> None:
        """The client is gone: its agents rest, and nobody waits for them. Safe to call again."""
        attachments = tuple(self._attachments.values())
        self._attachments.clear()
        self._conductor.leave(attachments, why)
        self._conductor.observers.leave(self)

    # --- steps -----------------------------------------------------------------------------------------------------

    def moves(self, request: Step | AnnotatedStep) -> list[tuple[Attachment, bytes]]:
        """Whom it acts for, and how. Raises LocalProtocolError."""
        mine = self._attachments
        try:
            if type(request) is Step:
                moves = [(mine[name], inputs) for name, inputs in request.moves]
                if self._annotates:
                    _check_unannotated(moves)
                return moves
            assert isinstance(request, AnnotatedStep)
            return self._annotated(request)
        except KeyError as error:
            raise _not_mine(error.args[0]) from None

    def _annotated(self, request: AnnotatedStep) -> list[tuple[Attachment, bytes]]:
        moves = []
        for name, inputs, note in request.moves:
            attachment = self._attachments[name]
            if not attachment.policy.annotates:
                raise LocalProtocolError(f"agent {name!r} was attached without saying that it annotates")
            attachment.read_note(note)
            moves.append((attachment, inputs))
        return moves

    def stepped(self, moves: Sequence[tuple[Attachment, bytes]]) -> HubReply:
        """What the step brought for each of them, or the error of one for which it did not happen."""
        for attachment, _ in moves:
            if attachment.feedback is None:
                return Refusal.of(attachment.not_playing())
        return Feedbacks([_feedback(attachment) for attachment, _ in moves])

    # --- all others ------------------------------------------------------------------------------------------------

    async def answer(self, request: HubRequest) -> HubReply:
        """The reply to anything but a step."""
        try:
            if isinstance(request, Reset):
                return await self._reset(request)
            if isinstance(request, Attach):
                return self._attach(request)
            if isinstance(request, Detach):
                return self._detach()
            if isinstance(request, Observe):
                return self._observe(request)
            if isinstance(request, MomentsSince):
                return await self._since(request)
            if isinstance(request, Hello):
                raise LocalProtocolError("a second hello on one connection")
            return self._status()
        except OspBridgeError as error:
            return Refusal.of(error)

    def _attach(self, request: Attach) -> Attached:
        conductor = self._conductor
        named = max(len(request.agents), len(request.meant))
        if named > MOST_PATTERNS:
            raise LocalProtocolError(
                f"{named} agents were named, the limit is {MOST_PATTERNS}", hint="name a glob"
            )
        meant = [Match(name=name, type=kind) for name, kind in request.meant]
        attachments = conductor.attach(request.agents, self.driver, annotates=request.annotates, meant=meant)
        if any(a.name in self._attachments for a in attachments):
            conductor.leave(attachments)
            raise LocalProtocolError("this connection is attached to that agent already")
        self._attachments.update((a.name, a) for a in attachments)
        self._annotates = self._annotates or request.annotates
        limits = conductor.settings.limits
        # All agents step together, as often as the one that wants it most.
        tasks = [held.task for held in conductor.lockstep.held.values()]
        return Attached(
            [_description(a.held) for a in attachments],
            _together(limits.step, max(task.action_repeat for task in tasks)),
            limits.reset + _together(limits.step, max(task.settle_steps for task in tasks)),
        )

    async def _reset(self, request: Reset) -> Feedbacks:
        attachments = list(self._attachments.values())
        if not attachments:
            raise LocalProtocolError("this connection is attached to no agent", hint="attach first")
        seed = DrawnSeed(request.seed) if request.drawn else request.seed
        await self._conductor.reset(attachments, seed, request.thread)
        return Feedbacks([_feedback(attachment) for attachment in attachments])

    def _detach(self) -> Detached:
        attachments = list(self._attachments.values())
        self._attachments.clear()
        self._conductor.leave(attachments)
        return Detached()

    def _observe(self, request: Observe) -> Observing:
        conductor = self._conductor
        conductor.supervisor.need_simulator()
        held, latest = conductor.observers.join(request.agent, self)
        return Observing(_description(held), latest)

    async def _since(self, request: MomentsSince) -> Moments:
        return await self._conductor.observers.since(request.agent, self, request.after, request.wait)


def _together(limit: float, steps: int) -> float:
    """Seconds that several steps may take, each of which has a limit of its own."""
    return max(limit, min(limit * steps, LONGEST))


def _description(held: HeldAgent) -> AgentDescription:
    task = held.task
    return AgentDescription.of(
        held.interface,
        task.observation_space,
        task.action_space,
        observation_names=task.observation_names,
        action_names=task.action_names,
        scenario=task.scenario_name,
    )


def _feedback(attachment: Attachment) -> AgentFeedback:
    feedback = attachment.feedback
    assert feedback is not None
    info = feedback.info
    return AgentFeedback(
        attachment.name,
        bytearray(feedback.observation),
        attachment.infos.tobytes(),
        feedback.reward,
        feedback.terminated,
        feedback.truncated,
        feedback.reason,
        info["osp_seed"],
        info["events"],
        info["values"],
        info["restored"],
    )


def _check_unannotated(moves: Iterable[tuple[Attachment, bytes]]) -> None:
    for attachment, _ in moves:
        if attachment.policy.annotates:
            raise LocalProtocolError(
                f"the environment of agent {attachment.name!r} said that it annotates, and this step comes without",
                hint="call env.unwrapped.annotate(action_logp=..., action_dist_inputs=...) before each step",
            )


def _not_mine(name: str) -> LocalProtocolError:
    return LocalProtocolError(f"agent {name!r} is not attached by this connection", hint="attach to it first")


# --- steps of the same agents again and again ------------------------------------------------------------------------


class LoneStep(NamedTuple):
    """A request with its length: ``size`` bytes that begin with ``head`` and end with an action."""

    mover: Attachment
    head: bytes
    size: int


class RequestTemplate:
    """The latest step of a connection, and those of the same agents that follow it."""

    __slots__ = (
        "_as_given",
        "_bounds",
        "_known",
        "_reply",
        "_rows",
        "_sizes",
        "lone",
        "movers",
    )

    def __init__(self) -> None:
        self.movers: list[Attachment] = []
        """Whose the latest step was, with an action of so many bytes each: ``_sizes``.

        Another list where they are others.
        """
        self._sizes: list[int] = []
        self._known = False
        """What follows is known of them, because they have made a step more."""
        self.lone: LoneStep | None = None
        """One step more, where it is one of a single agent."""
        self._bounds: list[slice] = []
        """Where in the bytes of all actions each is."""
        self._rows: list[tuple[Attachment, slice]] = []
        """Where among the numbers of all actions each is; none where one cannot be read so, as a choice cannot."""
        self._as_given: tuple[float, float] | None = None
        """Between these the numbers of every action are the inputs as they are."""
        self._reply: NumbersFrame | None = None

    def forget(self) -> None:
        """Agents may have come and gone: there is no step of which there may be one more."""
        self.learn(())

    def learn(self, moves: Sequence[Move]) -> None:
        """A step was asked for by the names of its agents."""
        movers = [attachment for attachment, _ in moves]
        sizes = [len(action) for _, action in moves]
        if movers == self.movers and sizes == self._sizes:
            return
        self.movers, self._sizes = movers, sizes
        self._known = False
        self.lone = self._reply = None

    def moves(self, actions: bytes) -> tuple[list[Move], Sequence[NDArray[np.float32] | bytes] | None]:
        """One step more; with the inputs of all, where reading them one by one would take longer.

        Raises LocalProtocolError where there was no step, or one with actions of other sizes.
        """
        movers = self.movers
        if not self._known:
            if not movers:
                raise LocalProtocolError("one step more was asked for, and there was none before")
            self._know()
        bounds = self._bounds
        if len(actions) != bounds[-1].stop:
            raise LocalProtocolError(
                f"the actions of one step more have {len(actions)} bytes, those before had {bounds[-1].stop}"
            )
        if len(movers) == 1:
            return [(movers[0], actions)], None
        parts = [actions[where] for where in bounds]
        return list(zip(movers, parts, strict=True)), self._inputs(actions, parts)

    def _know(self) -> None:
        """What is needed for those that follow."""
        movers, sizes = self.movers, self._sizes
        self._known = True
        self._bounds = [slice(*both) for both in pairwise(accumulate(sizes, initial=0))]
        self._rows = []
        self._as_given = None
        if any(size % FLOAT.itemsize for size in sizes):
            return
        if len(movers) == 1:
            again = AgainFrame(sizes[0] // FLOAT.itemsize)
            if len(again.frame) <= SHORT:
                self.lone = LoneStep(movers[0], again.head, len(again.frame))
        elif len(set(movers)) == len(movers) and all(
            m.held.takes(size) for m, size in zip(movers, sizes, strict=True)
        ):
            rows = (slice(b.start // FLOAT.itemsize, b.stop // FLOAT.itemsize) for b in self._bounds)
            self._rows = list(zip(movers, rows, strict=True))
            if any(sizes):
                self._as_given = _common(mover.held.task.as_given for mover in movers)

    def _inputs(self, actions: bytes, parts: list[bytes]) -> Sequence[NDArray[np.float32] | bytes] | None:
        """None where there is something to tell of one of them, or one plays no more."""
        if not self._rows:
            return None
        for mover, _ in self._rows:
            if mover.state is not State.PLAYING:
                return None
        numbers = np.frombuffer(actions, FLOAT)
        if not all_finite(numbers):
            return None
        limits = self._as_given
        if limits is not None and (
            limits == ANY_NUMBER or (limits[0] <= _least(numbers) and _most(numbers) <= limits[1])
        ):
            return parts
        try:
            return [mover.held.task.inputs(numbers[row]) for mover, row in self._rows]
        except OspBridgeError:
            return None

    def reply(self) -> bytearray | None:
        """To one step more; None where there is more to tell than numbers."""
        movers = self.movers
        if not movers or movers[0].feedback is None:
            return None
        seed = movers[0].feedback.info["osp_seed"]
        if self._reply is None or self._reply.seed != seed:
            sizes = [(len(mover.observation), len(mover.infos)) for mover in movers]
            if sum(size for size, _ in sizes) > LONG:
                return None
            self._reply = NumbersFrame(sizes, seed)
        return self._reply.frame(movers)


def _common(limits: Iterable[tuple[float, float] | None]) -> tuple[float, float] | None:
    """What lies between all of these; None where one of them is None."""
    lowest, highest = ANY_NUMBER
    for both in limits:
        if both is None:
            return None
        lowest, highest = max(lowest, both[0]), min(highest, both[1])
    return lowest, highest
