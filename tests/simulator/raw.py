"""A client on a bare socket, written from the protocol's text alone, for the tests of the simulator."""

from __future__ import annotations

import socket
import struct
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ospbridge.interface import Endpoint
from ospbridge.osp.client import RESET_COMPLETED
from ospbridge.osp.profile import InitForm, Profile


class RawClient:
    """Connects on construction. Every receive has a time limit of thirty seconds."""

    def __init__(self, address: Endpoint, profile: Profile) -> None:
        self.profile = profile
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(30.0)
        init = b"\x05\x01\x01" if profile.init_form is InitForm.BYTES else struct.pack("<Bii", 5, 1, 1)
        self.socket.sendto(init, (address.host, address.port))
        answer, handler = self.socket.recvfrom(65536)
        assert answer[0] == 6
        self.socket.connect(handler)
        self.shapes: dict[int, tuple[int, int]] = {}

    @property
    def name(self) -> str:
        """As the ledger writes this client."""
        host, port = self.socket.getsockname()
        return f"{host}:{port}"

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        self.socket.send(data)

    def read(self, code: int) -> bytes:
        data = self.socket.recv(65536)
        assert data[0] == code, f"expected {code}, got {data.hex()}"
        return data

    def overview(self) -> dict[str, int]:
        """Ids by name."""
        self.send(b"\x5a")
        count = struct.unpack_from("<i", self.read(91), 1)[0]
        found = {}
        for _ in range(count):
            data = self.read(92)
            name = data[9:].split(b"\0", 1)[1][1:].partition(b"\0")[0]
            found[name.decode()] = struct.unpack_from("<i", data, 5)[0]
        self.send(b"\x5d")
        return found

    def info(self, agent: int) -> list[tuple[str, float, float]]:
        self.send(struct.pack("<Bi", 95, agent))
        counts = struct.unpack_from("<iii", self.read(96), 5)
        found = []
        for _ in range(sum(counts)):
            data = self.read(98)
            low, high = struct.unpack_from("<ff", data, 5)
            found.append((data[13:].partition(b"\0")[0].decode(), low, high))
        self.send(b"\x61")
        return found

    def register(self, agent: int) -> None:
        self.send(struct.pack("<Bi", 100, agent))
        assert self.read(101)[5] == 1

    def find(self, expression: str) -> dict[str, int]:
        self.send(b"\x28" + expression.encode() + b"\0")
        count = struct.unpack_from("<i", self.read(41), 1)[0]
        found = {}
        for _ in range(count):
            data = self.read(43)
            found[data[9:].split(b"\0")[1].decode()] = struct.unpack_from("<i", data, 5)[0]
        return found

    def get(self, ident: int) -> str:
        self.send(struct.pack("<Bi", 50, ident))
        return self.read(51)[5:].partition(b"\0")[0].decode()

    def set(self, ident: int, text: str) -> int:
        self.send(struct.pack("<Bi", 52, ident) + text.encode() + b"\0")
        return self.read(53)[5]

    def reset(self, seed: int, *, agents: int = 1) -> None:
        """Reset with a seed, in the way that this kind of server honours."""
        if self.profile.seeds_by_variable:
            assert self.set(self.find("/Simulation/Seed")["/Simulation/Seed"], str(seed)) == 1
        for _ in range(agents):
            self.send(struct.pack("<Bi", 70, seed))
            self.read(71)
        self.read(int(self.profile.reset_completed))
        self.send(bytes((RESET_COMPLETED[self.profile.reset_completed],)))

    def vote(self, agent: int, inputs: NDArray[np.float32]) -> None:
        self.send(struct.pack("<Bii", 80, agent, len(inputs)) + inputs.astype("<f4").tobytes())
        self.read(81)

    def completion(self) -> tuple[NDArray[np.float32], NDArray[np.float32], list[int]]:
        """Outputs, infos and event ids."""
        data = self.read(85)
        agent, outputs, infos, events, _ = struct.unpack_from("<iiiii", data, 1)
        floats = np.frombuffer(data, "<f4", outputs + infos, 21)
        told = struct.unpack_from(f"<{events}i", data, 21 + 4 * (outputs + infos))
        self.send(struct.pack("<Bi", 86, agent))
        return floats[:outputs], floats[outputs:], list(told)

    def step(self, agent: int, *inputs: float) -> tuple[NDArray[np.float32], NDArray[np.float32], list[int]]:
        self.vote(agent, np.array(inputs, np.float32))
        return self.completion()
