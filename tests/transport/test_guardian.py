"""The guardian: what is said and ended once its owner is gone, in whatever way that went."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from ospbridge.transport import guardian
from tests.daemon.running import until

pytestmark = pytest.mark.loopback

LEAVE = b"\x69\x03\x00\x00\x00x"
LEFT = b"\x6a\x03\x00\x00\x00\x01x"
END, ENDED = b"\x07x", b"\x08x"
SPARE = b"\x56\x03\x00\x00\x00x"

OWNER = """
import os, socket, subprocess, sys, time
from pathlib import Path
from ospbridge.transport import guardian

sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.connect(("127.0.0.1", int(sys.argv[1])))
lease = Path(sys.argv[2])
guardian.protect(
    sock,
    lease=(os.open(lease, os.O_RDWR), lease),
    spare_ack=bytes.fromhex("560300000078"),
    end=b"x",
    goodbye=[(bytes.fromhex("690300000078"), bytes.fromhex("6a03000000")), (b"\\x07x", b"\\x08")],
)
sock.send(b"hello")
print(guardian._state._pid, flush=True)
exec(sys.argv[3])
sys.stdin.read()
"""


class Owner:
    """A process with a session at ``handler``."""

    def __init__(
        self, handler: socket.socket, lease: Path, then: str = "", pass_fds: Sequence[int] = ()
    ) -> None:
        command = [sys.executable, "-c", OWNER, str(handler.getsockname()[1]), str(lease), then]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=pass_fds
        )
        assert self.process.stdout is not None
        self.guardian = int(self.process.stdout.readline())
        self.said = self.process.stdout
        data, address = handler.recvfrom(100)
        assert data == b"hello"
        handler.connect(address)

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        self.process.send_signal(how)
        self.process.wait(30)


@pytest.fixture
def handler() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(20)
        yield sock


@pytest.fixture
def lease(tmp_path: Path) -> Path:
    path = tmp_path / "a.lease"
    path.touch()
    return path


@pytest.fixture
def owner(handler: socket.socket, lease: Path) -> Iterator[Callable[..., Owner]]:
    owners: list[Owner] = []

    def start(then: str = "", pass_fds: Sequence[int] = ()) -> Owner:
        owners.append(Owner(handler, lease, then, pass_fds))
        return owners[-1]

    yield start
    for each in owners:
        if each.process.poll() is None:
            each.end()
        assert each.process.stdin is not None
        each.process.stdin.close()
        each.said.close()


def gone(pid: int) -> bool:
    """Whether a process has ended; a zombie has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def ends(pid: int) -> None:
    until(lambda: gone(pid))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_who_is_killed_has_goodbye_said_and_its_lease_removed(
    owner: Callable[..., Owner], handler: socket.socket, lease: Path, how: signal.Signals
) -> None:
    mine = owner()
    mine.end(how)
    assert [handler.recv(100), handler.recv(100)] == [SPARE, LEAVE]
    handler.send(LEFT)
    assert handler.recv(100) == END
    handler.send(ENDED)
    ends(mine.guardian)
    assert not lease.exists()


def test_what_is_not_answered_is_said_again_and_a_completion_meanwhile_acknowledged(
    owner: Callable[..., Owner], handler: socket.socket
) -> None:
    owner().end()
    assert [handler.recv(100) for _ in range(4)] == [SPARE, LEAVE, SPARE, LEAVE]
    handler.send(b"\x55\x07\x00\x00\x00 and outputs x")
    assert b"\x56\x07\x00\x00\x00x" in [handler.recv(100) for _ in range(3)]


def test_a_lease_whose_handler_stays_silent_is_left_to_a_successor(
    owner: Callable[..., Owner], lease: Path
) -> None:
    mine = owner()
    mine.end()
    ends(mine.guardian)
    assert lease.exists()


def test_nothing_is_said_for_a_session_that_has_left(
    owner: Callable[..., Owner], handler: socket.socket
) -> None:
    mine = owner("guardian.release(sock, wait=True); sock.close(); print('left', flush=True)")
    assert mine.said.readline() == "left\n"
    # Its port is free: only the guardian could still have it.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(handler.getpeername())
    mine.end()
    ends(mine.guardian)
    handler.setblocking(False)
    with pytest.raises(BlockingIOError):
        handler.recv(100)


def test_signals_that_mean_the_owner_do_not_end_the_guardian(
    owner: Callable[..., Owner], handler: socket.socket
) -> None:
    mine = owner()
    # Its program must be up before it can ignore anything.
    state = Path(f"/proc/{mine.guardian}/status")
    until(lambda: int(_field(state, "SigIgn"), 16) & 1 << (signal.SIGTERM - 1))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(mine.guardian, number)
    mine.end()
    assert handler.recv(100) == SPARE


def _field(status: Path, name: str) -> str:
    return next(line.split()[1] for line in status.read_text().splitlines() if line.startswith(name))


def test_another_guardian_takes_over_from_one_that_was_killed(
    owner: Callable[..., Owner], handler: socket.socket
) -> None:
    mine = owner("sys.stdin.readline(); guardian.running(4194304); print(guardian._state._pid, flush=True)")
    os.kill(mine.guardian, signal.SIGKILL)
    ends(mine.guardian)
    assert mine.process.stdin is not None
    mine.process.stdin.write("\n")
    mine.process.stdin.flush()
    assert int(mine.said.readline()) != mine.guardian
    mine.end()
    assert [handler.recv(100), handler.recv(100)] == [SPARE, LEAVE]


def test_a_forked_child_says_nothing_for_its_parent_and_does_not_hide_that_it_is_gone(
    owner: Callable[..., Owner], handler: socket.socket
) -> None:
    mine = owner(
        "os.fork() or os._exit(0); os.wait()\n"
        "child = os.fork(); child or (time.sleep(60), os._exit(0)); print(child, flush=True)"
    )
    child = int(mine.said.readline())
    try:
        handler.setblocking(False)
        with pytest.raises(BlockingIOError):
            handler.recv(100)
        handler.settimeout(20)
        mine.end()
        assert handler.recv(100) == SPARE
    finally:
        os.kill(child, signal.SIGKILL)


def test_it_holds_nothing_that_its_owner_had_inherited(owner: Callable[..., Owner]) -> None:
    pipe = os.pipe()
    mine = owner(pass_fds=pipe)
    until(lambda: not any("pipe:" in each for each in _held(mine.guardian)))
    assert Path(f"/proc/{mine.guardian}/cwd").readlink() == Path("/")
    for each in pipe:
        os.close(each)


def _held(pid: int) -> list[str]:
    found = []
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found.append(str(each.readlink()))
    return found


@pytest.mark.parametrize("stubborn", ["", "trap '' TERM; "])
def test_simulators_end_with_their_owner_also_those_that_heed_no_request(
    owner: Callable[..., Owner], stubborn: str
) -> None:
    start = f"p = subprocess.Popen(['sh', '-c', \"{stubborn}echo up; while :; do sleep 0.1; done\"], "
    start += "stdout=subprocess.PIPE, start_new_session=True); p.stdout.readline(); guardian.running(p.pid); "
    mine = owner(start + "print(p.pid, flush=True)")
    simulator = int(mine.said.readline())
    mine.end()
    ends(simulator)


def test_why_there_can_be_no_guardian_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    monkeypatch.setattr(guardian, "_state", guardian._Guardian())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        guardian.protect(sock, lease=None, spare_ack=b"", end=b"", goodbye=[])
        assert guardian.take_problem() == "/no/such/python could not be started: No such file or directory"
        guardian.protect(sock, lease=None, spare_ack=b"", end=b"", goodbye=[])
        guardian.release(sock, wait=True)
