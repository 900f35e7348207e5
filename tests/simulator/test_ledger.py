"""The ledger: a disk that fills up."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ospbridge.errors import ConfigurationError
from ospbridge.simulator.ledger import Ledger

if TYPE_CHECKING:
    from pathlib import Path

WRITTEN = """
import resource, signal, sys
from ospbridge.errors import ConfigurationError
from ospbridge.simulator.ledger import Ledger
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
ledger = Ledger(sys.argv[1])
ledger({"n": 1})
resource.setrlimit(resource.RLIMIT_FSIZE, (12, 12))
try:
    ledger({"n": 2})
except ConfigurationError as error:
    print(error.message, file=sys.stderr)
    sys.exit(3)
"""


def test_a_pipe_that_nobody_reads_is_refused_and_one_with_a_reader_is_written(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ConfigurationError, match="a pipe that nobody reads"):
        Ledger(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with Ledger(pipe) as ledger:
            ledger({"n": 1})
        assert os.read(reader, 100) == b'{"n":1}\n'
    finally:
        os.close(reader)


def test_a_record_of_which_only_a_part_finds_room_is_told(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", WRITTEN, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert path.read_text() == '{"n":1}\n{"n"'
    assert done.returncode == 3, done.stderr
    assert done.stderr == f"cannot write the ledger {path}: File too large\n"
