"""The guardian's program: when its owner is gone it says goodbye for the owner's sessions and ends its simulators.

``guardian.py`` starts it by its path, as a program of the standard library alone, so that it is up in milliseconds and
small. Its owner sends it messages, JSON in one packet each, over the socket whose descriptor is the first argument:

- ``{"hold": key, "goodbye": {...}}`` with the descriptors of a session's socket and of its lease, also where it
  is held already;
- ``{"drop": key, "answer": bool}``: the session has left by itself; an answer says that its port is free;
- ``{"run": pid}`` and ``{"ended": pid}``: a simulator that the owner has launched, the leader of a group of its own.

The end of the owner is the end of that socket; where a descriptor of the owner's process is the second argument
(``os.pidfd_open``), a process that merely inherited the socket does not hide it.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import sys
import time

LARGEST_MESSAGE = 262_144
LARGEST_DATAGRAM = 65_536
MOST_DESCRIPTORS = 2
FREES = 0.06
"""Seconds from an acknowledgement that a handler may wait for to a request, which it would take for that."""
SILENCE = 0.1
"""Seconds without an answer after which both are sent again."""
GOODBYE_TAKES = 2.0
ENDING_TAKES = 1.0
"""Seconds from SIGTERM to SIGKILL, for a simulator."""

STEP_COMPLETED = 85
STEP_COMPLETED_ACK = 86
AGENT_ID = slice(1, 5)


class Session:
    """The owner's place at a handler: its socket, its lease, and what is to be said there."""

    def __init__(self, sock: socket.socket, lease: int | None) -> None:
        self.sock = sock
        self.lease = lease
        self.lease_path = ""
        self.requests: list[tuple[bytes, bytes]] = []
        """Each with what its answer begins with, in the order in which they are said."""
        self.spare_ack = b""
        self.end = b""
        self.next_at = 0.0
        self.freeing = True
        """The acknowledgement is sent next, and not the request."""

    def learn(self, goodbye: dict[str, object]) -> None:
        self.lease_path = str(goodbye["lease"])
        self.spare_ack = bytes.fromhex(str(goodbye["spare_ack"]))
        self.end = bytes.fromhex(str(goodbye["end"]))
        asked = goodbye["requests"]
        assert isinstance(asked, list)
        self.requests = [(bytes.fromhex(request), bytes.fromhex(answer)) for request, answer in asked]

    def say(self, now: float) -> None:
        """What is due: first an acknowledgement, since a handler in mid-step takes whatever comes for that."""
        if self.freeing:
            self._send(self.spare_ack)
            self.next_at = now + FREES
        else:
            self._send(self.requests[0][0])
            self.next_at = now + SILENCE
        self.freeing = not self.freeing

    def hear(self, now: float) -> None:
        """All that is there. Nothing more is to be said where the handler's port is closed."""
        while self.requests:
            try:
                data = self.sock.recv(LARGEST_DATAGRAM, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                self.requests = []
                return
            if data[:1] == bytes([STEP_COMPLETED]):
                self._send(bytes([STEP_COMPLETED_ACK]) + data[AGENT_ID] + self.end)
            elif data.startswith(self.requests[0][1]):
                del self.requests[0]
                self.freeing, self.next_at = False, now

    def _send(self, data: bytes) -> None:
        try:
            self.sock.send(data, socket.MSG_DONTWAIT)
        except ConnectionRefusedError:
            self.requests = []
        except OSError:
            return  # lost, as datagrams may be

    def close(self, *, done: bool) -> None:
        """Let go; the lease is gone where all was answered, else it is left to a successor."""
        if done and self.lease_path:
            with contextlib.suppress(OSError):
                os.unlink(self.lease_path)  # noqa: PTH108  # pathlib would make this process larger
        self.sock.close()
        if self.lease is not None:
            os.close(self.lease)


class Guardian:
    """What the owner has told of its sessions and simulators."""

    def __init__(self, channel: socket.socket, owner: int | None) -> None:
        self._channel = channel
        self._owner = owner
        self._sessions: dict[int, Session] = {}
        self._simulators: set[int] = set()

    def watch(self) -> None:
        """Until the owner is gone."""
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        if self._owner is not None:
            poll.register(self._owner, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            gone = self._owner in ready
            while self._take_message():
                pass
            if gone or ready.get(self._channel.fileno(), 0) & select.POLLHUP:
                return

    def _take_message(self) -> bool:
        """One message; False where there is none."""
        try:
            data, descriptors, _, _ = socket.recv_fds(
                self._channel, LARGEST_MESSAGE, MOST_DESCRIPTORS, socket.MSG_DONTWAIT
            )
        except OSError:
            return False
        if not data:
            return False
        message = json.loads(data)
        if "hold" in message:
            self._drop(message["hold"])
            if descriptors:
                lease = descriptors[1] if len(descriptors) > 1 else None
                session = Session(socket.socket(fileno=descriptors[0]), lease)
                session.learn(message["goodbye"])
                self._sessions[message["hold"]] = session
        elif "drop" in message:
            self._drop(message["drop"])
            if message["answer"]:
                with contextlib.suppress(OSError):
                    self._channel.send(b"{}")
        elif "run" in message:
            self._simulators.add(message["run"])
        else:
            self._simulators.discard(message["ended"])
        return True

    def _drop(self, key: int) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            session.close(done=False)

    def bury(self) -> None:
        """Say goodbye for all sessions side by side, then end the simulators; within some seconds."""
        self._say_goodbyes()
        _signal_all(self._simulators, signal.SIGTERM)
        give_up = time.monotonic() + ENDING_TAKES
        while _running(self._simulators) and time.monotonic() < give_up:
            time.sleep(0.02)
        _signal_all(self._simulators, signal.SIGKILL)

    def _say_goodbyes(self) -> None:
        give_up = time.monotonic() + GOODBYE_TAKES
        waiting = dict(self._sessions)
        poll = select.poll()
        for session in waiting.values():
            poll.register(session.sock, select.POLLIN)
        while waiting:
            now = time.monotonic()
            for key, session in list(waiting.items()):
                session.hear(now)
                if session.requests and now >= session.next_at:
                    session.say(now)
                if not session.requests or now >= give_up:
                    poll.unregister(session.sock)
                    session.close(done=not session.requests)
                    del waiting[key]
            if waiting:
                soonest = min(session.next_at for session in waiting.values())
                poll.poll(max(0.0, min(soonest, give_up) - now) * 1000 + 1)


def _signal_all(groups: set[int], number: int) -> None:
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, number)


def _running(groups: set[int]) -> bool:
    for group in groups:
        try:
            os.killpg(group, 0)
        except OSError:
            continue
        return True
    return False


def _hold_nothing_else(kept: list[int]) -> None:
    """Somebody may wait for the end of what the owner had inherited itself, or want to unmount where it was."""
    os.chdir("/")
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  # pathlib would make this process larger
            if int(name) > 2 and int(name) not in kept:
                with contextlib.suppress(OSError):
                    os.close(int(name))


def main() -> None:
    """Watch the owner, and bury it."""
    # Whoever ends the owner's group, its terminal or its service, means the owner.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    handed = [int(given) for given in sys.argv[1:]]
    _hold_nothing_else(handed)
    # Each session takes two descriptors, and its owner may have raised its own limit.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    guardian = Guardian(socket.socket(fileno=handed[0]), handed[1] if len(handed) > 1 else None)
    guardian.watch()
    guardian.bury()


if __name__ == "__main__":
    main()
