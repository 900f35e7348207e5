"""A simulator that is killed and comes back at the same port, again and again: forked, since Python starts slowly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from tests.daemon.running import free_port

PROGRAM = """
import os, signal, sys
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
port, agents, think = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in sys.stdin:
    if not os.fork():
        simulator = UdpSimulator(SyntheticWorld(2, 3, agents=agents, think=think), port=port)
        print(os.getpid(), flush=True)
        simulator.run()
        os._exit(0)
"""


class ForkedSimulator:
    """A real process at ``address``, there after ``start`` and gone after ``kill``."""

    def __init__(self, *, agents: int = 1, think: float = 0.0) -> None:
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.pid = 0
        self.started_at = self.killed_at = 0.0
        """When it last came and went."""
        self._parent = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(self.port), str(agents), str(think)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self) -> None:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        print(file=self._parent.stdin, flush=True)
        self.pid = int(self._parent.stdout.readline())
        self.started_at = time.monotonic()

    def kill(self) -> None:
        """When it has returned the port is closed."""
        pid, self.pid = self.pid, 0
        self.killed_at = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        give_up = time.monotonic() + 10
        while Path(f"/proc/{pid}").exists():
            assert time.monotonic() < give_up
            time.sleep(0.001)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.pid:
            self.kill()
        self._parent.communicate(timeout=10)
