"""What the requests of one connection come to: agents taken and given back, resets, actions, and what they brought."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.errors import LocalProtocolError, OspBridgeError
from ospbridge.hub.descriptions import AgentDescription
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ospbridge.daemon.attachment import Attachment, Driver, HeldAgent
    from ospbridge.daemon.conductor import Conductor
    from ospbridge.hub.status import StatusReply

__all__ = ["MOST_PATTERNS", "HubAnswers"]

MOST_PATTERNS: Final = 1024
"""Names and globs that one request may give."""
LONGEST: Final = 3600.0
"""Seconds that are reckoned at most for the steps of one action, or of one reset, together."""


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
            if not attachment.annotates:
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
        conductor.need_simulator()
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
        if attachment.annotates:
            raise LocalProtocolError(
                f"the environment of agent {attachment.name!r} said that it annotates, and this step comes without",
                hint="call env.unwrapped.annotate(action_logp=..., action_dist_inputs=...) before each step",
            )


def _not_mine(name: str) -> LocalProtocolError:
    return LocalProtocolError(f"agent {name!r} is not attached by this connection", hint="attach to it first")
