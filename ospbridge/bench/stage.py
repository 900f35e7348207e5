"""The programs that subjects of a measurement need beside themselves: simulators, daemons, a sink."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from ospbridge.bench.cores import keep_apart
from ospbridge.bench.processes import Program, culprit
from ospbridge.errors import OspBridgeError
from ospbridge.osp.profile import PROFILES
from ospbridge.transport.unix import room_for_sockets

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ospbridge.bench.exercise import Exercise

__all__ = ["AGENT", "START", "Stage", "time_for"]

AGENT: Final = "agent"
"""Of a simulator that has one only."""
START: Final = 20.0
"""Seconds that a program may take to start."""
DRAIN: Final = 10.0
"""Seconds for what was played to arrive upstream."""
LOOK: Final = 0.05
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


def time_for(steps: int, *, clients: int = 1) -> float:
    """Seconds that so many clients which step together may take, with little left of a busy machine."""
    return 60.0 + 0.02 * steps * clients


class Stage:
    """The programs that subjects need, started when first asked for and ended with the stage.

    ``apart``: the responder has a core to itself, and nobody spins there who waits for it (``cores``); unless it
    ``sleeps`` between steps, when others may have that core meanwhile.
    """

    def __init__(
        self,
        *,
        inputs: int,
        outputs: int,
        profile: str = "document",
        think: float = 0.0,
        agents: int = 1,
        simulators: int = 1,
        apart: bool = False,
        sleeps: bool = False,
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.profile = PROFILES[profile]
        self.think = think
        self.agents = agents
        self.simulators = simulators
        self.apart = apart
        self.sleeps = sleeps
        self.action: NDArray[np.float32] = np.full(inputs, 0.5, np.float32)
        self._programs = contextlib.ExitStack()
        self._started: list[Program] = []
        self._responders: list[str] = []
        self._daemons: dict[str, tuple[str, Program]] = {}
        self._scenario = ""

    @classmethod
    def of(
        cls,
        exercise: Exercise,
        *,
        think: float = 0.0,
        agents: int = 1,
        simulators: int = 1,
        apart: bool = False,
        sleeps: bool = False,
    ) -> Self:
        """For this exercise."""
        return cls(
            inputs=exercise.inputs,
            outputs=exercise.outputs,
            profile=exercise.profile,
            think=think,
            agents=agents,
            simulators=simulators,
            apart=apart,
            sleeps=sleeps,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raises ProgramFailed in place of an error of whoever spoke with a program that has ended."""
        failure = culprit(self._started) if isinstance(error, OspBridgeError) else None
        self._programs.close()
        if failure is not None:
            raise failure from error

    def _start(self, program: Program) -> Program:
        self._started.append(program)
        return self._programs.enter_context(program)

    @property
    def responder(self) -> str:
        """HOST:PORT of a simulator whose agents are free."""
        return self.responders[0]

    @property
    def responders(self) -> list[str]:
        """Those of all simulators whose agents are free; they share a process."""
        self._responders = self._responders or self._new_responders(self.simulators)
        return self._responders

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
        """The hub of a daemon that controls the agents of a simulator of its own."""
        return self._daemon("plain")[0]

    @property
    def daemon(self) -> Program:
        """The daemon of ``hub``."""
        return self._daemon("plain")[1]

    @property
    def hub_of_episodes(self) -> str:
        """The hub of such a daemon that ends each episode after 100 steps."""
        return self._daemon("episodes", scenario=SHORT_EPISODES)[0]

    @property
    def relayed_hub(self) -> str:
        """The same with an RLlink server that is sent every episode: a sink that counts."""
        return self._daemon("relayed", scenario=SHORT_EPISODES, relayed=True)[0]

    def drain_relay(self) -> None:
        """Wait until the RLlink server of ``relayed_hub`` has all that was played there, or cannot have it."""
        from ospbridge.session.hub_client import HubClient

        give_up = monotonic() + DRAIN
        client = HubClient.connect(self.relayed_hub)
        try:
            while monotonic() < give_up:
                spool = client.status().upstreams[0].spool
                if spool is None or not (spool.entries or spool.unwritten):
                    return
                sleep(LOOK)
        finally:
            client.close()

    def keep_daemons_apart(self) -> None:
        """Daemons that have joined leave the responder its core, as whoever is ``timed`` does."""
        for _, daemon in self._daemons.values() if self.apart else ():
            keep_apart(daemon.process.pid)

    def _daemon(self, name: str, *, scenario: str = "", relayed: bool = False) -> tuple[str, Program]:
        if name not in self._daemons:
            made = tempfile.TemporaryDirectory(prefix="ospb-", dir=room_for_sockets())
            directory = Path(self._programs.enter_context(made))
            hub = f"unix:{directory / 'hub'}"
            options = ["--simulator", self._new_responders(1)[0], "--hub", hub]
            # All of them play from the first step on, however late one of their processes comes.
            options += ["--quorum", str(self.agents)]
            if scenario:
                (directory / "bench.toml").write_text(scenario)
                options += ["--scenario", str(directory / "bench.toml")]
            if relayed:
                sink = Program("ospbridge", "sink", "--listen", "127.0.0.1:0", name="the sink")
                address = self._start(sink).line(START)
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
            self._start(daemon)
            self._daemons[name] = hub, daemon
        return self._daemons[name]

    def _new_responders(self, simulators: int) -> list[str]:
        program = Program(
            "ospbridge.bench.responder",
            *("--inputs", str(self.inputs), "--outputs", str(self.outputs), "--profile", self.profile.name),
            *("--agents", str(self.agents), "--simulators", str(simulators), "--think", str(self.think)),
            *(["--alone"] if self.apart else []),
            *(["--sleep"] if self.sleeps else []),
            name="the responder",
        )
        self._start(program)
        return [program.line(START) for _ in range(simulators)]
