"""One session that plays at a server in memory, and simulators that take their time.

What each step was given and brought is kept, and held against what the simulator did.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.errors import BarrierStuck, OutputsIncomplete, SessionLost, StepUncertain
from ospbridge.osp.codes import Code
from ospbridge.osp.profile import Profile
from ospbridge.osp.timing import Limits
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from tests.osp.pair import Client, Datagram, Fault, Pair, no_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

REQUEST: Final = Code.NEXT_SIMULATION_STEP
ASKS_RESET: Final = Code.RESET_SIMULATION
COUNTED: Final = Code.NEXT_SIMULATION_STEP_ACK
DONE: Final = Code.NEXT_SIMULATION_STEP_COMPLETED
SEEN: Final = Code.NEXT_SIMULATION_STEP_COMPLETED_ACK
RESETS: Final = frozenset({Code.RESET_SIMULATION_COMPLETED, Code.RESET_SIMULATION_COMPLETED_ACK})
"""Codes that end a reset, each in one profile."""
SEED: Final = 7
PROMPT: Final = (0.0,)
LOST: Final = ()
LIMITS: Final = Limits(connect=10, query=2, listing=4, step=6, reset=8)


class Player:
    """One session with all agents of a simulator. Each step of an episode has inputs that no other one has.

    ``taken``: it takes so many only. ``fault``: what the network does from the first datagram on.
    """

    def __init__(
        self,
        profile: Profile,
        agents: int = 1,
        *,
        taken: int | None = None,
        outputs: int = 3,
        limits: Limits = LIMITS,
        fault: Fault = no_fault,
    ) -> None:
        self.profile = profile
        self.limits = limits
        everyone = tuple(f"agent{at}" for at in range(agents))
        self.names = everyone[:taken]
        self.outputs = outputs
        self.pair = Pair(SyntheticWorld(1, outputs, names=everyone), profile, fault=fault)
        self.client: Client = self.pair.client(profile, limits=limits).connect()
        self.talk: Any = self.client.conversation
        self.client.do(self.talk.register(self.names))
        self.seed = SEED
        self.given: list[dict[str, list[float]]] = []
        """Inputs of each step since the latest reset."""
        self.brought: list[dict[str, list[float]]] = []
        self.restored: list[bool] = []
        """Whether something of a step was read back."""

    @property
    def machine(self) -> Any:
        return self.talk.machine

    # --- what it does ----------------------------------------------------------------------------------------------

    def reset(self, seed: int = SEED) -> float:
        """Seconds that it took."""
        began = self.pair.now
        self.client.do(self.talk.reset(seed))
        self.seed = seed
        self.given, self.brought, self.restored = [], [], []
        return self.pair.now - began

    def begin(self, steps: int) -> None:
        """A reset, and so many steps of which nothing is wrong."""
        self.reset()
        for _ in range(steps):
            self.step()

    def step(self) -> float:
        """Seconds that it took."""
        began, number = self.pair.now, len(self.given) + 1
        inputs = {
            name: np.array([number / 128 + at / 4096], np.float32) for at, name in enumerate(self.names)
        }
        self.given.append({name: inputs[name].tolist() for name in self.names})
        brought = self.client.do(self.talk.step(inputs))
        self.brought.append({name: brought[name].outputs.tolist() for name in self.names})
        self.restored.append(any(brought[name].restored for name in self.names))
        return self.pair.now - began

    def steps(self, count: int) -> list[float]:
        """Seconds that each took."""
        return [self.step() for _ in range(count)]

    def audit(self) -> str:
        found: str = self.client.do(self.talk.audit())
        return found

    def told(self, steps: int) -> str:
        """What so many steps and the audit behind them say against them; nothing where all are believed and true."""
        try:
            self.steps(steps)
        except (StepUncertain, OutputsIncomplete, BarrierStuck, SessionLost) as error:
            return error.message
        reason = self.audit()
        if not reason:
            self.verify()
        return reason

    def episode(self, steps: int, seed: int = SEED) -> str:
        """The same of a whole episode."""
        self.reset(seed)
        return self.told(steps)

    def succeed(self) -> Player:
        """The session that takes the place of this one, which leaves."""
        before = self.client
        with suppress(SessionLost):
            before.do(self.talk.leave())
        self.client = self.pair.client(self.profile, limits=self.limits).connect()
        self.client.inherit(before)
        self.talk = self.client.conversation
        self.client.do(self.talk.register(self.names))
        return self

    # --- what was true ---------------------------------------------------------------------------------------------

    @property
    def ran(self) -> list[dict[str, list[float]]]:
        """Inputs of the steps since the latest reset, as they were in truth."""
        entries = self.pair.ledger
        reset = max(at for at, entry in enumerate(entries) if entry["kind"] == "reset")
        return [
            {name: of["inputs"] for name, of in entry["agents"].items()} for entry in entries[reset + 1 :]
        ]

    @property
    def wrong(self) -> list[int]:
        """Steps, from 0, that brought what was not the simulator's own for what they were given."""
        return [
            at
            for at, (given, brought) in enumerate(zip(self.given, self.brought, strict=False))
            for name in self.names
            if brought[name]
            != expected(np.array(given[name], np.float32), at + 1, self.outputs, seed=self.seed).tolist()
        ]

    def verify(self) -> None:
        """What was given is what ran, and what was brought is what came of it."""
        assert self.ran == self.given
        assert self.wrong == []
        assert len(self.brought) == len(self.given)

    def sent(self, code: Code) -> int:
        """How many datagrams of that code went out to the simulator."""
        return sum(datagram.to_server and datagram.data[0] == code for datagram in self.pair.sent)

    # --- what happens to its datagrams -----------------------------------------------------------------------------

    def meets(self, *fates: tuple[bytes, Iterable[float]]) -> list[tuple[bytes, Iterable[float]]]:
        """The next datagram that begins so is delayed so, one kind after the other; returns those that are left."""
        left, usual = list(fates), self.pair.fault

        def fault(datagram: Datagram) -> Iterable[float]:
            return left.pop(0)[1] if left and datagram.data.startswith(left[0][0]) else usual(datagram)

        self.pair.fault = fault
        return left

    def lose(self, *lost: list[int]) -> list[tuple[bytes, Iterable[float]]]:
        """The next datagrams of such a code and agent, one after the other."""
        return self.meets(*((bytes(each), LOST) for each in lost))

    def once(self, code: Code, agent: int, *, behind: float = 0.0) -> None:
        """The next datagram of that kind about this agent comes twice."""
        self.meets((bytes([code, agent]), (0.0, behind)))


def thinks(player: Player, take: Callable[[int], float], *, clock_first: bool = False) -> None:
    """The world moves for so long behind the requests of a step, and counts what comes meanwhile for the next one.

    ``take``: seconds, by the number of steps that ran before. ``clock_first``: the clock moves when a step begins.
    """
    pair: Pair = player.pair
    server: Any = pair.server
    run, settle = server._run_step, server.settle
    moving: list[list[Any]] = []

    def begin() -> None:
        moving.append([control.agent.inputs.copy() for control in server.controls])
        requests, server.step_requests = server.step_requests, []
        server.clock.steps += clock_first
        pair.at(pair.now + take(server.steps), lambda: end(requests))

    def end(requests: list[Any]) -> None:
        inputs = [control.agent.inputs for control in server.controls]
        later = [of.copy() for of in inputs]
        for of, used in zip(inputs, moving[0], strict=True):
            of[:] = used
        counted, server.step_requests = server.step_requests, requests
        server.clock.steps -= clock_first
        run()
        server.step_requests = counted
        for of, given in zip(inputs, later, strict=True):
            of[:] = given
        moving.clear()
        server.settle(0.0)
        pair.flush_server()

    server._run_step = begin
    server.settle = lambda *delay: None if moving else settle(*delay)
