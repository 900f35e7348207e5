"""Environments' connections to the hub: requests are read and carried out, replies are sent.

The task of a connection rests until it is needed. A step is not its business as long as all goes well: one look at all
connections hands in what has come, the action is taken at once, and whoever runs the step has the reply sent. So the
common case needs no switch of tasks; whatever else happens wakes the task, which then does the same with all care. And
while steps come thick and fast one of the tasks leads: it looks again and again, runs the steps that are due, and lets
the scheduler have its turn every few milliseconds.
"""

from __future__ import annotations

import select
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final

import trio

from ospbridge.daemon.attachment import Driver
from ospbridge.daemon.episodes import STOPPED
from ospbridge.daemon.hub.answers import HubAnswers, RequestTemplate
from ospbridge.errors import (
    ConfigurationError,
    HubError,
    LocalProtocolError,
    OspBridgeError,
    RemoteProtocolError,
)
from ospbridge.hub.framing import Incoming, decode_request, encode
from ospbridge.hub.replies import LONGEST_HOLD, Feedbacks, Held, HubReply, Refusal, Welcome
from ospbridge.hub.requests import (
    VERSION,
    Again,
    AnnotatedStep,
    Attach,
    Detach,
    Hello,
    HubRequest,
    Reset,
    Step,
)
from ospbridge.observe import logs
from ospbridge.transport.spinning import Spinning
from ospbridge.transport.unix import peer_pid

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence
    from typing import Never

    import numpy as np
    from numpy.typing import NDArray

    from ospbridge.daemon.attachment import Attachment
    from ospbridge.daemon.barrier import StepBarrier
    from ospbridge.daemon.conductor import Conductor
    from ospbridge.daemon.hub.answers import LoneStep
    from ospbridge.hub.status import StatusReply

__all__ = ["HubConnection", "HubWatch"]

log = logs.get(__name__)
PATIENCE: Final = 10.0
"""Seconds for a client to say who it is, and to take a reply."""
MORE: Final = 64
"""Bytes that are asked for beyond a request that is known: with any of them there is more to read."""
LONGEST_NAME: Final = 200
"""Characters of a client's name that are kept."""
MOST_AT_ONCE: Final = 128
"""Connections that one look tells about."""
SPINS: Final = 100
"""Looks before one that waits, at most: some 50 us in which no other task runs."""
CORES: Final = 3
"""Of the environment, the daemon and the simulator: with fewer, spinning here delays the one that is waited for."""
LINGER: Final = 0.001
"""Seconds that whoever leads waits for the next request in its look, in which no other task runs."""
GIVE_WAY: Final = 0.004
"""Seconds after which whoever leads lets other tasks have their turn; steps do so too, while they are waited for."""
AT_ONCE: Final = 10e-6
"""Seconds in which nobody has slept."""
LONGEST_REST: Final = 64
"""Times that nobody leads, at most, after looks in vain: more with each of them."""
GONE: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


class HubStream:
    """Over a non-blocking socket, which ``close`` closes."""

    __slots__ = ("_incoming", "_outgoing", "socket", "unsent")

    def __init__(self, sock: socket.socket) -> None:
        self.unsent = bytearray()
        """What found no room."""
        self.socket = sock
        self._incoming = Incoming()
        self._outgoing = bytearray()

    @property
    def empty(self) -> bool:
        """Nothing was received that was not taken out."""
        return self._incoming.empty

    def message(self) -> memoryview | None:
        """The next message, where it is there, valid until the next call.

        Raises ConnectionResetError at the end of the stream, RemoteProtocolError.
        """
        incoming = self._incoming
        message = None if incoming.empty else incoming.next_message()
        while message is None:
            try:
                count = self.socket.recv_into(incoming.space())
            except BlockingIOError:
                return None
            if not count:
                raise ConnectionResetError
            message = incoming.take(count)
        return message

    def action(self, lone: LoneStep) -> bytes | None:
        """What the next message gives, where it is that step, and came alone. Else ``message`` has what came.

        Raises BlockingIOError where nothing came, ConnectionResetError at the end of the stream.
        """
        if not self._incoming.empty:
            return None
        data = self.socket.recv(lone.size + MORE)
        if len(data) == lone.size and data.startswith(lone.head):
            return data[len(lone.head) :]
        if not data:
            raise ConnectionResetError
        self._incoming.put(data)
        return None

    async def wait_readable(self) -> None:
        await trio.lowlevel.wait_readable(self.socket)

    def put(self, reply: HubReply | bytearray) -> bool:
        """Send a reply, or one that is written already; False where not all of it found room. Raises OSError."""
        if type(reply) is bytearray:
            outgoing = reply
        else:
            assert not isinstance(reply, bytearray)
            outgoing = self._outgoing
            try:
                encode(reply, outgoing)
            except LocalProtocolError as error:
                encode(Refusal.of(error), outgoing)
        unsent = self.unsent
        if unsent:
            unsent += outgoing
            return False
        try:
            sent = self.socket.send(outgoing)
        except BlockingIOError:
            sent = 0
        if sent == len(outgoing):
            return True
        unsent += memoryview(outgoing)[sent:]
        return False

    async def send(self, reply: HubReply | bytearray) -> None:
        """All of it. Raises OSError, TooSlowError."""
        if not self.put(reply):
            await self.send_rest()

    async def send_rest(self) -> None:
        """The client does not read fast enough. Raises OSError, TooSlowError."""
        unsent = self.unsent
        with trio.fail_after(PATIENCE):
            while unsent:
                try:
                    del unsent[: self.socket.send(unsent)]
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(self.socket)

    def tell_held(self, seconds: float, reason: str) -> None:
        """Tell the client, which waits for a reply, that it may take longer: its deadline counts from then on."""
        notice = bytearray()
        encode(Held(min(seconds, LONGEST_HOLD), reason), notice)
        # A client that waits has read all there was, so that a notice this small finds room; if not, it goes first
        # when the reply goes.
        try:
            sent = self.socket.send(notice) if not self.unsent else 0
        except BlockingIOError:
            sent = 0
        except (OSError, ConfigurationError):
            # Whoever reads the stream next learns that it has ended.
            return
        self.unsent += notice[sent:]

    def close(self) -> None:
        trio.lowlevel.notify_closing(self.socket)
        self.socket.close()


class HubConnection:
    """``host`` is the other host's address, empty for this one.

    ``watch`` tells when something comes; without one the task waits for it itself.
    """

    def __init__(
        self,
        sock: socket.socket,
        conductor: Conductor,
        *,
        status: Callable[[], StatusReply],
        watch: HubWatch | None,
        host: str = "",
    ) -> None:
        self.needed = False
        """The task has something to do."""
        self.acting: Sequence[Attachment] = ()
        self._stream = HubStream(sock)
        self._host = host
        self._barrier = conductor.barrier
        self._answers_for = partial(HubAnswers, conductor, status=status)
        self._watch = watch
        self._answers: HubAnswers | None = None
        self._arrived: HubRequest | Exception | None = None
        """What was read for the task, or why nothing more can be read or sent."""
        self._moves: list[tuple[Attachment, bytes]] = []
        """The actions of the step that is under way without the task."""
        self._template = RequestTemplate()
        self._again = False
        """The step that is to be answered is one step more."""
        self._resting = False
        self._more = False
        """More came before the reply to that step was sent."""
        self._lot = trio.lowlevel.ParkingLot()

    async def run(self) -> None:
        """Serve until the client leaves."""
        try:
            with trio.fail_after(PATIENCE):
                answers = await self._greet()
            while True:
                request = await self._next()
                if isinstance(request, (Reset, Attach, Detach)):
                    self._template.forget()
                reply = await answers.answer(request)
                await self._stream.send(reply)
                if not isinstance(reply, Feedbacks):
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
            self._stream.close()
            # Both lead back here, and the buffers would wait for Python to look for such circles.
            self._answers = self._arrived = None

    def hung_up(self, why: str = "the connection to its environment ended") -> None:
        """The client is gone: its agents rest, and nobody waits for them."""
        self._moves = []
        self.acting = ()
        self._template.forget()
        if self._answers is not None:
            self._answers.leave(why)

    async def _dismiss(self, error: Exception) -> None:
        """Say why before hanging up, if the other side listens."""
        if isinstance(error, OspBridgeError):
            reason = HubError(f"the daemon hung up: {error.message}", hint=error.hint)
        else:
            reason = HubError(f"the daemon hung up: nothing was said or read for {PATIENCE:g} s")
        who = self._answers.driver if self._answers is not None else "unknown"
        log.warning("a client was dismissed", reason=reason.message, driver=str(who))
        try:
            with trio.move_on_after(1.0):
                await self._stream.send(Refusal.of(reason))
        except (OSError, ConfigurationError, trio.TooSlowError):
            pass

    async def _greet(self) -> HubAnswers:
        """The first request says who asks, and in which version."""
        hello = await self._next()
        if not isinstance(hello, Hello):
            raise _unfit(f"expected a hello, got {type(hello).__name__}")
        if hello.version != VERSION:
            raise _unfit(
                f"the client speaks version {hello.version} of the hub's messages, the daemon {VERSION}"
            )
        name = hello.client[:LONGEST_NAME] or "a client"
        # Its certificate vouches for another host's; the kernel knows no process of one, nor of a container beside the
        # daemon's. Containers behind one address have equal numbers, nearly always 1.
        known = 0 if self._host else peer_pid(self._stream.socket)
        pid = hello.pid if self._host else known
        process = "" if known else hello.process[:LONGEST_NAME]
        driver = Driver(name, pid, self._host, self._stream.tell_held, self._watch is not None, process)
        answers = self._answers = self._answers_for(driver)
        await self._stream.send(Welcome(VERSION))
        return answers

    # --- the task --------------------------------------------------------------------------------------------------

    async def _next(self) -> HubRequest:
        """The next request that needs the task. Raises ConnectionResetError at the end of the stream."""
        while True:
            if isinstance(self._arrived, Exception):
                raise self._arrived
            request, self._arrived = self._arrived, None
            if request is None and not self._moves and (message := self._stream.message()) is not None:
                request = decode_request(message)
                if self._answers is not None and isinstance(request, (Again, Step, AnnotatedStep)):
                    await self._take_here(request, self._answers)
                    continue
            if request is not None:
                return request
            await self._rest()

    async def _take_here(self, request: Again | Step | AnnotatedStep, answers: HubAnswers) -> None:
        """A step that the task came upon is taken as any other, so that all who wait for it are told together."""
        self.needed = False
        # Nobody tells of what came together with it.
        self._more = True
        self._take(request, answers, trio.current_time(), at_once=False)
        if self._stream.unsent:
            await self._stream.send_rest()
        elif not self._moves:
            # A flood of steps that are refused gives way.
            await trio.lowlevel.checkpoint()

    async def _rest(self) -> None:
        """Until the task is needed. Steps are taken meanwhile, and run by this task where it leads."""
        watch = self._watch
        if watch is None:
            if not self.acting:
                await self._stream.wait_readable()
        elif not (self.needed and self.acting):
            self.needed = False
            self._resting = True
            try:
                await watch.lead(self)
                if not (self.needed or watch.led):
                    self._barrier.summon()
                if not self.needed:
                    await self._lot.park()
            finally:
                self._resting = False
        if self.acting:
            # Who was called waits for the step itself, and may have to run it.
            await self._barrier.wait(self.acting)
            self.stepped()
        if self._stream.unsent:
            await self._stream.send_rest()

    def _moves_of(
        self, request: Again | Step | AnnotatedStep, answers: HubAnswers
    ) -> tuple[list[tuple[Attachment, bytes]], Sequence[NDArray[np.float32] | bytes] | None]:
        """Whom it acts for, and how, with the inputs where they were read at once. Raises OspBridgeError."""
        self._again = isinstance(request, Again)
        if isinstance(request, Again):
            return self._template.moves(request.actions)
        moves = answers.moves(request)
        self._template.learn(moves if type(request) is Step else ())
        return moves, None

    # --- without the task ------------------------------------------------------------------------------------------

    def readable(self, now: float, *, at_once: bool = False) -> bool:
        """Something may have come: an action is taken at once, anything else is for the task. False: nothing came.

        ``at_once``: where nobody else plays, the step is, too, and the caller runs what of that is left.
        """
        if not self._resting or self.needed:
            return False
        if self._moves:
            # Whoever does not await the reply is read when it was sent.
            self._more = True
            return False
        stream = self._stream
        try:
            lone = self._template.lone
            if lone is not None:
                try:
                    action = stream.action(lone)
                except BlockingIOError:
                    return False
                if action is not None:
                    self._again = True
                    self._act([(lone.mover, action)], now, at_once=at_once)
                    return True
            message = stream.message()
            if message is None:
                return False
            request = decode_request(message)
            if self._answers is not None and isinstance(request, (Again, Step, AnnotatedStep)):
                self._more = not stream.empty
                self._take(request, self._answers, now, at_once=at_once)
                return True
            self._arrived = request
        except (OSError, RemoteProtocolError, ConfigurationError) as error:
            self._arrived = error
        self._wake()
        return True

    def _take(
        self, request: Again | Step | AnnotatedStep, answers: HubAnswers, now: float, *, at_once: bool
    ) -> None:
        try:
            moves, inputs = self._moves_of(request, answers)
        except OspBridgeError as error:
            self._answered(Refusal.of(error))
        else:
            self._act(moves, now, inputs, at_once=at_once and self._again)

    def _act(
        self,
        moves: list[tuple[Attachment, bytes]],
        now: float,
        inputs: Sequence[NDArray[np.float32] | bytes] | None = None,
        *,
        at_once: bool,
    ) -> None:
        barrier, movers = self._barrier, self._template.movers
        acting: Sequence[Attachment]
        try:
            if at_once and (inputs is not None or len(moves) == 1) and barrier.may_step_at_once(movers):
                acting = () if barrier.step_at_once(moves, inputs, now) else movers
            else:
                acting = barrier.act(moves, inputs)
        except OspBridgeError as error:
            self._answered(Refusal.of(error))
            return
        if not acting:
            self._answer(moves)
            return
        self._moves = moves
        self.acting = acting
        if self._watch is None or not barrier.leave(self, now):
            self._wake()

    def stepped(self) -> None:
        """The step is over: the reply goes out, and the task goes on resting unless there is more to do."""
        moves, self._moves = self._moves, []
        self.acting = ()
        if moves:
            self._answer(moves)

    def _answer(self, moves: Sequence[tuple[Attachment, bytes]]) -> None:
        assert self._answers is not None
        numbers = self._template.reply() if self._again else None
        self._answered(self._answers.stepped(moves) if numbers is None else numbers)

    def _answered(self, reply: HubReply | bytearray) -> None:
        try:
            sent = self._stream.put(reply)
        except (OSError, ConfigurationError) as error:
            self._arrived = error
            sent = False
        if self._more or not sent:
            self._more = False
            self._wake()

    def call(self) -> None:
        """The task must wait for the step itself."""
        self._wake()

    def _wake(self) -> None:
        self.needed = True
        if self._lot:
            self._lot.unpark_all()
            assert self._watch is not None
            self._watch.woke = True


class HubWatch:
    """Of one hub. ``spin``: whether a task may lead, and with a core for it look several times before it waits.

    A connection is told of once for all that has come: it must read until nothing is there before it rests.
    """

    def __init__(self, barrier: StepBarrier, *, spin: bool) -> None:
        self.read_elsewhere = 0
        """Connections whose tasks wait for their requests themselves."""
        self.woke = False
        """A task has something to do, and waits for its turn."""
        self._barrier = barrier
        self._lingers = spin
        self._spinning = Spinning(SPINS, enabled=spin, cores=CORES)
        self._epoll = select.epoll()
        self._watched: dict[int, HubConnection] = {}
        self.led = False
        """Somebody looks for all, and runs the steps that are due."""
        self._prompt = False
        """The next request was there before it was waited for, as where the environment has the daemon's own core."""
        self._slept = 0.0
        """Seconds of the latest look, without what was done about what it found."""
        self._in_vain = 0
        self._not_again = 0

    def add(self, descriptor: int, connection: HubConnection, *, reads: bool) -> None:
        """Look after a connection; where it does not ``read`` through the watch only whether it hangs up."""
        self._watched[descriptor] = connection
        self.read_elsewhere += not reads
        wanted = select.EPOLLIN if reads else 0
        self._epoll.register(descriptor, wanted | select.EPOLLRDHUP | select.EPOLLET)

    def remove(self, descriptor: int, *, reads: bool) -> None:
        """Its descriptor is closed, and has left the epoll set by itself."""
        del self._watched[descriptor]
        self.read_elsewhere -= not reads

    def look(self, seconds: float = 0.0, mine: HubConnection | None = None) -> bool:
        """Hand out what has come, or comes within so many seconds in which nothing else runs. False: nothing did.

        ``mine``: whose task looks, and runs what its own request has ``begun`` before anything else.
        """
        asked = monotonic()
        events = self._epoll.poll(seconds, MOST_AT_ONCE)
        self._slept = monotonic() - asked
        if not events:
            return False
        watched = self._watched
        now = trio.current_time()
        for descriptor, which in events:
            connection = watched.get(descriptor)
            if connection is None:
                continue
            if which & GONE:
                connection.hung_up()
            connection.readable(now, at_once=connection is mine)
        return True

    async def run(self) -> Never:
        """Look whenever there is something to see and nobody leads."""
        while True:
            await trio.lowlevel.wait_readable(self._epoll.fileno())
            self.look()
            if not self.led:
                self._barrier.summon()

    async def lead(self, mine: HubConnection) -> None:
        """Look for all, and run the steps that are due, until the task of ``mine`` is needed or it does not pay."""
        if self.led or not self._pays():
            return
        self.led = True
        barrier = self._barrier
        clock = trio.lowlevel.current_clock().current_time
        now = looked = checked = clock()
        try:
            while not mine.needed:
                if barrier.due:
                    if not mine.acting:
                        # Its client may want something else while the step lasts.
                        return
                    await barrier.run()
                elif (
                    not (self._prompt and not mine.acting and mine.readable(now, at_once=True))
                    # It may have acted already, or nothing has come for it.
                    and not self._look_long(mine)
                ):
                    self._in_vain = min(2 * self._in_vain + 1, LONGEST_REST)
                    self._not_again = self._in_vain
                    return
                if barrier.begun:
                    await barrier.run()
                now = clock()
                if self.woke or now - looked > GIVE_WAY:
                    # Others have their turn, here and in the scheduler: steps have seen to that while they were waited
                    # for, where nobody waits for it as now.
                    self.look()
                    looked = now
                    if self.woke or now - max(checked, barrier.yielded_at) > GIVE_WAY:
                        self.woke = False
                        await trio.lowlevel.checkpoint()
                        checked = clock()
                    if not self._lingering_harms_nobody:
                        return
        finally:
            self.led = False
            barrier.summon()

    def _look_long(self, mine: HubConnection) -> bool:
        spinning = self._spinning
        for _ in range(spinning.tries):
            if self.look(0.0, mine):
                spinning.paid()
                return True
        found = self.look(LINGER, mine)
        spinning.in_vain(self._slept)
        self._prompt = found and self._slept < AT_ONCE
        if found:
            self._in_vain = 0
        return found

    def _pays(self) -> bool:
        if not self._lingers or not self._lingering_harms_nobody:
            return False
        if self._not_again:
            self._not_again -= 1
            return False
        return True

    @property
    def _lingering_harms_nobody(self) -> bool:
        """All that the next step waits for comes through the watch."""
        return not self.read_elsewhere and self._barrier.awaits_watched_only

    def close(self) -> None:
        """Look no more."""
        self._epoll.close()


def _unfit(why: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        why, data=b"", offset=0, hint="use the same version of ospbridge for the daemon and its environments"
    )
