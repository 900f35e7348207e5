"""The sink's connections: each client in a task of its own, several at once, none of them able to end the others."""

from __future__ import annotations

import ssl
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import trio

from ospbridge import __version__
from ospbridge.errors import ConfigurationError, LocalProtocolError, RemoteProtocolError
from ospbridge.observe import logs
from ospbridge.observe.sparing import Sparing
from ospbridge.rllink.framing import LARGEST_TAKEN
from ospbridge.rllink.messages import SetConfig
from ospbridge.rllink.server import EpisodesArrived, Greeted, Ignored, ServerMachine, StateWanted
from ospbridge.transport.admission import VisitorLimit, set_keepalive
from ospbridge.transport.streams import send_alert
from ospbridge.transport.tls import is_end_of_stream, refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Never

    from ospbridge.rllink.dialects import Dialect
    from ospbridge.rllink.messages import EpisodeFragment
    from ospbridge.rllink.server import ServerEvent
    from ospbridge.sink.policy_file import PolicyFile
    from ospbridge.sink.store import Store
    from ospbridge.transport.streams import Stream

__all__ = ["Sink"]

log = logs.get(__name__)
MOST_CLIENTS: Final = 64
READ_AT_ONCE: Final = 256 * 1024
GREET_WITHIN: Final = 10.0
"""Seconds for a client to finish its TLS handshake and send its first message, to the end."""
SEND_WITHIN: Final = 60.0
"""Seconds for a client to take what it asked for."""
LARGE: Final = 2**20
"""Bytes of a message that is read in a thread of its own, so that no other client waits for it meanwhile."""
TOGETHER: Final = 100
"""Episodes that are brought to disk at once; other clients have their turn then."""
LONGEST_ID: Final = 60
"""Characters of an id in the log: it is the client's choice."""


class Sink:
    """``store`` None: nothing is kept. ``policy`` None: whoever asks for weights is turned away.

    ``largest``: bytes of a message that is taken.
    """

    def __init__(
        self,
        store: Store | None,
        policy: PolicyFile | None,
        *,
        env_steps: int,
        largest: int = LARGEST_TAKEN,
    ) -> None:
        self.clients = 0
        self.steps = 0
        self.fragments = 0
        self.repeated = 0
        """Of the steps, those that had come before and are recorded once."""
        self._store = store
        self._policy = policy
        self._largest = largest
        self._config = SetConfig(
            env_steps_per_sample=env_steps, force_on_policy=False, server=f"ospbridge sink {__version__}"
        )
        self._batches = 0
        self._strangers = VisitorLimit(MOST_CLIENTS)
        """Those whose certificates are yet to be seen."""
        self._crowded = Sparing()
        self._turned_away = 0
        self._taking_in = trio.Lock()
        self._writing = trio.Lock()
        self._reading = trio.Lock()

    async def serve(self, listeners: Sequence[trio.SocketListener], tls: ssl.SSLContext | None) -> Never:
        """Until cancelled."""

        async def handle(stream: trio.SocketStream) -> None:
            await self._client(stream, tls)

        await trio.serve_listeners(handle, list(listeners))

    async def _client(self, plain: trio.SocketStream, tls: ssl.SSLContext | None) -> None:
        try:
            set_keepalive(plain.socket)
            host, port = plain.socket.getpeername()[:2]
        except OSError:
            # It was gone before it was heard.
            await trio.aclose_forcefully(plain)
            return
        who = f"{host}:{port}"
        greeted_by = trio.current_time() + GREET_WITHIN
        stream: Stream = (
            plain if tls is None else trio.SSLStream(plain, tls, server_side=True, https_compatible=True)
        )
        counts = False
        try:
            if isinstance(stream, trio.SSLStream) and not await self._known(stream, str(host), greeted_by):
                self._turn_away(who, f"{MOST_CLIENTS} have yet to show their certificates")
                return
            if self.clients >= MOST_CLIENTS:
                self._turn_away(who, f"{MOST_CLIENTS} are connected")
                return
            counts = True
            self.clients += 1
            await self._converse(stream, who, greeted_by)
            log.info("a client left", client=who)
        except (RemoteProtocolError, ConfigurationError, LocalProtocolError) as error:
            log.warning("a client is dismissed", client=who, reason=error.message, hint=error.hint)
            # Where it was raised leads to the machine, which keeps it: a circle, with the message that was refused.
            error.__traceback__ = None
        except trio.TooSlowError:
            log.warning("a client is dismissed", client=who, reason="it said nothing, or did not read")
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            # trio raises out of a handshake before it sends why, and the client would see no more than the end.
            await send_alert(stream)
            _tell_lost(who, error)
        except Exception as error:
            # Whatever it was, the others go on.
            log.exception("a client is dismissed", client=who, reason=f"{type(error).__name__}: {error}")
        finally:
            self.clients -= counts
            await trio.aclose_forcefully(stream)

    def _turn_away(self, who: str, reason: str) -> None:
        """Who comes again at once, and again, must not fill the log."""
        self._turned_away += 1
        if self._crowded.due():
            log.warning("a client is turned away", client=who, reason=reason, turned_away=self._turned_away)

    async def _known(self, stream: trio.SSLStream[trio.SocketStream], host: str, greeted_by: float) -> bool:
        """Whether both certificates hold, once they do; False where there is no room for more who have none yet.

        Left to reading, a handshake that is broken off would look like a client that leaves in order.
        """
        scope = self._strangers.enter(host)
        if scope is None:
            return False
        try:
            with scope, trio.fail_at(greeted_by):
                await stream.do_handshake()
                return True
        finally:
            self._strangers.leave(scope)
        return False

    async def _converse(self, stream: Stream, who: str, greeted_by: float) -> None:
        machine = ServerMachine(self._config, largest=self._largest)
        while True:
            # The dialect is that of the first whole message.
            with trio.fail_at(greeted_by if machine.dialect is None else float("inf")):
                data = await stream.receive_some(READ_AT_ONCE)
            if not data:
                machine.eof()
                return
            try:
                if machine.unfinished + len(data) < LARGE:
                    machine.receive(data)
                else:
                    # What it stands for may take many times its room: one after the other.
                    async with self._taking_in:
                        await trio.to_thread.run_sync(machine.receive, data, abandon_on_cancel=True)
            except RemoteProtocolError as error:
                # What came before it counts: the machine keeps the error, and it is raised below. The traceback would
                # be the circle that `_client` speaks of.
                error.__traceback__ = None
            try:
                await self._answer(machine, stream, who)
            except (trio.BrokenResourceError, trio.TooSlowError):
                if machine.lost is None:
                    raise
            if machine.lost is not None:
                raise machine.lost

    async def _answer(self, machine: ServerMachine, stream: Stream, who: str) -> None:
        """Deal with all that happened, and send what is to be sent."""
        while (event := machine.next_event()) is not None:
            if isinstance(event, StateWanted):
                # Nothing behind it has been read, so that no PONG leaves early; and of many answers that a client asks
                # for at once, each is sent before the next is made.
                await _send(machine, stream)
            await self._happened(machine, event, who)
        # What came with a PING is on disk when its PONG leaves.
        await _send(machine, stream)

    async def _happened(self, machine: ServerMachine, event: ServerEvent, who: str) -> None:
        if isinstance(event, EpisodesArrived):
            await self._keep(event, who)
        elif isinstance(event, StateWanted):
            if self._policy is None:
                raise ConfigurationError(
                    "it asks for a policy, and there is none", hint="start the sink with --policy FILE"
                )
            self._batches += event.learned
            assert machine.dialect is not None
            read = partial(_state, self._policy, machine.dialect, self._batches)
            async with self._reading:
                # It may be large, and its disk slow: no other client waits for it meanwhile.
                state = await trio.to_thread.run_sync(read, abandon_on_cancel=True)
            try:
                machine.send_state(state)
            except RemoteProtocolError as error:
                # As in `_converse`.
                error.__traceback__ = None
        elif isinstance(event, Greeted):
            log.info("a client greets", client=who, dialect=event.dialect.name)
        elif isinstance(event, Ignored):
            log.warning("a client says what only servers say", client=who, text=event.text)

    async def _keep(self, event: EpisodesArrived, who: str) -> None:
        again: list[EpisodeFragment] = []
        if self._store is not None:
            for at in range(0, len(event.fragments), TOGETHER):
                add = partial(self._store.add, event.fragments[at : at + TOGETHER], client=who)
                async with self._writing:
                    # Who ends the sink does not wait for a disk that hangs: nobody was told yet that this was read.
                    again += await trio.to_thread.run_sync(add, abandon_on_cancel=True)
        self.fragments += len(event.fragments)
        self.steps += event.steps
        repeated = sum(fragment.steps for fragment in again)
        self.repeated += repeated
        if again:
            log.warning(
                "experience came before",
                client=who,
                steps=repeated,
                fragments=len(again),
                id=again[0].id[:LONGEST_ID],
                hint="it is recorded once; no two episodes may have the same id, not even of different runs",
            )
        returns = _returns(event.fragments)
        log.info(
            "experience",
            client=who,
            steps=event.steps,
            repeated=repeated,
            episodes=sum(fragment.done for fragment in event.fragments),
            mean_return=round(sum(returns) / len(returns), 3) if returns else None,
        )


def _returns(fragments: Iterable[EpisodeFragment]) -> list[float]:
    """Of the episodes that are there from their first step to their last."""
    whole = []
    begun: dict[str, float] = {}
    for fragment in fragments:
        before = begun.pop(fragment.id, None) if fragment.t_started else 0.0
        if before is None:
            continue
        total = before + float(fragment.rewards.sum(dtype=np.float64))
        if fragment.done:
            whole.append(total)
        else:
            begun[fragment.id] = total
    return whole


def _state(policy: PolicyFile, dialect: Dialect, seq_no: int) -> bytes | bytearray:
    """The message with the policy as its file is now."""
    before = policy.trouble
    if policy.refresh() or policy.trouble != before:
        log.info("the policy's file has changed", file=str(policy.path), trouble=policy.trouble)
    return policy.message(dialect, seq_no)


async def _send(machine: ServerMachine, stream: Stream) -> None:
    with trio.fail_after(SEND_WITHIN):
        for part in machine.data_to_send():
            await stream.send_all(part)


def _tell_lost(who: str, error: trio.BrokenResourceError | trio.ClosedResourceError) -> None:
    """A network that breaks is nobody's fault; that one side refuses the other's certificate is somebody's to mend."""
    cause = error.__cause__
    if is_end_of_stream(cause):
        log.info(
            "a client was lost",
            client=who,
            reason="it closed the connection in the TLS handshake; it may not trust the sink's certificate",
        )
    elif isinstance(cause, ssl.SSLError):
        told = refusal(
            cause,
            "the client",
            expected="TLS as the sink does",
            hint="it must be told to speak TLS, for instance with an address that begins with tls://",
        )
        log.warning("a client is dismissed", client=who, reason=told.message, hint=told.hint)
    else:
        log.info("a client was lost", client=who, reason=str(cause or error))
