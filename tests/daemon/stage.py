"""Agents, outcomes and a session that exist only in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import trio

from ospbridge.daemon.attachment import Driver
from ospbridge.interface import AgentInterface, InterfaceValue, StepOutcome
from ospbridge.osp.client.clock import StepClock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ospbridge.errors import OspBridgeError

ONE = Driver("one.py", 11)
TWO = Driver("two.py", 22)


def agent(name: str, low: float = -1.0, *, outputs: int = 1) -> AgentInterface:
    """One input, one output, and the infos of an agent that scores its episodes."""
    return AgentInterface(
        1,
        name,
        (InterfaceValue("/in", low, 1.0),),
        tuple(InterfaceValue(f"/out{at or ''}", -1.0, 1.0) for at in range(outputs)),
        (InterfaceValue("/episode/reward", 0.0, 1.0), InterfaceValue("/episode/terminated", 0.0, 1.0)),
    )


def outcome(value: float, *, outputs: int = 1, reward: float = 0.0, ended: bool = False) -> StepOutcome:
    return StepOutcome(np.full(outputs, value, np.float32), np.array([reward, ended], np.float32))


def inputs(value: float) -> bytes:
    return np.array([value], "<f4").tobytes()


class FakeMachine:
    """What the conductor looks at of a session's machine."""

    def __init__(self) -> None:
        self.notices: list[Any] = []
        self.foreign: frozenset[str] = frozenset()
        self.vote_outstanding = False
        self.retries = 0
        self.lost: OspBridgeError | None = None
        self.may_say_goodbye = True
        self.clock = StepClock()


class FakeSession:
    """Every agent's output is its input; a step takes ``think`` seconds. ``errors`` are raised, one a call."""

    def __init__(self, *names: str, think: float = 0.0) -> None:
        self.names = names
        self.think = think
        self.outputs = 1
        self.machine = FakeMachine()
        self.over = False
        self.clock = trio.current_time
        self.votes_at_once: tuple[Any, ...] = ()
        self.steps: list[dict[str, float]] = []
        self.seeds: list[int] = []
        self.ending: dict[str, int] = {}
        """Agents whose episode ends with that step since the reset."""
        self.step_errors: list[OspBridgeError] = []
        self.errors_behind = 0
        """So many steps go well before."""
        self.reset_errors: list[OspBridgeError] = []
        self.audit_says = ""
        self.audits = 0
        self.told: list[Any] = []
        self._count = 0
        self._busy = False

    async def reset(self, seed: int) -> bool:
        await trio.lowlevel.checkpoint()
        if self.reset_errors:
            raise self.reset_errors.pop(0)
        self.seeds.append(seed)
        self._count = -1
        return True

    async def step(self, given: Mapping[str, NDArray[np.float32] | bytes]) -> dict[str, StepOutcome]:
        actions = {name: np.frombuffer(inputs, "<f4") for name, inputs in given.items()}
        assert not self._busy, "two steps at once"
        assert set(actions) == set(self.names)
        self._busy = True
        try:
            await trio.sleep(self.think)
        finally:
            self._busy = False
        if self.step_errors and len(self.steps) >= self.errors_behind:
            raise self.step_errors.pop(0)
        return self.taken(given)

    def taken(self, given: Mapping[str, NDArray[np.float32] | bytes]) -> dict[str, StepOutcome]:
        """The step has run."""
        actions = {name: np.frombuffer(inputs, "<f4") for name, inputs in given.items()}
        self._count += 1
        self.steps.append({name: float(values[0]) for name, values in actions.items()})
        return {
            name: outcome(
                float(values[0]),
                outputs=self.outputs,
                reward=1.0,
                ended=self.ending.get(name) == self._count,
            )
            for name, values in actions.items()
        }

    async def audit(self) -> str:
        await trio.lowlevel.checkpoint()
        self.audits += 1
        return self.audit_says

    async def look_back(self) -> str:
        await trio.lowlevel.checkpoint()
        return self.audit_says

    def take_notices(self) -> list[Any]:
        notices, self.machine.notices = self.machine.notices, []
        return notices
