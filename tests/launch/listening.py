"""A process with threads of its own that listens at a UDP port, in place of a simulator."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ospbridge.interface import Endpoint

PROGRAM: Final = """\
import socket, sys, threading
host, port = sys.argv[1], int(sys.argv[2])
sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
sock.bind((host, port))
for _ in range(3):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print(sock.getsockname()[1], flush=True)
for _ in sys.stdin:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    print("one more", flush=True)
"""
THREADS: Final = 4


class Listening:
    """One that runs: where it listens, as a client would say it."""

    def __init__(self, process: subprocess.Popen[str], host: str) -> None:
        assert process.stdout is not None
        self.process = process
        self.address = Endpoint(host, int(process.stdout.readline()))
        self.pid = process.pid

    def start_thread(self) -> None:
        """Its main thread starts one more."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline()


@contextmanager
def listening(bound: str = "127.0.0.1", *, host: str = "127.0.0.1", port: int = 0) -> Iterator[Listening]:
    """Bound to an address, and known by ``host``."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, bound, str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Listening(process, host)
        finally:
            process.kill()
