"""Memory that two processes share, beside a socket: one message each way, and whom a bell tells."""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from ospbridge.errors import RemoteProtocolError
from ospbridge.transport import lane as module
from ospbridge.transport.lane import MOST, Bell, ClientLane, DaemonLane, possible

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.loopback,
    pytest.mark.skipif(not possible(), reason="no memory is shared on this system"),
]
LONG = 20.0


def message(data: bytes) -> bytearray:
    return bytearray(len(data).to_bytes(4, "little") + data)


@contextmanager
def lanes(
    count: int = 1, *, ours: bool = True
) -> Iterator[tuple[Bell, list[tuple[DaemonLane, ClientLane, socket.socket]]]]:
    """So many lanes at one bell, each with the daemon's end of its stream; ``ours``: clients of the daemon's user."""
    bell = Bell()
    made = []
    try:
        for _ in range(count):
            mine, other = socket.socketpair()
            daemon = DaemonLane(bell, ours=ours)
            client = ClientLane([os.dup(file) for file in daemon.files], mine.fileno())
            daemon.given()
            made.append((daemon, client, other, mine))
        yield bell, [each[:3] for each in made]
    finally:
        for each in made:
            for part in each:
                part.close()
        bell.close()


def test_a_request_is_taken_once_and_its_answer_is_its_own() -> None:
    with lanes() as (_, [(daemon, client, _)]):
        assert daemon.take() is None
        for number in range(1, 300):
            asked = message(b"q" * number)
            assert client.post(asked)
            assert client.answer() is None
            assert daemon.take() == bytes(asked)
            assert daemon.take() is None
            assert client.answer() is None
            assert daemon.put(message(b"a" * number))
            found = client.answer()
            assert found is not None
            assert bytes(found) == b"a" * number


def test_a_message_that_is_too_long_is_left_to_the_stream() -> None:
    with lanes() as (_, [(daemon, client, _)]):
        longest, longer = message(b"l" * (MOST - 4)), message(b"l" * (MOST - 3))
        assert not client.post(longer)
        assert daemon.take() is None
        assert client.post(longest)
        assert daemon.take() == bytes(longest)
        assert not daemon.put(longer)
        assert client.answer() is None
        assert daemon.put(longest)
        found = client.answer()
        assert found is not None
        assert bytes(found) == bytes(longest[4:])


@pytest.mark.parametrize("ours", [True, False])
def test_one_bell_wakes_all_who_wait(ours: bool) -> None:
    with lanes(4, ours=ours) as (bell, made):
        found: list[bytes] = []

        def wait(client: ClientLane) -> None:
            until = time.monotonic() + LONG
            while (answer := client.answer()) is None:
                client.wait(until - time.monotonic())
                assert time.monotonic() < until
            found.append(bytes(answer))

        for daemon, client, _ in made:
            client.post(message(b"request"))
            assert daemon.take() is not None
        threads = [threading.Thread(target=wait, args=(client,)) for _, client, _ in made]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        bell.hold()
        for daemon, _, _ in made:
            daemon.put(message(b"answer"))
        bell.release()
        for thread in threads:
            thread.join(LONG)
        assert found == [b"answer"] * 4


def test_a_client_of_another_user_can_neither_silence_nor_fill_the_bell() -> None:
    with lanes(ours=False) as (bell, [(daemon, client, _)]):
        client.wait(0.0)
        given = os.dup(bell.descriptor(ours=False))
        try:
            for spoil in (
                lambda: os.eventfd_read(given),
                lambda: os.eventfd_write(given, 2**64 - 2),
                lambda: os.read(given, 8),
                lambda: os.write(given, b"\xff" * 8),
            ):
                with pytest.raises(OSError, match="Invalid argument"):
                    spoil()
            os.set_blocking(given, True)
        finally:
            os.close(given)
        for _ in range(3):
            client.post(message(b"request"))
            assert daemon.take() is not None
            daemon.put(message(b"answer"))
            assert not client.wait(LONG)
            assert client.answer() is not None


def test_a_wait_of_any_length_looks_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_AGAIN", 0.01)
    with lanes() as (_, [(_, client, _)]):
        client.wait(0.0)
        assert not client.wait(1e9)
        assert not client.wait(float("inf"))


@pytest.mark.parametrize("length", [MOST - 3, 2**31, 2**32 - 1])
def test_a_length_that_cannot_be_is_told_on_both_sides(length: int) -> None:
    with lanes() as (_, [(daemon, client, _)]):
        wrong = bytearray(length.to_bytes(4, "little") + b"short")
        client.post(wrong)
        with pytest.raises(RemoteProtocolError, match=f"a message of {length} bytes stands in shared memory"):
            daemon.take()
        daemon.put(wrong)
        with pytest.raises(RemoteProtocolError, match=f"a message of {length} bytes stands in shared memory"):
            client.answer()


def test_nobody_can_take_the_memory_away() -> None:
    bell = Bell()
    daemon = DaemonLane(bell, ours=True)
    try:
        with pytest.raises(PermissionError):
            os.ftruncate(daemon.files[0], 0)
    finally:
        daemon.close()
        bell.close()


def test_memory_that_may_shrink_is_refused_and_its_descriptors_are_closed() -> None:
    mine, other = socket.socketpair()
    with mine, other:
        loose = os.memfd_create("loose", os.MFD_ALLOW_SEALING)
        os.ftruncate(loose, module.SIZE)
        files = [loose, os.eventfd(0), os.eventfd(0)]
        with pytest.raises(OSError, match="may change"):
            ClientLane(files, mine.fileno())
        for file in files:
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(file)


@pytest.mark.parametrize("machine, fits", [("x86_64", True), ("aarch64", False), ("riscv64", False)])
def test_processors_that_show_stores_in_another_order_keep_to_the_socket(
    monkeypatch: pytest.MonkeyPatch, machine: str, fits: bool
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert possible() is fits
