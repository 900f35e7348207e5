"""What is measured: each way of taking a step, as a function that takes many and says how long each took.

A subject joins, resets, warms up, steps, and leaves; only its steps count. All subjects step the same agent of the
same responder, but for hub environments, whose daemons keep a responder each.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from ospbridge.bench.floors import blocking_floor, spinning_floor
from ospbridge.bench.processes import Program
from ospbridge.osp.profile import PROFILES

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = [
    "BLOCKING_FLOOR",
    "DIRECT",
    "FLOORS",
    "IN_EPISODES",
    "PLAIN",
    "RELAYED",
    "SPINNING_FLOOR",
    "SUBJECTS",
    "WITH_SCENARIO",
    "Stage",
]

AGENT: Final = "agent"
ENVIRONMENT: Final = "ospbridge/Agent-v0"
START: Final = 20.0
"""Seconds that a program may take to start."""
BLOCKING_FLOOR: Final = "blocking floor"
SPINNING_FLOOR: Final = "spinning floor"
FLOORS: Final = (BLOCKING_FLOOR, SPINNING_FLOOR)
DIRECT: Final = "direct environment"
WITH_SCENARIO: Final = "direct environment, with scenario"
WRAPPED: Final = "direct environment, wrapped"
IN_EPISODES: Final = "hub environment, in episodes"
RELAYED: Final = "hub environment, relayed"
PLAIN: Final = {WITH_SCENARIO: DIRECT, WRAPPED: DIRECT, RELAYED: IN_EPISODES}
"""What the subjects have in addition, another is without: their figures are also told as differences to its."""
SHORT_NAMES: Final = "abcde"
SCENARIO: Final = """\
name = "bench"
[[agent]]
match = {{ name = "{agent}" }}
[agent.names]
{names}
[agent.episode]
reward = "1.0 - 0.1 * (a * a + b * b) - 0.01 * abs(c)"
terminated = "abs(d) > 2.4 or abs(e) > 2.4"
"""
"""The responder's outputs never get as far as the end."""
SHORT_EPISODES: Final = """\
name = "bench"
[[agent]]
[agent.episode]
max_steps = 100
"""


class Stage:
    """The programs that subjects need, started when first asked for and ended with the stage."""

    def __init__(self, *, inputs: int, outputs: int, profile: str = "document") -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.profile = PROFILES[profile]
        self.action: NDArray[np.float32] = np.full(inputs, 0.5, np.float32)
        self._programs = contextlib.ExitStack()
        self._responder = ""
        self._hubs: dict[str, str] = {}
        self._scenario = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._programs.close()

    @property
    def responder(self) -> str:
        """HOST:PORT of a responder whose agent is free."""
        self._responder = self._responder or self._new_responder()
        return self._responder

    @property
    def scenario(self) -> str:
        """A file that gives the responder's agent a reward and an end, of five short names."""
        if not self._scenario:
            directory = self._programs.enter_context(tempfile.TemporaryDirectory(prefix="ospb-"))
            names = (
                f'{short} = "output:/sensor/{at % self.outputs}"' for at, short in enumerate(SHORT_NAMES)
            )
            file = Path(directory) / "bench.toml"
            file.write_text(SCENARIO.format(agent=AGENT, names="\n".join(names)))
            self._scenario = str(file)
        return self._scenario

    @property
    def hub(self) -> str:
        """The hub of a daemon that controls a responder's agent."""
        return self._daemon("plain")

    @property
    def hub_of_episodes(self) -> str:
        """The hub of such a daemon that ends each episode after 100 steps."""
        return self._daemon("episodes", scenario=SHORT_EPISODES)

    @property
    def relayed_hub(self) -> str:
        """The same with an RLlink server that is sent every episode: a sink that counts."""
        return self._daemon("relayed", scenario=SHORT_EPISODES, relayed=True)

    def _daemon(self, name: str, *, scenario: str = "", relayed: bool = False) -> str:
        if name not in self._hubs:
            directory = Path(self._programs.enter_context(tempfile.TemporaryDirectory(prefix="ospb-")))
            hub = f"unix:{directory / 'hub'}"
            options = ["--simulator", self._new_responder(), "--hub", hub]
            if scenario:
                (directory / "bench.toml").write_text(scenario)
                options += ["--scenario", str(directory / "bench.toml")]
            if relayed:
                sink = Program("ospbridge", "sink", "--listen", "127.0.0.1:0", name="the sink")
                address = self._programs.enter_context(sink).line(START)
                options += ["--rllink", address, "--rllink-mode", "observe", "--rllink-unannotated"]
                options += ["--rllink-spool", str(directory / "spool.sqlite")]
            daemon = Program(
                "ospbridge",
                "connect",
                *options,
                name="the daemon",
                environment={"RUNTIME_DIRECTORY": str(directory)},
                heard=False,
            )
            self._programs.enter_context(daemon)
            self._hubs[name] = hub
        return self._hubs[name]

    def _new_responder(self) -> str:
        program = Program(
            "ospbridge.bench.responder",
            *("--inputs", str(self.inputs), "--outputs", str(self.outputs), "--profile", self.profile.name),
            name="the responder",
        )
        return self._programs.enter_context(program).line(START)


def _timed(step: Callable[[], object], steps: int, warm_up: int) -> NDArray[np.float64]:
    """float64[steps]: how long each step took, in seconds."""
    for _ in range(warm_up):
        step()
    stamps = [perf_counter_ns()]
    stamp = stamps.append
    for _ in range(steps):
        step()
        stamp(perf_counter_ns())
    return _durations(stamps)


def _durations(stamps: list[int]) -> NDArray[np.float64]:
    return np.diff(np.array(stamps, np.float64) - stamps[0]) * 1e-9


def _blocking_floor(stage: Stage, steps: int, warm_up: int) -> NDArray[np.float64]:
    with blocking_floor(stage.responder, stage.profile, stage.inputs, stage.outputs) as step:
        return _timed(step, steps, warm_up)


def _spinning_floor(stage: Stage, steps: int, warm_up: int) -> NDArray[np.float64]:
    with spinning_floor(stage.responder, stage.profile, stage.inputs, stage.outputs) as step:
        return _timed(step, steps, warm_up)


def _blocking_session(stage: Stage, steps: int, warm_up: int) -> NDArray[np.float64]:
    from ospbridge.session.blocking import BlockingSession

    with BlockingSession.connect(stage.responder, profile=stage.profile) as session:
        session.register(AGENT)
        session.reset()
        actions = {AGENT: stage.action}
        return _timed(lambda: session.step(actions), steps, warm_up)


def _sleeping_session(stage: Stage, steps: int, warm_up: int) -> NDArray[np.float64]:
    from ospbridge.session.blocking import BlockingSession

    with BlockingSession.connect(stage.responder, profile=stage.profile, spin=False) as session:
        session.register(AGENT)
        session.reset()
        actions = {AGENT: stage.action}
        return _timed(lambda: session.step(actions), steps, warm_up)


def _trio_session(stage: Stage, steps: int, warm_up: int) -> NDArray[np.float64]:
    import trio

    from ospbridge.session.trio_session import TrioSession

    async def run() -> NDArray[np.float64]:
        async with await TrioSession.connect(stage.responder, profile=stage.profile) as session:
            await session.register(AGENT)
            await session.reset()
            actions = {AGENT: stage.action}
            for _ in range(warm_up):
                await session.step(actions)
            stamps = [perf_counter_ns()]
            stamp = stamps.append
            for _ in range(steps):
                await session.step(actions)
                stamp(perf_counter_ns())
            return _durations(stamps)

    return trio.run(run)


def _direct(stage: Stage, steps: int, warm_up: int) -> NDArray[np.float64]:
    return _environment(stage, steps, warm_up, wrapped=False, simulator=stage.responder, **_kind(stage))


def _direct_wrapped(stage: Stage, steps: int, warm_up: int) -> NDArray[np.float64]:
    return _environment(stage, steps, warm_up, wrapped=True, simulator=stage.responder, **_kind(stage))


def _direct_with_scenario(stage: Stage, steps: int, warm_up: int) -> NDArray[np.float64]:
    return _environment(
        stage,
        steps,
        warm_up,
        wrapped=False,
        simulator=stage.responder,
        scenario=stage.scenario,
        **_kind(stage),
    )


def _hub(stage: Stage, steps: int, warm_up: int) -> NDArray[np.float64]:
    return _environment(stage, steps, warm_up, wrapped=False, bridge=stage.hub, wait=START)


def _in_episodes(stage: Stage, steps: int, warm_up: int) -> NDArray[np.float64]:
    return _episodes(stage, stage.hub_of_episodes, steps, warm_up)


def _relayed(stage: Stage, steps: int, warm_up: int) -> NDArray[np.float64]:
    return _episodes(stage, stage.relayed_hub, steps, warm_up)


def _episodes(stage: Stage, hub: str, steps: int, warm_up: int) -> NDArray[np.float64]:
    """A step that ends an episode counts with the reset behind it, and so with what is done meanwhile."""
    import gymnasium

    import ospbridge  # noqa: F401  # registers the id

    made = gymnasium.make(ENVIRONMENT, agent=AGENT, bridge=hub, wait=START)
    try:
        env, action = made.unwrapped, stage.action

        def step() -> None:
            *_, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

        env.reset(seed=1)
        return _timed(step, steps, warm_up)
    finally:
        made.close()


def _kind(stage: Stage) -> dict[str, str]:
    return {"profile": stage.profile.name}


def _environment(
    stage: Stage, steps: int, warm_up: int, *, wrapped: bool, **options: Any
) -> NDArray[np.float64]:
    import gymnasium

    import ospbridge  # noqa: F401  # registers the id

    made = gymnasium.make(ENVIRONMENT, agent=AGENT, **options)
    try:
        env = made if wrapped else made.unwrapped
        env.reset(seed=1)
        step, action = env.step, stage.action
        return _timed(lambda: step(action), steps, warm_up)
    finally:
        made.close()


SUBJECTS: Final[dict[str, Callable[[Stage, int, int], NDArray[np.float64]]]] = {
    BLOCKING_FLOOR: _blocking_floor,
    SPINNING_FLOOR: _spinning_floor,
    "BlockingSession": _blocking_session,
    "BlockingSession, never spinning": _sleeping_session,
    "TrioSession": _trio_session,
    DIRECT: _direct,
    WITH_SCENARIO: _direct_with_scenario,
    WRAPPED: _direct_wrapped,
    "hub environment": _hub,
    IN_EPISODES: _in_episodes,
    RELAYED: _relayed,
}
"""By name; floors first, and slower ways behind faster ones."""
