"""The sink's connections: each client in a task of its own, several at once, none of them able to end the others."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from ospbridge import __version__
from ospbridge.errors import ConfigurationError, LocalProtocolError, RemoteProtocolError
from ospbridge.observe import logs
from ospbridge.rllink.messages import SetConfig
from ospbridge.rllink.server import EpisodesArrived, Greeted, Ignored, ServerMachine, StateWanted
from ospbridge.transport.settling import settle

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence
    from typing import Never

    from ospbridge.rllink.server import ServerEvent
    from ospbridge.sink.policy_file import PolicyFile
    from ospbridge.sink.store import Store
    from ospbridge.transport.streams import Stream

__all__ = ["Sink"]

log = logs.get(__name__)
MOST_CLIENTS: Final = 64
READ_AT_ONCE: Final = 256 * 1024
GREET_WITHIN: Final = 10.0
"""Seconds for a client to finish its TLS handshake and send its first message."""
SEND_WITHIN: Final = 60.0
"""Seconds for a client to take what it asked for."""


class Sink:
    """``store`` None: nothing is kept. ``policy`` None: whoever asks for weights is turned away."""

    def __init__(self, store: Store | None, policy: PolicyFile | None, *, env_steps: int) -> None:
        self.clients = 0
        self.steps = 0
        self.fragments = 0
        self._store = store
        self._policy = policy
        self._config = SetConfig(
            env_steps_per_sample=env_steps, force_on_policy=False, server=f"ospbridge sink {__version__}"
        )
        self._batches = 0
        self._writing = trio.Lock()

    async def serve(self, listeners: Sequence[trio.SocketListener], tls: ssl.SSLContext | None) -> Never:
        """Until cancelled."""

        async def handle(stream: trio.SocketStream) -> None:
            await self._client(stream, tls)

        await trio.serve_listeners(handle, list(listeners))

    async def _client(self, plain: trio.SocketStream, tls: ssl.SSLContext | None) -> None:
        try:
            settle(plain.socket)
            host, port = plain.socket.getpeername()[:2]
        except OSError:
            # It was gone before it was heard.
            await trio.aclose_forcefully(plain)
            return
        who = f"{host}:{port}"
        if self.clients >= MOST_CLIENTS:
            log.warning("a client is turned away", client=who, reason=f"{MOST_CLIENTS} are connected")
            await trio.aclose_forcefully(plain)
            return
        self.clients += 1
        stream: Stream = (
            plain if tls is None else trio.SSLStream(plain, tls, server_side=True, https_compatible=True)
        )
        try:
            await self._converse(stream, who)
            log.info("a client left", client=who)
        except (RemoteProtocolError, ConfigurationError, LocalProtocolError) as error:
            log.warning("a client is dismissed", client=who, reason=error.message, hint=error.hint)
            # Where it was raised leads to the machine, which keeps it: a circle, with the message that was refused.
            error.__traceback__ = None
        except trio.TooSlowError:
            log.warning("a client is dismissed", client=who, reason="it said nothing, or did not read")
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            log.info("a client was lost", client=who, reason=str(error.__cause__ or error))
        except Exception as error:
            # Whatever it was, the others go on.
            log.exception("a client is dismissed", client=who, reason=f"{type(error).__name__}: {error}")
        finally:
            self.clients -= 1
            await trio.aclose_forcefully(stream)

    async def _converse(self, stream: Stream, who: str) -> None:
        machine = ServerMachine(self._config)
        with trio.fail_after(GREET_WITHIN):
            data = await stream.receive_some(READ_AT_ONCE)
        while data:
            machine.receive(data)
            while (event := machine.next_event()) is not None:
                await self._happened(machine, event, who)
            # What came with a PING is on disk when its PONG leaves.
            with trio.fail_after(SEND_WITHIN):
                for part in machine.data_to_send():
                    await stream.send_all(part)
            data = await stream.receive_some(READ_AT_ONCE)

    async def _happened(self, machine: ServerMachine, event: ServerEvent, who: str) -> None:
        if isinstance(event, EpisodesArrived):
            await self._keep(event, who)
        elif isinstance(event, StateWanted):
            if self._policy is None:
                raise ConfigurationError(
                    "it asks for a policy, and there is none", hint="start the sink with --policy FILE"
                )
            self._batches += event.learned
            if self._policy.refresh() or self._policy.trouble:
                log.info(
                    "the policy's file has changed", file=str(self._policy.path), trouble=self._policy.trouble
                )
            machine.send_state(self._policy.weights(self._batches))
        elif isinstance(event, Greeted):
            log.info("a client greets", client=who, dialect=event.dialect.name)
        elif isinstance(event, Ignored):
            log.warning("a client says what only servers say", client=who, text=event.text)

    async def _keep(self, event: EpisodesArrived, who: str) -> None:
        if self._store is not None:
            store = self._store
            async with self._writing:
                await trio.to_thread.run_sync(partial(store.add, event.fragments, client=who))
        self.fragments += len(event.fragments)
        self.steps += event.steps
        finished = [fragment for fragment in event.fragments if fragment.done]
        log.info(
            "experience",
            client=who,
            steps=event.steps,
            episodes=len(finished),
            mean_return=round(float(sum(f.rewards.sum() for f in finished)) / len(finished), 3)
            if finished
            else None,
        )
