"""What observes and is observed, in this process: servers that take episodes, and environments that play them."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import trio

from ospbridge.daemon.conductor import Conductor
from ospbridge.daemon.relay.link import Mode, Upstream
from ospbridge.daemon.relay.relay import Relay
from ospbridge.errors import RemoteProtocolError
from ospbridge.hub.requests import Note
from ospbridge.record.episode import RecordedEpisode
from ospbridge.rllink.connecting import Limits
from ospbridge.rllink.dialects import MSGPACK, Dialect
from ospbridge.rllink.messages import EpisodeFragment, ModuleWeights, SetConfig, Weights
from ospbridge.rllink.server import EpisodesArrived, ServerMachine, StateWanted
from ospbridge.sink.store import Store
from ospbridge.transport.streams import Stream, send_alert
from ospbridge.transport.tls import TlsFiles, parse_stream
from tests.daemon.relay.driving import relayed, until
from tests.daemon.stage import ONE, inputs
from tests.sink import clients


def module(observations: int, outputs: int) -> ModuleWeights:
    """Of a policy without hidden layers in its head."""
    layers = {"encoder.encoder.net.mlp.0": (4, observations), "pi.net.mlp.0": (outputs, 4)}
    arrays = {f"{layer}.weight": np.zeros(shape, np.float32) for layer, shape in layers.items()}
    biases = {f"{layer}.bias": np.zeros(shape[0], np.float32) for layer, shape in layers.items()}
    return ModuleWeights(arrays | biases, 1)


class Server:
    """Takes episodes; loses the connection over those that ``poison`` says.

    ``tls``: what the next connection meets; ``dialect``: the only one that it speaks.
    """

    def __init__(
        self,
        poison: Callable[[EpisodeFragment], bool] = lambda _: False,
        *,
        tls: ssl.SSLContext | None = None,
        dialect: Dialect | None = None,
    ) -> None:
        self.arrived: list[EpisodeFragment] = []
        self.connections = 0
        self.hangs_up = 0
        """So many times, once it has read episodes, without an answer."""
        self.asked = 0
        self.weights: Weights | None = module(1, 2)
        """None: whoever asks for them is hung up on."""
        self.config = SetConfig(env_steps_per_sample=10)
        self.tls = tls
        self.ends: list[str] = []
        """How each connection ended."""
        self._dialect = dialect
        self._poison = poison

    async def serve(self, plain: trio.SocketStream) -> None:
        self.connections += 1
        stream: Stream = plain
        if self.tls is not None:
            stream = trio.SSLStream(plain, self.tls, server_side=True, https_compatible=True)
        end = "closed"
        try:
            await self._talk(stream, ServerMachine(self.config, dialect=self._dialect))
        except trio.BrokenResourceError:
            end = "reset"
            await send_alert(stream)
        except RemoteProtocolError:
            end = "dismissed"
        finally:
            self.ends.append(end)
            await trio.aclose_forcefully(stream)

    async def _talk(self, stream: Stream, machine: ServerMachine) -> None:
        while data := await stream.receive_some(100_000):
            machine.receive(data)
            while (event := machine.next_event()) is not None:
                if isinstance(event, EpisodesArrived):
                    if any(self._poison(fragment) for fragment in event.fragments):
                        return
                    self.arrived += event.fragments
                    if self.hangs_up:
                        self.hangs_up -= 1
                        return
                elif isinstance(event, StateWanted):
                    self.asked += 1
                    if self.weights is None:
                        return
                    machine.send_state(self.weights)
            for part in machine.data_to_send():
                await stream.send_all(part)


def showing(files: TlsFiles, *, asks: bool = False, newest: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    """A server's certificate; ``asks`` for that of its clients."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(files.cert), str(files.key))
    if newest is not None:
        context.maximum_version = newest
    if asks:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(str(files.ca))
    return context


@asynccontextmanager
async def listening(serve: Any, port: int = 0) -> AsyncIterator[int]:
    """The port; with its connections closed at the end."""
    (listener,) = await trio.open_tcp_listeners(port, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def sink(directory: Path) -> AsyncIterator[int]:
    async with clients.sink(Store(directory)) as address:
        yield address.endpoint.port


def status(relay: Relay) -> Any:
    spool = relay.status.spool
    assert spool is not None
    return spool


async def all_arrived(relay: Relay) -> None:
    """Nothing waits any more."""
    await until(lambda: not status(relay).unwritten and not status(relay).entries)


class Player:
    """An environment of one agent that notes what it saw and gave."""

    def __init__(
        self, conductor: Conductor, name: str = "a", *, annotates: bool = True, seed: int = 1
    ) -> None:
        (self.attachment,) = conductor.attach([name], ONE, annotates=annotates)
        self._conductor = conductor
        self._annotates = annotates
        self._random = np.random.default_rng(seed)
        self._seed = seed
        self.episodes: list[dict[str, list[Any]]] = []

    @property
    def _now(self) -> dict[str, list[Any]]:
        return self.episodes[-1]

    async def reset(self) -> None:
        self._seed += 1
        await self._conductor.reset([self.attachment], self._seed, 1)
        assert self.attachment.feedback is not None
        names = ("actions", "rewards", "inputs", "logps", "ends")
        self.episodes.append(
            {"observations": [self.attachment.feedback.observation], **{n: [] for n in names}}
        )

    async def step(self, weights: int | None = None) -> None:
        now = self._now
        action, logp = (np.float32(self._random.uniform(-1, 1)) for _ in range(2))
        noted = self._random.normal(size=2).astype(np.float32)
        if self._annotates:
            self.attachment.read_note(Note(noted.tobytes(), float(logp), weights))
        await self._conductor.step([(self.attachment, inputs(float(action)))])
        feedback = self.attachment.feedback
        assert feedback is not None
        now["actions"].append([action])
        now["inputs"].append(noted)
        now["logps"].append(logp)
        now["observations"].append(feedback.observation)
        now["rewards"].append(feedback.reward)
        now["ends"].append((feedback.terminated, feedback.truncated))

    async def plays(self, episodes: int) -> None:
        for _ in range(episodes):
            await self.play()

    async def play(self, steps: int = 5, weights: int | None = None) -> None:
        """Reset, and so many steps."""
        await self.reset()
        for _ in range(steps):
            await self.step(weights)


def alike(
    seen: dict[str, list[Any]], found: RecordedEpisode | EpisodeFragment, *, noted: bool = True
) -> bool:
    """Bit for bit, and with the end that it saw; one that somebody else ended was cut behind its last step."""
    *before, last = seen["ends"]
    ends = [*before, last if any(last) else (False, True)]
    told = [*before, (found.terminated, found.truncated)]
    if isinstance(found, RecordedEpisode):
        told = list(zip(found.terminated.tolist(), found.truncated.tolist(), strict=True))
    if told != ends:
        return False
    columns = [("observations", found.observations), ("actions", found.actions), ("rewards", found.rewards)]
    if noted:
        assert found.action_dist_inputs is not None
        assert found.action_logp is not None
        columns += [("inputs", found.action_dist_inputs), ("logps", found.action_logp)]
    else:
        assert found.action_dist_inputs is found.action_logp is None
    return all(np.array(seen[name], array.dtype).tobytes() == array.tobytes() for name, array in columns)


def all_alike(
    seen: Iterable[dict[str, list[Any]]], found: Iterable[RecordedEpisode | EpisodeFragment]
) -> None:
    assert [alike(*pair) for pair in zip(seen, found, strict=True) if not alike(*pair)] == []


class Feed:
    """What is observed, the directory of its spool, and a server for it."""

    def __init__(self, conductor: Conductor, directory: Path) -> None:
        self.conductor = conductor
        self.directory = directory
        self.server = Server()

    def player(self, name: str = "a", **how: Any) -> Player:
        return Player(self.conductor, name, **how)

    @asynccontextmanager
    async def observed(
        self, dialect: Dialect = MSGPACK, *, port: int = 1, conductor: Conductor | None = None, **changes: Any
    ) -> AsyncIterator[Relay]:
        """By another conductor, if one is given; nobody listens where no port is."""
        said: dict[str, Any] = {
            "mode": Mode.OBSERVE,
            "dialect": dialect,
            "limits": Limits(pong=5.0, proof=5.0),
        }
        upstream = Upstream(
            address=parse_stream(f"127.0.0.1:{port}"), spool=self.directory / "s", **(said | changes)
        )
        async with relayed(upstream, conductor or self.conductor) as relay:
            yield relay

    @asynccontextmanager
    async def feeding(self, dialect: Dialect = MSGPACK, **changes: Any) -> AsyncIterator[Relay]:
        async with (
            listening(self.server.serve) as port,
            self.observed(dialect, port=port, **changes) as relay,
        ):
            yield relay
