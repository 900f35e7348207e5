"""One environment's connection to the hub: reads requests, has the conductor carry them out, sends the replies.

The socket is an ordinary non-blocking one: receive first, wait only when nothing is there. A connection that waits in
a barrier does not read; that its client is gone it learns from the server's watch over hang-ups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from ospbridge.daemon.attachment import Driver
from ospbridge.daemon.episodes import STOPPED
from ospbridge.errors import (
    ConfigurationError,
    HubError,
    LocalProtocolError,
    OspBridgeError,
    RemoteProtocolError,
)
from ospbridge.hub.framing import Incoming, encode
from ospbridge.hub.messages import (
    LONGEST_HOLD,
    VERSION,
    AgentDescription,
    AgentFeedback,
    AnnotatedStep,
    Attach,
    Attached,
    Detach,
    Detached,
    Feedbacks,
    Held,
    Hello,
    HubReply,
    HubRequest,
    Moments,
    MomentsSince,
    Observe,
    Observing,
    Reset,
    Step,
    Welcome,
    decode_request,
)
from ospbridge.hub.refusals import refusal
from ospbridge.observe import logs
from ospbridge.session.spinning import Spinning
from ospbridge.transport.unix import peer_pid

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable

    from ospbridge.daemon.attachment import Attachment, HeldAgent
    from ospbridge.daemon.conductor import Conductor
    from ospbridge.hub.messages import StatusReply

__all__ = ["HubConnection"]

log = logs.get(__name__)
SPINS: Final = 100
"""Tries of a receive before it waits, at most: some 50 us in which no other task runs."""
CORES: Final = 3
"""Of the environment, the daemon and the simulator: with fewer, spinning here delays the one that is waited for."""
LONGEST_NAME: Final = 200
"""Characters of a client's name that are kept."""
MOST_PATTERNS: Final = 1024
"""Names and globs that one request may give."""
PATIENCE: Final = 10.0
"""Seconds for a client to say who it is, and to take a reply."""


class HubConnection:
    """``host`` is the other host's address, empty for this one.

    ``alone`` says whether this is the only connection: only then may it spin, since all others wait meanwhile.
    """

    def __init__(
        self,
        sock: socket.socket,
        conductor: Conductor,
        *,
        status: Callable[[], StatusReply],
        alone: Callable[[], bool],
        spin: bool,
        software: str,
        pid: int,
        host: str = "",
    ) -> None:
        self._socket = sock
        self._host = host
        self._conductor = conductor
        self._status = status
        self._alone = alone
        self._welcome = Welcome(VERSION, software, pid)
        self._incoming = Incoming()
        self._outgoing = bytearray()
        self._unsent = bytearray()
        """Of notices that found no room."""
        self._spinning = Spinning(SPINS, enabled=spin, cores=CORES)
        self._attachments: dict[str, Attachment] = {}
        self._annotates = False
        """Some of them annotate their steps."""
        self._driver: Driver | None = None

    async def run(self) -> None:
        """Serve until the client leaves."""
        try:
            with trio.fail_after(PATIENCE):
                await self._greet()
            while True:
                request = decode_request(await self._receive())
                if isinstance(request, (Step, AnnotatedStep)):
                    reply = await self._step(request)
                else:
                    reply = await self._answer(request)
                await self._send(reply)
                if type(reply) is Feedbacks:
                    self._conductor.chronicle.settle()
                else:
                    # Steps and resets give way to other tasks in the session; a flood of anything else does so here.
                    await trio.lowlevel.checkpoint()
        except (RemoteProtocolError, trio.TooSlowError) as error:
            await self._dismiss(error)
        except ConfigurationError as error:
            log.warning("an environment of another host was lost", host=self._host, reason=error.message)
        except OSError:
            # The client is gone, in whatever way.
            pass
        except trio.Cancelled:
            self.hung_up(STOPPED)
            raise
        finally:
            self.hung_up()
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    def hung_up(self, why: str = "the connection to its environment ended") -> None:
        """The client is gone: its agents rest, and nobody waits for them."""
        attachments = tuple(self._attachments.values())
        self._attachments.clear()
        self._conductor.leave(attachments, why)
        self._conductor.observers.leave(self)

    async def _dismiss(self, error: Exception) -> None:
        """Say why before hanging up, if the other side listens."""
        if isinstance(error, OspBridgeError):
            reason = HubError(f"the daemon hung up: {error.message}", hint=error.hint)
        else:
            reason = HubError(f"the daemon hung up: nothing was said or read for {PATIENCE:g} s")
        log.warning("a client was dismissed", reason=reason.message, driver=str(self._driver or "unknown"))
        try:
            with trio.move_on_after(1.0):
                await self._send(refusal(reason))
        except (OSError, ConfigurationError):
            pass

    async def _greet(self) -> None:
        """The first request says who asks, and in which version."""
        hello = decode_request(await self._receive())
        if not isinstance(hello, Hello):
            raise _unfit(f"expected a hello, got {type(hello).__name__}")
        if hello.version != VERSION:
            raise _unfit(
                f"the client speaks version {hello.version} of the hub's messages, the daemon {VERSION}"
            )
        name = hello.client[:LONGEST_NAME] or "a client"
        if self._host:
            # Its certificate vouches for it; the kernel knows no process of another host.
            self._driver = Driver(name, hello.pid, self._host, self._held)
        else:
            self._driver = Driver(name, peer_pid(self._socket), on_held=self._held)
        await self._send(self._welcome)

    async def _receive(self) -> memoryview:
        """The next message, as bytes. Raises ConnectionResetError at the end of the stream."""
        incoming = self._incoming
        receive = self._socket.recv_into
        spinning = self._spinning
        tries = spinning.tries if self._attachments and self._alone() else 0
        began = 0.0
        while (message := incoming.next_message()) is None:
            try:
                count = receive(incoming.space())
            except BlockingIOError:
                if tries:
                    tries -= 1
                    continue
                began = began or trio.current_time()
                await trio.lowlevel.wait_readable(self._socket)
                continue
            if not count:
                raise ConnectionResetError
            incoming.received(count)
        if began:
            spinning.in_vain(trio.current_time() - began)
        else:
            spinning.paid()
        return message

    async def _send(self, reply: HubReply) -> None:
        outgoing = self._outgoing
        try:
            encode(reply, outgoing)
        except LocalProtocolError as error:
            encode(refusal(error), outgoing)
        if self._unsent:
            outgoing[:0] = self._unsent
            self._unsent.clear()
        try:
            sent = self._socket.send(outgoing)
        except BlockingIOError:
            sent = 0
        if sent < len(outgoing):
            await self._send_rest(memoryview(bytes(outgoing))[sent:])

    def _held(self, seconds: float, reason: str) -> None:
        """Tell the client, which waits for a reply, that it may take longer: its deadline counts from then on."""
        notice = bytearray()
        encode(Held(min(seconds, LONGEST_HOLD), reason), notice)
        # A client that waits has read all there was, so that a notice this small finds room; if not, it goes first
        # when the reply goes.
        try:
            sent = self._socket.send(notice) if not self._unsent else 0
        except BlockingIOError:
            sent = 0
        except (OSError, ConfigurationError):
            # Whoever reads the stream next learns that it has ended.
            return
        self._unsent += notice[sent:]

    async def _send_rest(self, rest: memoryview) -> None:
        """The client does not read fast enough."""
        with trio.fail_after(PATIENCE):
            while rest:
                await trio.lowlevel.wait_writable(self._socket)
                try:
                    rest = rest[self._socket.send(rest) :]
                except BlockingIOError:
                    continue

    # --- requests --------------------------------------------------------------------------------------------------

    async def _step(self, request: Step | AnnotatedStep) -> HubReply:
        mine = self._attachments
        try:
            if isinstance(request, AnnotatedStep):
                moves = self._annotated(request)
            else:
                moves = [(mine[name], inputs) for name, inputs in request.moves]
                if self._annotates:
                    _check_unannotated(moves)
            await self._conductor.step(moves)
            return Feedbacks([_feedback(attachment) for attachment, _ in moves])
        except KeyError as error:
            return refusal(_not_mine(error.args[0]))
        except OspBridgeError as error:
            return refusal(error)

    def _annotated(self, request: AnnotatedStep) -> list[tuple[Attachment, bytes]]:
        """Raises LocalProtocolError, KeyError."""
        moves = []
        for name, inputs, note in request.moves:
            attachment = self._attachments[name]
            if not attachment.annotates:
                raise LocalProtocolError(f"agent {name!r} was attached without saying that it annotates")
            attachment.read_note(note)
            moves.append((attachment, inputs))
        return moves

    async def _answer(self, request: HubRequest) -> HubReply:
        try:
            if isinstance(request, Reset):
                return await self._reset(request)
            if isinstance(request, Attach):
                return self._attach(request)
            if isinstance(request, Detach):
                return self._detach(request)
            if isinstance(request, Observe):
                return self._observe(request)
            if isinstance(request, MomentsSince):
                return await self._since(request)
            if isinstance(request, Hello):
                raise LocalProtocolError("a second hello on one connection")
            return self._status()
        except OspBridgeError as error:
            return refusal(error)

    def _named(self, names: Iterable[str]) -> list[Attachment]:
        """Attachments by name; none named: all."""
        try:
            return [self._attachments[name] for name in dict.fromkeys(names)] or list(
                self._attachments.values()
            )
        except KeyError as error:
            raise _not_mine(error.args[0]) from None

    def _attach(self, request: Attach) -> Attached:
        assert self._driver is not None
        conductor = self._conductor
        if len(request.agents) > MOST_PATTERNS:
            raise LocalProtocolError(
                f"{len(request.agents)} agents were named, the limit is {MOST_PATTERNS}", hint="name a glob"
            )
        attachments = conductor.attach(request.agents, self._driver, annotates=request.annotates)
        if any(a.name in self._attachments for a in attachments):
            conductor.leave(attachments)
            raise LocalProtocolError("this connection is attached to that agent already")
        self._attachments.update((a.name, a) for a in attachments)
        self._annotates = self._annotates or request.annotates
        limits = conductor.settings.limits
        return Attached(
            [_description(a.held) for a in attachments],
            conductor.profile,
            conductor.outputs_normalised,
            limits.step,
            limits.reset,
        )

    async def _reset(self, request: Reset) -> Feedbacks:
        attachments = self._named(request.agents)
        if not attachments:
            raise LocalProtocolError("this connection is attached to no agent", hint="attach first")
        await self._conductor.reset(attachments, request.seed, request.thread)
        return Feedbacks([_feedback(attachment) for attachment in attachments])

    def _detach(self, request: Detach) -> Detached:
        attachments = self._named(request.agents)
        for attachment in attachments:
            del self._attachments[attachment.name]
        self._conductor.leave(attachments)
        return Detached()

    def _observe(self, request: Observe) -> Observing:
        conductor = self._conductor
        conductor.need_simulator()
        held, latest = conductor.observers.join(request.agent, self)
        return Observing(_description(held), latest)

    async def _since(self, request: MomentsSince) -> Moments:
        return await self._conductor.observers.since(request.agent, self, request.after, request.wait)


def _description(held: HeldAgent) -> AgentDescription:
    task = held.task
    return AgentDescription.of(
        held.interface,
        task.observation_space,
        task.action_space,
        observation_names=task.observation_names,
        action_names=task.action_names,
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


def _unfit(why: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        why, data=b"", offset=0, hint="use the same version of ospbridge for the daemon and its environments"
    )
