"""``ospbridge bench peers``: steps a second of environments in other processes, by this bridge and by others.

The peers are gymnasium's own AsyncVectorEnv with one environment, and dm_env_rpc. Behind each is an environment of the
same spaces that computes nothing; the bridge's is a responder. All take turns, and ratios are taken within a run.
"""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import msgspec

from ospbridge.bench.figures import PANELS, QUANTITIES, Run
from ospbridge.bench.peers_client import ASYNC_VECTOR, DM_ENV_RPC
from ospbridge.bench.processes import Program
from ospbridge.bench.report import Against, Panel, Report, combine
from ospbridge.bench.stage import START, Stage, time_for
from ospbridge.bench.step import WARM_UP, subjects_on
from ospbridge.bench.subjects import DIRECT, HUB
from ospbridge.bench.turns import first, runs_of, untold

if TYPE_CHECKING:
    from ospbridge.bench.report import Values
    from ospbridge.bench.turns import Told

__all__ = [
    "ASYNC_VECTOR",
    "DIRECT",
    "DM_ENV_RPC",
    "HUB",
    "NEEDED",
    "OURS",
    "PEERS",
    "measure_peers",
    "not_installed",
]

OURS: Final = (DIRECT, HUB)
PEERS: Final = (ASYNC_VECTOR, DM_ENV_RPC)
NEEDED: Final = {DM_ENV_RPC: ("dm_env_rpc", "dm-env-rpc")}
"""The module that a peer needs, and the distribution that has it."""
SHORT: Final = {ASYNC_VECTOR: "AsyncVectorEnv", DM_ENV_RPC: "dm_env_rpc"}
RATE: Final = "steps_per_second"


def not_installed() -> dict[str, str]:
    """Peers that cannot be measured here, with what to install for each."""
    return {
        peer: f"pip install {distribution}"
        for peer, (module, distribution) in NEEDED.items()
        if find_spec(module) is None
    }


def measure_peers(
    *,
    inputs: int = 8,
    outputs: int = 16,
    steps: int = 2000,
    runs: int = 3,
    told: Told = untold,
) -> Report:
    """Our ways and the peers that are installed.

    ``told`` is called with a way's name before each of its turns. Raises ProgramFailed where a peer fails.
    """
    missing = not_installed()
    peers = tuple(peer for peer in PEERS if peer not in missing)
    sizes = ("--inputs", str(inputs), "--outputs", str(outputs))
    with ExitStack() as programs:
        stage = programs.enter_context(Stage(inputs=inputs, outputs=outputs))
        subjects = subjects_on(stage, OURS, steps)
        address = ""
        if DM_ENV_RPC in peers:
            server = Program("ospbridge.bench.peers_server", *sizes, name="the server of dm_env_rpc")
            address = programs.enter_context(server).line(START)
        for peer in peers:
            subjects[peer] = partial(_peer, peer, address, sizes, steps)
        found = first(runs_of(subjects, told, nullcontext()), runs)
    against = [Against(SHORT[peer], RATE, dict.fromkeys((*OURS, *peers), peer)) for peer in peers]
    return Report(
        "peers",
        "Steps of an environment in another process, by several ways",
        {"inputs": inputs, "outputs": outputs, "steps": steps, "runs": runs},
        QUANTITIES,
        combine(found, against),
        panels=(Panel("steps a second", (RATE,)), *PANELS),
        notes=(
            "ratios are of steps a second: more is faster",
            *(f"{peer} was not measured: {how}" for peer, how in missing.items()),
        ),
    )


def _peer(name: str, address: str, sizes: tuple[str, ...], steps: int) -> Values:
    """Its steps, in a process of its own."""
    counts = ("--steps", str(steps), "--warm-up", str(WARM_UP))
    with Program(
        "ospbridge.bench.peers_client", name, *sizes, *counts, "--address", address, name=name
    ) as program:
        return msgspec.json.decode(program.line(time_for(steps + WARM_UP)), type=Run).values()
