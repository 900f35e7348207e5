"""The server machine under the `nerd` profile, fed with what recorded clients sent, answers as the recorded server.

Compared are all bytes, except for the floats of completions: the physics of the recorded world is not ours.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ospbridge.interface import InterfaceValue
from ospbridge.osp.codes import Code
from ospbridge.osp.profile import NERD
from ospbridge.osp.server import CloseHandler, OpenHandler, Send, ServerMachine
from ospbridge.osp.world import Variable, WorldAgent

TRACES = Path(__file__).parents[1] / "traces"
MAIN_PORTS = range(45500, 45600)

RACE = "two different sockets INIT back to back"
"""From here on the recording shows a race in the real server: which of two clients gets both answers."""

LEFT_UNREAD = {48401, 46889}
"""Handlers whose client closed its socket, or whose recording ends, before the last datagram came."""

ANGLE, TORQUE, VELOCITY = (-1.0, 1.0), (0.0, 1.0), (-10.0, 10.0)


def _agent(name: str, *sides: str) -> WorldAgent:
    def values(*kinds: tuple[str, tuple[float, float]]) -> list[InterfaceValue]:
        return [InterfaceValue(f"/{side}Knee/{kind}", *bounds) for side in sides for kind, bounds in kinds]

    return WorldAgent(
        name,
        values(("DesiredAngle", ANGLE), ("MaxTorque", TORQUE)),
        values(("Angle", ANGLE), ("Velocity", VELOCITY)),
        values(("Energy", TORQUE)),
    )


class RecordedWorld:
    """The interface of the recorded world, with no physics."""

    def __init__(self, agents: int) -> None:
        self.agents = [
            _agent("Humanoid", "Left", "Right"),
            _agent("Robot2", "Left"),
            _agent("Robot3", "Left", "Right"),
        ][:agents]
        self.variables: list[Variable] = []
        self.events = ("/Demo/Hit",)
        self.time_step = 0.01

    def reset(self, seed: int) -> None:
        pass

    def step(self) -> None:
        for agent in self.agents:
            agent.outputs[:] = np.float32(agent.inputs.mean())

    def take_events(self) -> list[str]:
        return []


def _servers(name: str) -> list[list[dict[str, Any]]]:
    """The records of each server process of a recording, in order; a new main port is a new process."""
    records = [json.loads(line) for line in (TRACES / f"{name}.jsonl").read_text().splitlines()]
    port = 0
    for index, record in enumerate(records):
        if (record.get("note") or "").startswith(RACE):
            del records[index:]
            break
        if record.get("port") in MAIN_PORTS:
            port = record["port"]
        record["main"] = port
    return [list(group) for _, group in groupby(records, key=lambda record: record["main"])]


class Replay:
    """Plays the clients of one recorded server against the machine, record by record."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        counts = [record["hex"][2:10] for record in records if record.get("hex", "").startswith("5b")]
        agents = int.from_bytes(bytes.fromhex(counts[0]), "little") if counts else 3
        self.machine = ServerMachine(RecordedWorld(agents), NERD)
        self.records = records
        self.sent: dict[int, deque[bytes]] = defaultdict(deque)
        self.peers: dict[int, object] = {}
        self.closed: set[int] = set()
        self.ids: dict[int, int] = {}
        """Our handler's id by the recorded handler's port."""

    def collect(self) -> None:
        for effect in self.machine.take_effects():
            if isinstance(effect, OpenHandler):
                self.peers[effect.handler_id] = effect.peer
            elif isinstance(effect, Send):
                assert effect.handler_id not in self.closed
                self.sent[effect.handler_id].append(effect.data)
            else:
                assert isinstance(effect, CloseHandler)
                self.closed.add(effect.handler_id)

    def run(self) -> None:
        for record in self.records:
            if record["dir"] == "c>s":
                data = bytes.fromhex(record["hex"])
                if record["port"] in MAIN_PORTS:
                    self.machine.receive_main(data, record["client"], record["t"])
                else:
                    self.machine.receive(self.ids[record["port"]], data, record["t"])
                self.collect()
            elif record["dir"] == "s>c":
                self.compare(record)

    def check_that_nothing_else_was_sent(self) -> None:
        """What the machine sent beyond the recording, the recorded client never tried to read."""
        self.machine.handle_timer(self.records[-1]["t"] + 1.0)
        self.collect()
        for port, handler in self.ids.items():
            unread = self.sent[handler]
            if (
                port in LEFT_UNREAD
                or next(r for r in reversed(self.records) if r.get("port") == port)["dir"] == "c>s"
            ):
                assert len(unread) <= 2
            else:
                assert not unread

    def compare(self, record: dict[str, Any]) -> None:
        expected = bytes.fromhex(record["hex"])
        if expected[0] == Code.INIT_COMMUNICATION_ACK:
            self.machine.handle_timer(record["t"] + 1.0)
            self.collect()
            taken = set(self.ids.values())
            self.ids[record["port"]] = next(
                handler
                for handler, peer in self.peers.items()
                if peer == record["client"] and handler not in taken
            )
        handler = self.ids[record["port"]]
        if not self.sent[handler]:
            self.machine.handle_timer(record["t"])
            self.collect()
        assert self.sent[handler], f"nothing sent, recorded at {record['t']}: {expected.hex()}"
        sent = self.sent[handler].popleft()
        assert _comparable(sent) == _comparable(expected), f"recorded at {record['t']}"


def _comparable(data: bytes) -> tuple[bytes, int]:
    return (data[:21] if data[0] == Code.NEXT_SIMULATION_STEP_COMPLETED else data), len(data)


@pytest.mark.parametrize(
    "name",
    [
        "s01_init",
        "s02_agents",
        "s04_reset_step",
        "f01_no_ack",
        "f02_dup_step",
        "f03_bad_step",
        "f04_vanish",
        "f05_no_reset",
        "f06_dereg_midstep",
        "x03_recover",
    ],
)
def test_a_recorded_server_is_reproduced(name: str) -> None:
    for records in _servers(name):
        replay = Replay(records)
        replay.run()
        replay.check_that_nothing_else_was_sent()
