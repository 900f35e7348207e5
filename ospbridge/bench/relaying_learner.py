"""``python -m ospbridge.bench.relaying_learner``: an RLlink server that learns nothing, and takes the time of clients.

It hands out the weights of a network of 64 x 64 at once whenever they are due, so that what lies between weights and
the batch that they brought is the client's own: acting, simulating, and writing the batch down. One JSON line for each
batch, a ``Batch``; the first line of output is the address. It ends when its standard input does.
"""

from __future__ import annotations

import select
import socket
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

import click
import msgspec
import numpy as np

from ospbridge.errors import OspBridgeError
from ospbridge.rllink.messages import ModuleWeights, SetConfig
from ospbridge.rllink.server import EpisodesArrived, ServerMachine, StateWanted
from ospbridge.transport.admission import set_keepalive

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["HIDDEN", "Batch", "network"]

HIDDEN: Final = 64
READ_AT_ONCE: Final = 256 * 1024


class Batch(msgspec.Struct, frozen=True):
    """So many steps came, so many seconds after the weights that brought them were sent."""

    steps: int
    seconds: float


def network(observations: int, outputs: int) -> dict[str, NDArray[np.float32]]:
    """Weights as RLlib names them: two hidden layers, and a head that puts out so many numbers."""
    random = np.random.default_rng(1)
    arrays: dict[str, NDArray[np.float32]] = {}
    layers = (
        ("encoder.encoder.net.mlp.0", HIDDEN, observations),
        ("encoder.encoder.net.mlp.2", HIDDEN, HIDDEN),
        ("pi.net.mlp.0", outputs, HIDDEN),
    )
    for name, wide, inputs in layers:
        arrays[f"{name}.weight"] = (random.standard_normal((wide, inputs)) / inputs).astype(np.float32)
        arrays[f"{name}.bias"] = np.zeros(wide, np.float32)
    return arrays


class Learner:
    """Serves one client after the other until descriptor ``until`` becomes readable."""

    def __init__(self, config: SetConfig, weights: dict[str, NDArray[np.float32]], until: int) -> None:
        self._config = config
        self._weights = weights
        self._until = until
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def run(self) -> None:
        """Until the descriptor is readable; a client that says what is no RLlink is left."""
        with self._listener:
            while self._wait(self._listener):
                client, _ = self._listener.accept()
                set_keepalive(client)
                with client:
                    try:
                        self._serve(client)
                    except (OspBridgeError, OSError) as error:
                        click.echo(f"a client is left: {error}", err=True)

    def _wait(self, sock: socket.socket) -> bool:
        """Until there is something to read; False where it is time to end."""
        either: list[socket.socket | int] = [sock, self._until]
        ready, _, _ = select.select(either, [], [])
        return self._until not in ready

    def _serve(self, client: socket.socket) -> None:
        machine = ServerMachine(self._config)
        seq_no, sent_at = 0, perf_counter()
        while self._wait(client):
            data = client.recv(READ_AT_ONCE)
            if not data:
                return
            # What it takes to read a batch here is none of the client's time.
            arrived_at = perf_counter()
            state_sent = False
            machine.receive(data)
            while (event := machine.next_event()) is not None:
                if isinstance(event, EpisodesArrived):
                    click.echo(msgspec.json.encode(Batch(event.steps, arrived_at - sent_at)))
                elif isinstance(event, StateWanted):
                    seq_no += 1
                    machine.send_state(ModuleWeights(self._weights, seq_no))
                    state_sent = True
            for part in machine.data_to_send():
                client.sendall(part)
            # A batch may come in pieces: only weights begin its time.
            if state_sent:
                sent_at = perf_counter()


@click.command()
@click.option("--env-steps", type=click.IntRange(1), default=500, help="Steps of a batch.")
@click.option("--observations", type=click.IntRange(1), default=16, help="Numbers that are observed.")
@click.option("--dist-inputs", type=click.IntRange(1), default=16, help="Numbers that the network puts out.")
@click.option(
    "--config",
    "pickled",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The pickle that Ray's own client wants to be sent, which is not read here.",
)
@click.option(
    "--weights",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Weights in an .npz file, in place of made-up ones.",
)
def main(
    *, env_steps: int, observations: int, dist_inputs: int, pickled: Path | None, weights: Path | None
) -> None:
    """Take the time of RLlink clients."""
    if weights is None:
        arrays = network(observations, dist_inputs)
    else:
        with np.load(weights, allow_pickle=False) as found:
            arrays = {name: found[name].astype(np.float32) for name in found.files}
    config = SetConfig(env_steps_per_sample=env_steps, force_on_policy=True)
    if pickled is not None:
        config = SetConfig(pickled=pickled.read_bytes())
    learner = Learner(config, arrays, sys.stdin.fileno())
    click.echo(learner.address)
    learner.run()


if __name__ == "__main__":
    main()
