"""A sink in a process of its own, to be killed and started anew."""

from __future__ import annotations

import socket
import subprocess
from typing import TYPE_CHECKING, Self

from tests.daemon.running import PROGRAM

if TYPE_CHECKING:
    from pathlib import Path


class SinkProcess:
    """``ospbridge sink``, at one port whenever it runs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            [*PROGRAM, "sink", "--listen", self.address, "--record", str(self.directory)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == self.address

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate(timeout=10)
            self._process = None

    @property
    def files(self) -> int:
        return sum(1 for path in self.directory.glob("*.npz"))

    def __enter__(self) -> Self:
        if self._process is None:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
