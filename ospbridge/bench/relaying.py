"""``ospbridge bench relay``: what it costs to relay experience, and to act for an agent with a policy from upstream.

Relaying is told as the ratio of a hub environment's steps with and without an upstream, beside a simulator that never
sleeps, and beside one that sleeps while it waits, as simulators do. Driving is told by an RLlink
server that takes the time from the weights it hands out to the batch that they bring: beside bare sockets that step the
same simulator, and beside the client that Ray brings, where there is a Python with Ray.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from ospbridge.bench.figures import BRIEF, PANELS, QUANTITIES, best_of, first, runs_of, untold
from ospbridge.bench.processes import Program, ProgramFailed, culprit
from ospbridge.bench.relaying_learner import Batch
from ospbridge.bench.report import Against, Panel, Report, combine
from ospbridge.bench.stage import START, Stage
from ospbridge.bench.step import subjects_on
from ospbridge.bench.subjects import IN_EPISODES, PLAIN, RELAYED, SPINNING_FLOOR
from ospbridge.errors import OspBridgeError
from ospbridge.transport.unix import room_for_sockets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ospbridge.bench.figures import Runs, Told
    from ospbridge.bench.report import Values

__all__ = [
    "BATCH",
    "CART_POLE",
    "DRIVEN",
    "RAYS",
    "WHILE_IT_SLEEPS",
    "driving",
    "learner_of",
    "measure_driving",
    "measure_relaying",
    "relaying_runs",
]

RAYS_OWN: Final = Path(__file__).with_name("relaying_ray.py")
"""For Ray's Python; nothing of ours imports it."""
WHILE_IT_SLEEPS: Final = {name: f"{name}, simulator sleeps between steps" for name in (IN_EPISODES, RELAYED)}
"""The same two, beside such a simulator."""
DRIVEN: Final = "the daemon drives"
CART_POLE: Final = "the daemon drives CartPole, a simulator"
RAYS: Final = "Ray's own client, CartPole within"
BATCH: Final = 500
"""Steps from weights to weights."""
STEPS: Final = 10_000
"""Of a turn, into which falls what is done behind the ends of episodes, some tenths of a second later."""
WARM_UP: Final = 5_000
"""Steps before those: what is left of theirs then is as much as what these leave."""
STARTS: Final = 4
"""That programs are started anew in each run, for a turn of each way: the best of all counts."""
UNCOUNTED: Final = 2
"""Batches until everybody is warm."""
WITHIN: Final = 120.0
"""Seconds for Ray's client to come with its first batch, and for any other batch."""


def relaying_runs(*, steps: int, told: Told = untold) -> Runs:
    """Runs without end of a hub environment in episodes, without and with an upstream that is sent all of them.

    Each has programs of its own: where its code and data happen to lie makes a process a fifth faster or slower
    than its twin, for as long as it lives.
    """
    while True:
        run: dict[str, Values] = {}
        for sleeps in (False, True):
            with Stage(inputs=8, outputs=16, apart=True, sleeps=sleeps) as stage:
                subjects = subjects_on(stage, WHILE_IT_SLEEPS, steps, warm_up=WARM_UP)
                if sleeps:
                    subjects = {WHILE_IT_SLEEPS[name]: subject for name, subject in subjects.items()}
                run |= next(runs_of(subjects, told, contextlib.nullcontext()))
        yield run


def measure_relaying(*, steps: int = STEPS, runs: int = 3, told: Told = untold) -> Report:
    """As ``relaying_runs``, of which the best of ``STARTS`` of each way count as one."""
    found = first(relaying_runs(steps=steps, told=told), runs * STARTS)
    best = [best_of(found[at::runs]) for at in range(runs)]
    plain = PLAIN | {WHILE_IT_SLEEPS[RELAYED]: WHILE_IT_SLEEPS[IN_EPISODES]}
    return Report(
        "relay",
        "A step of a hub environment in episodes of 100, without and with an upstream",
        {"steps": steps, "starts": STARTS, "runs": runs},
        QUANTITIES,
        combine(
            best,
            [
                Against("unrelayed", "p50_us", plain),
                Against("unrelayed steps/s", "steps_per_second", plain),
            ],
            over=plain,
        ),
        panels=PANELS,
        over="us",
    )


def measure_driving(
    *, batches: int = 20, runs: int = 3, ray_python: str | None = None, told: Told = untold
) -> Report:
    """A step of an agent that a policy of 64 x 64 drives: ours, and Ray's own client with ``ray_python``.

    Raises ProgramFailed where a program fails, and where that Python has no fitting Ray.
    """
    clients: dict[str, Callable[[Stage, int], Values]] = {DRIVEN: _driven, CART_POLE: _cart_pole}
    with contextlib.ExitStack() as programs:
        directory = Path(programs.enter_context(tempfile.TemporaryDirectory(prefix="ospb-")))
        stage = programs.enter_context(Stage(inputs=8, outputs=16))
        if ray_python is not None:
            clients[RAYS] = _Rays(ray_python, directory).played
        subjects = subjects_on(stage, [SPINNING_FLOOR], BATCH * batches)
        subjects |= {name: partial(client, stage, batches) for name, client in clients.items()}
        found = first(runs_of(subjects, told, contextlib.nullcontext()), runs)
    against = [] if ray_python is None else [Against("Ray's", "p50_us", dict.fromkeys(clients, RAYS))]
    return Report(
        "drive",
        "A step of an agent that a policy of 64 x 64 from upstream drives",
        {"batches": batches, "batch": BATCH, "runs": runs},
        BRIEF,
        combine(found, against, over={DRIVEN: SPINNING_FLOOR}),
        panels=(Panel("time of a step (us): median, 99 %", ("p50_us", "p99_us")),),
        over="us",
        notes=(
            f"the daemon's and Ray's steps are means of batches of {BATCH}; the floor's are single ones",
            *(
                []
                if ray_python
                else ["Ray's own client was not measured: --ray-python PYTHON names one with Ray"]
            ),
        ),
    )


def _driven(stage: Stage, batches: int) -> Values:
    """The responder's agent."""
    with (
        learner_of("--observations", str(stage.outputs), "--dist-inputs", str(2 * stage.inputs)) as learner,
        driving(stage.responder, learner),
    ):
        return _batches(learner, batches)


def _cart_pole(_: Stage, batches: int) -> Values:
    """What Ray's client plays within, as a simulator."""
    words = ("sim", "--env", "CartPole-v1", "--port", "0", "--quiet")
    with (
        learner_of("--observations", "4", "--dist-inputs", "2") as learner,
        Program("ospbridge", *words, name="the simulator") as simulator,
        driving(simulator.line(START), learner, "--scenario", "cartpole"),
    ):
        return _batches(learner, batches)


def learner_of(*options: str) -> Program:
    """An RLlink server with a policy of such sizes, that wants ``BATCH`` steps at once."""
    return Program(
        "ospbridge.bench.relaying_learner", "--env-steps", str(BATCH), *options, name="the learner"
    )


@contextlib.contextmanager
def driving(simulator: str, learner: Program, *options: str) -> Iterator[Program]:
    """A daemon that drives the simulator's agent with what the learner hands out.

    Raises ProgramFailed in place of what others see of its end.
    """
    upstream = ("--rllink", learner.line(START), "--rllink-mode", "drive", "--rllink-dialect", "msgpack")
    batches = ("--rllink-env-steps", str(BATCH), "--rllink-seed", "1")
    with (
        tempfile.TemporaryDirectory(prefix="ospb-", dir=room_for_sockets()) as directory,
        Program(
            *("ospbridge", "connect", "--simulator", simulator, *upstream, *batches, *options),
            name="the daemon",
            environment={"RUNTIME_DIRECTORY": directory},
            heard=False,
        ) as daemon,
    ):
        try:
            yield daemon
        except OspBridgeError as error:
            failure = culprit([daemon])
            if failure is None:
                raise
            raise failure from error


def _batches(learner: Program, count: int) -> Values:
    came = [msgspec.json.decode(learner.line(WITHIN), type=Batch) for _ in range(UNCOUNTED + count)]
    found = came[UNCOUNTED:]
    p50, p99 = np.percentile([batch.seconds / batch.steps for batch in found], (50, 99)) * 1e6
    rate = sum(batch.steps for batch in found) / sum(batch.seconds for batch in found)
    return {"p50_us": float(p50), "p99_us": float(p99), "steps_per_second": rate}


class _Rays:
    """Ray's client in its own interpreter, and what a server of Ray's would send it."""

    def __init__(self, python: str, directory: Path) -> None:
        self._python = python
        self._directory = directory
        config, weights = directory / "config.pickle", directory / "weights.npz"
        self._sent = ("--config", str(config), "--weights", str(weights))
        with self._program("make", str(config), str(weights), str(BATCH)) as (process, failed):
            try:
                process.wait(WITHIN)
            except subprocess.TimeoutExpired:
                raise failed(f"wrote nothing within {WITHIN:g} s") from None
            if process.returncode:
                raise failed(f"failed with exit code {process.returncode}")

    def played(self, _: Stage, batches: int) -> Values:
        """CartPole in Ray's own loop."""
        with learner_of(*self._sent) as learner:
            port = learner.line(START).rpartition(":")[2]
            with self._program("play", port) as (process, failed):
                try:
                    return _batches(learner, batches)
                except ProgramFailed as error:
                    if process.poll() is None:
                        raise
                    raise failed(f"ended with exit code {process.returncode}") from error

    @contextlib.contextmanager
    def _program(
        self, *arguments: str
    ) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[str], ProgramFailed]]]:
        """The program, and an error of it with what it said."""
        with tempfile.TemporaryFile() as said:

            def failed(what: str) -> ProgramFailed:
                said.seek(0)
                last = said.read().decode("utf-8", "replace").strip().splitlines()[-2:]
                return ProgramFailed(
                    ": ".join(filter(None, (f"Ray's own client {what}", " / ".join(last)))),
                    hint=f"{self._python} must have ray[rllib] 2.49 or later, torch and msgpack-numpy",
                )

            try:
                process = subprocess.Popen(  # noqa: S603  # the interpreter that the user named, with a program of ours
                    [self._python, str(RAYS_OWN), *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                    # It leaves files where it runs, and the modules beside its program are not meant for it.
                    cwd=self._directory,
                    env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"},
                    start_new_session=True,
                )
            except OSError as error:
                raise failed(f"cannot be started: {error.strerror}") from None
            try:
                yield process, failed
            finally:
                process.kill()
                process.wait()
