"""``python -m ospbridge.bench.peers_server``: an environment of dm_env_rpc that computes nothing, to measure that peer.

Its spaces are those of a responder. What it answers was made before, as a responder's steps are. The first line of
output is the address; it ends when its standard input does. Needs the package ``dm-env-rpc``.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ACTION", "ADDRESS", "OBSERVATION"]

ACTION = "action"
OBSERVATION = "observation"
ADDRESS = "127.0.0.1"
_ACTION_ID, _OBSERVATION_ID = 1, 2


def _answers(inputs: int, outputs: int) -> dict[str, Any]:
    """What is answered to each kind of request, by the name of its field."""
    import numpy as np
    from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
    from dm_env_rpc.v1 import tensor_utils

    specs = rpc.ActionObservationSpecs()
    specs.actions[_ACTION_ID].CopyFrom(
        rpc.TensorSpec(
            name=ACTION,
            shape=[inputs],
            dtype=rpc.FLOAT,
            min=rpc.TensorSpec.Value(floats={"array": [-1.0] * inputs}),
            max=rpc.TensorSpec.Value(floats={"array": [1.0] * inputs}),
        )
    )
    specs.observations[_OBSERVATION_ID].CopyFrom(
        rpc.TensorSpec(name=OBSERVATION, shape=[outputs], dtype=rpc.FLOAT)
    )
    step = rpc.StepResponse(state=rpc.RUNNING)
    step.observations[_OBSERVATION_ID].CopyFrom(tensor_utils.pack_tensor(np.zeros(outputs, np.float32)))
    return {
        "create_world": rpc.EnvironmentResponse(create_world=rpc.CreateWorldResponse(world_name="nothing")),
        "join_world": rpc.EnvironmentResponse(join_world=rpc.JoinWorldResponse(specs=specs)),
        "reset": rpc.EnvironmentResponse(reset=rpc.ResetResponse(specs=specs)),
        "step": rpc.EnvironmentResponse(step=step),
        "leave_world": rpc.EnvironmentResponse(leave_world=rpc.LeaveWorldResponse()),
        "destroy_world": rpc.EnvironmentResponse(destroy_world=rpc.DestroyWorldResponse()),
    }


def serve(inputs: int, outputs: int) -> Any:
    """A server of gRPC that has begun, and its port."""
    import grpc
    from dm_env_rpc.v1 import dm_env_rpc_pb2_grpc

    answers = _answers(inputs, outputs)

    class Nothing(dm_env_rpc_pb2_grpc.EnvironmentServicer):  # type: ignore[misc]  # it carries no types
        """Answers each request from what was made before."""

        def Process(self, request_iterator: Iterator[Any], context: Any) -> Iterator[Any]:  # noqa: N802
            for request in request_iterator:
                yield answers[request.WhichOneof("payload")]

    server = grpc.server(ThreadPoolExecutor(max_workers=1))
    dm_env_rpc_pb2_grpc.add_EnvironmentServicer_to_server(Nothing(), server)
    port = server.add_secure_port(f"{ADDRESS}:0", grpc.local_server_credentials())
    server.start()
    return server, port


@click.command()
@click.option("--inputs", type=click.IntRange(1, 4000), default=8, help="Numbers of an action.")
@click.option("--outputs", type=click.IntRange(1, 4000), default=16, help="Numbers of an observation.")
def main(inputs: int, outputs: int) -> None:
    """Answer steps by dm_env_rpc without computing anything; the first line of output is the address."""
    server, port = serve(inputs, outputs)
    click.echo(f"{ADDRESS}:{port}")
    sys.stdin.read()
    server.stop(None).wait(5)


if __name__ == "__main__":
    main()
