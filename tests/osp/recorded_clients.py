"""Our client in the place of recorded ones: what it sends when it is to do what they did, and is answered as they were.

``python -m tests.osp.recorded_clients`` writes ``traces/sent_otherwise.txt`` anew: all differences, each line with the
place among the recorded client's datagrams. What only the recorded client sent begins with ``-``, what only ours sends
with ``+``. Read the difference to the version before: a question more or less is a decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from ospbridge.errors import OspBridgeError, RemoteProtocolError
from ospbridge.observe.trace import Direction, TraceRecord, read_trace
from ospbridge.osp import messages as osp
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import decode_reply, decode_request
from ospbridge.osp.profile import NERD
from ospbridge.simulator.replay_script import read_scripts
from ospbridge.simulator.replaying import ReplayMachine
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.pair import Client, Pair

__all__ = ["RECORDINGS", "conversations", "differences", "expected"]

TRACES: Final = Path(__file__).parent / "traces"
EXPECTED: Final = TRACES / "sent_otherwise.txt"
RECORDINGS: Final = (
    "s01_init",
    "s02_agents",
    "s04_reset_step",
    "f01_no_ack",
    "f02_dup_step",
    "o01_ode_arena",
    "a01_aseries_fall",
)
OWN: Final = frozenset(
    f"/Simulation/{name}"
    for name in ("IterationsPerStep", "RandomizeSeedAtReset", "Seed", "SimulationTime", "TimeStepSize")
)
"""Variables that a session reads and writes by itself."""
MOST: Final = 60
"""Hexadecimal digits of a datagram that the list shows."""


@dataclass
class Conversation:
    """One recorded client's."""

    number: int
    sent: list[bytes] = field(default_factory=list)
    wishes: list[Callable[[Client], object]] = field(default_factory=list)
    """What it did, as a caller of a session asks for it."""


# --- what the recorded client wished ---------------------------------------------------------------------------------


class _Reading:
    """Follows one recorded conversation: which agents and variables its ids stand for, what it asked for."""

    def __init__(self, conversation: Conversation) -> None:
        self.of = conversation
        self._agents: dict[int, str] = {}
        self._values: dict[int, str] = {}
        self._events: dict[int, str] = {}
        self._event = ""
        self._controlled: dict[int, str] = {}
        self._step: dict[str, np.ndarray[Any, Any]] | None = None
        self._seed: int | None = None
        self._expression = ""

    def sent(self, data: bytes) -> None:
        self.of.sent.append(data)
        with suppress(RemoteProtocolError):
            self._asked(decode_request(data))

    def _asked(self, asked: object) -> None:
        match asked:
            case osp.GetAgentOverview():
                self._wish(lambda talk: talk.overview())
            case osp.GetAgentInfo(agent_id) if agent_id in self._agents:
                self._named("describe", self._agents[agent_id])
            case osp.RegisterForAgent(agent_id) if agent_id in self._agents:
                self._named("register", [self._agents[agent_id]])
                self._controlled[agent_id] = self._agents[agent_id]
            case osp.DeregisterFromAgent(agent_id) if agent_id in self._controlled:
                self._named("deregister", self._controlled.pop(agent_id))
            case osp.RegisterForEvent(name):
                self._named("register_event", name)
                self._event = name
            case osp.DeregisterFromEvent(event_id) if event_id in self._events:
                self._named("deregister_event", self._events[event_id])
            case osp.GetValueIds(expression):
                self._expression = expression
            case osp.GetValue(value_id) if self._values.get(value_id, "") not in {"", *OWN}:
                self._named("get", self._values[value_id])
            case osp.SetValue(value_id, content) if self._values.get(value_id, "") not in {"", *OWN}:
                self._named("set", self._values[value_id], content)
            case osp.ResetSimulation(seed) if self._seed is None:
                self._seed = seed
                self._named("reset", seed)
            case osp.NextSimulationStep(agent_id, inputs) if agent_id in self._controlled:
                self._stepped(self._controlled[agent_id], inputs)
            case osp.End():
                self._wish(lambda talk: talk.leave())

    def _stepped(self, name: str, inputs: np.ndarray[Any, Any]) -> None:
        """The first request of a step stands for all: what comes before its completion belongs to it."""
        if self._step is None:
            given: dict[str, np.ndarray[Any, Any]] = {}
            self._step = given
            self._wish(lambda talk: talk.step(given))
        self._step.setdefault(name, inputs)

    def received(self, data: bytes) -> None:
        with suppress(RemoteProtocolError):
            self._answered(decode_reply(data))

    def _answered(self, answer: object) -> None:
        match answer:
            case osp.AgentOverviewNext(agent_id=agent_id, name=name):
                self._agents[agent_id] = name
            case osp.ValueInfo(value_id=value_id, name=name):
                self._values[value_id] = name
            case osp.ValueIds(count) if count != 1:
                # A session that knows a name looks for the one variable that is called so by itself.
                self._named("values", self._expression)
            case osp.RegisterForEventAck(event_id):
                self._events[event_id] = self._event
            case osp.ResetSimulationCompleted():
                self._seed = None
            case osp.StepCompleted():
                self._step = None

    def _named(self, method: str, *arguments: object) -> None:
        self._wish(lambda talk: getattr(talk, method)(*arguments))

    def _wish(self, exchange: Callable[[Any], Any]) -> None:
        self.of.wishes.append(lambda client: client.do(exchange(client.conversation)))


def conversations(records: Sequence[TraceRecord]) -> Iterator[Conversation]:
    """As the recorded simulator is replayed: those in which the client said something."""
    readings: dict[tuple[str, int], _Reading] = {}
    for record in records:
        whose = (record.client, record.port)
        if record.direction is Direction.NOTE:
            continue
        if record.direction is Direction.SERVER_TO_CLIENT and record.data[:1] == bytes(
            (Code.INIT_COMMUNICATION_ACK,)
        ):
            readings[whose] = _Reading(Conversation(len(readings) + 1))
        elif (reading := readings.get(whose)) is not None:
            if record.direction is Direction.CLIENT_TO_SERVER:
                reading.sent(record.data)
            else:
                reading.received(record.data)
    for reading in readings.values():
        if reading.of.sent:
            yield reading.of


# --- what ours sends instead -----------------------------------------------------------------------------------------


class Replayed(Pair):
    """A pair whose server answers as the recorded one did."""

    def __init__(self, machine: ReplayMachine) -> None:
        super().__init__(SyntheticWorld(1, 1), NERD)
        self.server = machine  # type: ignore[assignment]  # the same to whoever drives it


def ours(records: Sequence[TraceRecord]) -> Iterator[tuple[Conversation, list[bytes]]]:
    """Each recorded conversation, and what our client sends in its place."""
    by_number = {script.number: script for script in read_scripts(records)}
    for conversation in conversations(records):
        pair = Replayed(ReplayMachine([by_number[conversation.number]], tell=lambda _: None))
        client = pair.client(NERD).connect()
        begun = len(pair.sent)
        for wish in conversation.wishes:
            # The recorded one may have asked for what is refused, or gone on where a session ends.
            with suppress(OspBridgeError):
                wish(client)
        yield conversation, [datagram.data for datagram in pair.sent[begun:] if datagram.to_server]


def differences(name: str) -> str:
    """What a recorded client and ours do not have in common, a datagram a line."""
    lines = []
    records = read_trace(TRACES / f"{name}.jsonl")
    for conversation, sent in ours(list(records)):
        lines.append(f"{name}, conversation {conversation.number}")
        theirs = [_shown(data) for data in conversation.sent]
        mine = [_shown(data) for data in sent]
        matcher = SequenceMatcher(None, theirs, mine, autojunk=False)
        for kind, first, last, begun, ended in matcher.get_opcodes():
            if kind != "equal":
                lines.extend(f"{first:5} - {theirs[at]}" for at in range(first, last))
                lines.extend(f"{first:5} + {mine[at]}" for at in range(begun, ended))
    counted = ((line, len(list(same))) for line, same in groupby(lines))
    return "\n".join(f"{line}, {count} times" if count > 1 else line for line, count in counted)


def _shown(data: bytes) -> str:
    text = data.hex()
    try:
        code = Code(data[0]).name
    except (IndexError, ValueError):
        code = "no request"
    return f"{code} {text[:MOST]}{'...' * (len(text) > MOST)}"


def expected() -> Mapping[str, str]:
    """The differences that are checked in, by recording."""
    found = {}
    for part in EXPECTED.read_text().split("\n\n")[1:]:
        found[part.partition(",")[0]] = part.rstrip("\n")
    return found


HEAD: Final = (
    "# What recorded clients sent (-) and ours sends in their place (+): python -m tests.osp.recorded_clients"
)


def main() -> None:
    EXPECTED.write_text("\n\n".join([HEAD, *map(differences, RECORDINGS)]) + "\n")
    click.echo(f"wrote {EXPECTED}")


if __name__ == "__main__":
    main()
