"""A learner for tests: an RLlink server that hands out other weights each round and checks who acted with which."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import numpy as np
import trio

from ospbridge.daemon.conductor import Conductor
from ospbridge.daemon.relay.relay import Relay
from ospbridge.policy.rlmodule import NumpyModule
from ospbridge.rllink.batches import RLLIB
from ospbridge.rllink.framing import LARGEST_TAKEN
from ospbridge.rllink.messages import EpisodeFragment, ModuleWeights, SetConfig
from ospbridge.rllink.server import EpisodesArrived, ServerMachine, StateWanted
from tests.daemon import running
from tests.daemon.relay.driving import relayed, until, upstream, world
from tests.in_threads import in_thread

HIDDEN = 4
TOLD: dict[str, Any] = {"activation": None, "env_steps": None, "read_pickle": True}
"""What the settings of a server say that a user need not."""


class TinyLearner:
    """For agents with one input, and so many outputs. ``batch``: the steps that it learns from at once.

    ``batches`` are those that it learned from; each was checked to come from the weights before it.
    """

    activation = "tanh"
    head_activation = "relu"
    thinks: float = 0.0
    largest = LARGEST_TAKEN
    """Bytes of a message that it takes."""
    forgets = False
    """It starts anew where it hangs up."""

    def __init__(self, batch: int = 20, *, seed: int = 1, outputs: int = 1) -> None:
        self.batch = batch
        self.outputs = outputs
        self.batches: list[tuple[EpisodeFragment, ...]] = []
        self.seq_no = 0
        self.stale: list[int] = []
        """Rounds in which the old weights are sent before the new ones."""
        self.spoilt: dict[int, Any] = {}
        """Weights that are sent once, by their number, instead of good ones."""
        self.hang_up_in: list[int] = []
        """Rounds in which the connection ends without an answer, and nothing is learned: such as are still to begin."""
        self.connections = 0
        self.given = 0
        """How often weights were asked for without a batch."""
        self.wrong: list[str] = []
        self.delivered = 0
        """Batches whose weights were sent to whoever read."""
        self._random = np.random.default_rng(seed)
        self.weights = self._drawn()

    def _drawn(self) -> dict[str, Any]:
        draw = self._random.normal
        return {
            "encoder.encoder.net.mlp.0.weight": draw(size=(HIDDEN, self.outputs)).astype(np.float32),
            "encoder.encoder.net.mlp.0.bias": draw(size=HIDDEN).astype(np.float32),
            "pi.net.mlp.0.weight": draw(size=(2, HIDDEN)).astype(np.float32),
            "pi.net.mlp.0.bias": np.zeros(2, np.float32),
            "pi.log_std_clip_param_const": np.full(1, 20, np.float32),
        }

    async def learned(self, batches: int) -> None:
        await until(lambda: len(self.batches) >= batches)

    async def learns(self, more: int) -> None:
        await self.learned(len(self.batches) + more)

    def forget(self) -> None:
        """Start anew, as a server process does: other weights, numbered from 0."""
        self.seq_no = 0
        self.weights = self._drawn()

    @asynccontextmanager
    async def listening(self, port: int = 0) -> AsyncIterator[int]:
        """Serve at 127.0.0.1; the port."""
        (listener,) = await trio.open_tcp_listeners(port, host="127.0.0.1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, self._serve, [listener])
            yield listener.socket.getsockname()[1]
            nursery.cancel_scope.cancel()

    def _config(self) -> SetConfig:
        return SetConfig(env_steps_per_sample=self.batch, force_on_policy=True)

    async def _serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        pending: tuple[EpisodeFragment, ...] = ()
        machine = ServerMachine(self._config(), needs=RLLIB, largest=self.largest)
        try:
            while data := await stream.receive_some(100_000):
                machine.receive(data)
                while (event := machine.next_event()) is not None:
                    if isinstance(event, EpisodesArrived):
                        self._check(event.fragments)
                        pending = event.fragments
                    elif isinstance(event, StateWanted) and not await self._answer(
                        machine, event, stream, pending if event.learned else ()
                    ):
                        return
                for part in machine.data_to_send():
                    await stream.send_all(part)
                self.delivered = len(self.batches)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            await trio.aclose_forcefully(stream)

    async def _answer(
        self,
        machine: ServerMachine,
        event: StateWanted,
        stream: trio.SocketStream,
        batch: tuple[EpisodeFragment, ...],
    ) -> bool:
        if not event.learned:
            self.given += 1
            machine.send_state(self._sent())
            return True
        round_ = len(self.batches)
        if round_ in self.hang_up_in:
            self.hang_up_in.remove(round_)
            if self.forgets:
                self.forget()
            return False
        if sum(fragment.steps for fragment in batch) < self.batch:
            self.wrong.append(f"a batch of {sum(f.steps for f in batch)} steps")
        await trio.sleep(self.thinks)
        stale = round_ in self.stale
        if stale:
            machine.send_state(self._sent())
            for part in machine.data_to_send():
                await stream.send_all(part)
        self.batches.append(batch)
        self.weights = self._drawn()
        self.seq_no += 1
        if not stale:
            machine.send_state(self._sent())
        return True

    def _sent(self) -> ModuleWeights:
        return ModuleWeights(self.spoilt.pop(self.seq_no, self.weights), self.seq_no)

    def _check(self, fragments: tuple[EpisodeFragment, ...]) -> None:
        """Whether these weights decided it."""
        module = NumpyModule(
            self.weights,
            inputs=self.outputs,
            outputs=2,
            gaussian=True,
            activation=self.activation,
            head_activation=self.head_activation,
        )
        for fragment in fragments:
            expected = module.forward(fragment.observations[:-1])
            assert fragment.action_dist_inputs is not None
            if not np.allclose(expected, fragment.action_dist_inputs, atol=1e-4):
                self.wrong.append(f"{fragment.id}: decided with other weights than number {self.seq_no}")


@asynccontextmanager
async def driving(learner: TinyLearner, *conductors: Conductor, **changes: Any) -> AsyncIterator[Relay]:
    """A driver for the learner, which must find nothing wrong; of one world, unless others are named."""
    async with (
        learner.listening() as port,
        relayed(upstream(port, **changes), *(conductors or [world()[1]])) as relay,
    ):
        yield relay
    assert learner.wrong == []


class Told(TinyLearner):
    """Says in a pickle its batch, its activation, and what ``model`` and ``said`` have; or says ``pickled``."""

    def __init__(
        self,
        said: dict[str, Any] | None = None,
        *,
        model: dict[str, Any] | None = None,
        pickled: bytes | None = None,
    ) -> None:
        super().__init__()
        self._said, self._model, self._pickled = said or {}, model or {}, pickled

    def _config(self) -> SetConfig:
        model = {"fcnet_activation": self.activation} | self._model
        said = {"train_batch_size_per_learner": self.batch, "_model_config": model} | self._said
        return SetConfig(pickled=pickle.dumps(said, 4) if self._pickled is None else self._pickled)


class Gated(TinyLearner):
    """Learns once it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = trio.Event()
        self.asked = 0

    async def _answer(self, machine: Any, event: Any, *rest: Any) -> bool:
        if event.learned:
            self.asked += 1
            await self.gate.wait()
        return await super()._answer(machine, event, *rest)


# --- beside programs -------------------------------------------------------------------------------------------


@contextmanager
def learning(learner: TinyLearner) -> Iterator[str]:
    """The learner in a thread of its own; its address."""
    with in_thread(learner.listening()) as port:
        yield f"127.0.0.1:{port}"


def drive(address: str, *options: str) -> list[str]:
    return ["--rllink", address, "--rllink-mode", "drive", "--rllink-env-steps", "20", *options]


def enough(learner: TinyLearner, batches: int) -> None:
    running.until(lambda: len(learner.batches) >= batches)
