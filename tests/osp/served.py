"""A server machine with clients that speak bytes, in memory: what the tests of the server role share."""

from __future__ import annotations

import re
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ospbridge.interface import InterfaceValue
from ospbridge.osp.client import RESET_COMPLETED
from ospbridge.osp.profile import InitForm, Profile
from ospbridge.osp.repository import double_variable
from ospbridge.osp.server import CloseHandler, Faults, OpenHandler, Send, ServerMachine
from ospbridge.osp.world import Variable, WorldAgent


class EchoWorld:
    """Outputs repeat the inputs, or count on from them; infos hold the number of steps since the reset."""

    def __init__(self, *sizes: tuple[int, int, int], names: Sequence[str] = ()) -> None:
        sizes = sizes or ((2, 2, 1),)
        self.agents = [
            WorldAgent(
                names[index] if names else f"A{index + 1}",
                [InterfaceValue(f"/in/{i}", -1.0, 1.0) for i in range(inputs)],
                [InterfaceValue(f"/out/{i}", -1.0, 1.0) for i in range(outputs)],
                [InterfaceValue(f"/info/{i}", 0.0, 1.0) for i in range(infos)],
            )
            for index, (inputs, outputs, infos) in enumerate(sizes)
        ]
        self.gravity = 9.81
        self.variables: list[Variable] = [
            double_variable("/Sim/Gravity", lambda: self.gravity, self._set_gravity)
        ]
        self.events = ("/World/Hit",)
        self.time_step = 0.01
        self.seeds: list[int] = []
        self.steps = 0
        self.next_events: list[str] = []

    def _set_gravity(self, value: float) -> bool:
        self.gravity = value
        return True

    def reset(self, seed: int) -> None:
        self.seeds.append(seed)
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        for agent in self.agents:
            count = len(agent.outputs)
            agent.outputs[:] = np.resize(agent.inputs, count) if len(agent.inputs) else np.arange(count)
            agent.infos[:] = self.steps

    def take_events(self) -> list[str]:
        events, self.next_events = self.next_events, []
        return events


class Server:
    """A machine, its clock, and the clients that joined it."""

    def __init__(
        self,
        profile: Profile,
        world: Any = None,
        *,
        max_handlers: int = 64,
        **faults: Callable[[], bool],
    ) -> None:
        self.world = EchoWorld() if world is None else world
        self.profile = profile
        self.ledger: list[dict[str, Any]] = []
        self.machine = ServerMachine(
            self.world,
            profile,
            faults=Faults(**faults),
            ledger=self.ledger.append,
            max_handlers=max_handlers,
        )
        self.now = 0.0
        self.inboxes: dict[int, deque[bytes]] = {}
        self.opened: list[int] = []
        self.closed: list[int] = []

    def collect(self) -> None:
        for effect in self.machine.take_effects():
            if isinstance(effect, OpenHandler):
                self.opened.append(effect.handler_id)
                self.inboxes[effect.handler_id] = deque()
            elif isinstance(effect, Send):
                assert effect.handler_id not in self.closed
                self.inboxes[effect.handler_id].append(effect.data)
            else:
                assert isinstance(effect, CloseHandler)
                self.closed.append(effect.handler_id)

    def settle(self) -> None:
        """Run all that is due now."""
        self.collect()
        while (deadline := self.machine.next_deadline()) is not None and deadline <= self.now:
            self.machine.handle_timer(self.now)
            self.collect()

    def wait(self, seconds: float) -> None:
        """Let time pass, with all timers on the way."""
        end = self.now + seconds
        while (deadline := self.machine.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.machine.handle_timer(self.now)
            self.collect()
        self.now = end

    def init(self, data: bytes, peer: object = ("127.0.0.1", 1)) -> None:
        self.machine.receive_main(data, peer, self.now)
        self.collect()

    def join(self, port: int = 1) -> Client:
        """A client that has its INIT_ACK."""
        bytes_form = self.profile.init_form is InitForm.BYTES
        self.init(bytes((5, 1, 1)) if bytes_form else struct.pack("<Bii", 5, 1, 1), ("127.0.0.1", port))
        self.wait(self.profile.init_takes)
        client = Client(self, self.opened[-1])
        assert client.read()[0] == 6
        return client

    def player(self, *agents: int, port: int = 1) -> Client:
        """A client that controls these agents."""
        client = self.join(port)
        client.overview()
        for agent in agents:
            assert client.register(agent) == 1
        return client


def echoing(profile: Profile, agents: int = 2, **options: Any) -> Server:
    """A server of so many agents with one input and one output each."""
    return Server(profile, EchoWorld(*[(1, 1, 0)] * agents), **options)


class Client:
    """One client: sends bytes, reads what came."""

    def __init__(self, server: Server, handler_id: int) -> None:
        self.server = server
        self.handler_id = handler_id

    @property
    def inbox(self) -> deque[bytes]:
        return self.server.inboxes[self.handler_id]

    def read(self) -> bytes:
        assert self.inbox, "nothing came"
        return self.inbox.popleft()

    def read_all(self) -> list[bytes]:
        got = list(self.inbox)
        self.inbox.clear()
        return got

    def codes(self) -> list[int]:
        """The codes of all that came."""
        return [data[0] for data in self.read_all()]

    def send(self, data: bytes, *, settle: bool = True) -> None:
        self.server.machine.receive(self.handler_id, data, self.server.now)
        self.server.collect()
        if settle:
            self.server.settle()

    def ask(self, data: bytes) -> list[bytes]:
        """Send, and what came then."""
        self.send(data)
        return self.read_all()

    # --- requests of one line ---

    def overview(self) -> list[bytes]:
        answer = self.ask(b"\x5a")
        self.send(b"\x5d")
        return answer

    def register(self, agent: int) -> int:
        answer = self.ask(struct.pack("<Bi", 100, agent))
        assert answer[0][:5] == struct.pack("<Bi", 101, agent)
        return answer[0][5]

    def deregister(self, agent: int) -> list[bytes]:
        return self.ask(struct.pack("<Bi", 105, agent))

    def step(self, agent: int, *inputs: float, settle: bool = True) -> None:
        self.send(struct.pack(f"<Bii{len(inputs)}f", 80, agent, len(inputs), *inputs), settle=settle)

    def ack(self, agent: int = 1) -> None:
        self.send(struct.pack("<Bi", 86, agent))

    def reset(self, seed: int = 0) -> None:
        self.send(struct.pack("<Bi", 70, seed))

    def begin(self, seed: int = 0) -> None:
        """Reset, and read all that comes of it."""
        self.reset(seed)
        self.ack_reset()
        self.read_all()

    def steps(self, count: int, *inputs: float) -> None:
        """So many steps of agent 1, and read all that comes of them."""
        for _ in range(count):
            self.step(1, *inputs)
            self.ack()
        self.read_all()

    def ack_reset(self) -> None:
        self.send(bytes((RESET_COMPLETED[self.server.profile.reset_completed],)))

    def listen(self, name: str) -> int:
        return int(struct.unpack_from("<i", self.ask(b"\x14" + name.encode() + b"\0")[0], 1)[0])

    def find(self, expression: str) -> dict[str, tuple[int, str]]:
        """Ids and types by name."""
        first, *infos = self.ask(b"\x28" + expression.encode("latin-1") + b"\0")
        assert struct.unpack_from("<i", first, 1)[0] == len(infos)
        found = {}
        for index, info in enumerate(infos):
            at, value_id = struct.unpack_from("<ii", info, 1)
            assert at == index
            kind, name, _ = info[9:].split(b"\0")
            found[name.decode()] = (value_id, kind.decode())
        return found

    def get(self, value_id: int) -> str:
        return self.ask(struct.pack("<Bi", 50, value_id))[0][5:].partition(b"\0")[0].decode()

    def set(self, value_id: int, text: str) -> int:
        return self.ask(struct.pack("<Bi", 52, value_id) + text.encode() + b"\0")[0][5]

    def value(self, name: str) -> str:
        (found,) = self.find(re.escape(name)).values()
        return self.get(found[0])


class Completion:
    """A decoded 85."""

    def __init__(self, data: bytes) -> None:
        assert data[0] == 85
        self.agent, self.n_outputs, self.n_infos, self.n_events, self.n_values = struct.unpack_from(
            "<iiiii", data, 1
        )
        floats = struct.unpack_from(f"<{self.n_outputs + self.n_infos}f", data, 21)
        self.outputs, self.infos = list(floats[: self.n_outputs]), list(floats[self.n_outputs :])
        self.events = list(
            struct.unpack_from(f"<{self.n_events}i", data, 21 + 4 * (self.n_outputs + self.n_infos))
        )
