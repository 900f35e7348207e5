"""The guardian's program: when its owner is gone it says goodbye for the owner's sessions and ends its simulators.

``guardian.py`` starts it by its path, as a program of the standard library alone, so that it is up in milliseconds and
small. Its owner sends it messages, JSON in one packet each, over the socket whose descriptor is the first argument:

- ``{"hold": key, "session": {...}}`` with the descriptors of a session's socket and of its lease, also where it
  is held already;
- ``{"hold": key, "group": pid}``: a simulator that the owner has launched, the leader of a group of its own;
- ``{"drop": key, "answer": bool}``: either has left by itself; an answer says that a session's port is free.

The end of the owner is the end of that socket; where a descriptor of the owner's process is the second argument
(``os.pidfd_open``), a process that merely inherited the socket does not hide it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import threading
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

    def __init__(self, told: dict[str, str], requests: list[list[str]], descriptors: list[int]) -> None:
        self._sock = socket.socket(fileno=descriptors[0])
        self._lease = descriptors[1:]
        self._lease_path = told["lease"]
        self._spare_ack = bytes.fromhex(told["spare_ack"])
        self._end = bytes.fromhex(told["end"])
        self._requests = [(bytes.fromhex(request), bytes.fromhex(answer)) for request, answer in requests]
        """Each with what its answer begins with, in the order in which they are said."""

    def say_goodbye(self) -> None:
        """The lease is gone where all was answered or the handler's port is closed, else it is left to a successor."""
        give_up = time.monotonic() + GOODBYE_TAKES
        freed = False
        with contextlib.suppress(OSError):
            for request, answer in self._requests:
                answered = False
                while not answered:
                    if time.monotonic() > give_up:
                        return
                    # First an acknowledgement, since a handler in mid-step takes whatever comes for that.
                    answered = not freed and self._say(self._spare_ack, FREES, answer)
                    freed = answered = answered or self._say(request, SILENCE, answer)
        with contextlib.suppress(OSError):
            os.unlink(self._lease_path)  # noqa: PTH108  # pathlib would make this process larger

    def _say(self, data: bytes, patience: float, answer: bytes) -> bool:
        """Whether the answer came in so many seconds. Completions are acknowledged meanwhile."""
        self._send(data)
        until = time.monotonic() + patience
        while (left := until - time.monotonic()) > 0:
            self._sock.settimeout(left)
            try:
                came = self._sock.recv(LARGEST_DATAGRAM)
            except TimeoutError:
                return False
            if came[:1] == bytes([STEP_COMPLETED]):
                self._send(bytes([STEP_COMPLETED_ACK]) + came[AGENT_ID] + self._end)
            elif came.startswith(answer):
                return True
        return False

    def _send(self, data: bytes) -> None:
        try:
            self._sock.send(data)
        except ConnectionRefusedError:
            raise
        except OSError:
            return  # lost, as datagrams may be

    def close(self) -> None:
        """Let go of it."""
        self._sock.close()
        for each in self._lease:
            os.close(each)


class Guardian:
    """What the owner has told of its sessions and simulators."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._sessions: dict[str, Session] = {}
        self._simulators: dict[str, int] = {}

    def watch(self, *owner: int) -> None:
        """Until the owner is gone."""
        poll = select.poll()
        for each in (self._channel.fileno(), *owner):
            poll.register(each, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            while self._take_message():
                pass
            if not ready.keys().isdisjoint(owner) or ready.get(self._channel.fileno(), 0) & select.POLLHUP:
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
        key = message["hold"] if "hold" in message else message["drop"]
        if key in self._sessions:
            self._sessions.pop(key).close()
        self._simulators.pop(key, None)
        if "group" in message:
            self._simulators[key] = message["group"]
        elif "session" in message and descriptors:
            told = message["session"]
            self._sessions[key] = Session(told, told["requests"], descriptors)
        elif message.get("answer"):
            with contextlib.suppress(OSError):
                self._channel.send(b"{}")
        return True

    def bury(self) -> None:
        """Say goodbye for all sessions side by side, then end the simulators; within some seconds."""
        threads = [threading.Thread(target=session.say_goodbye) for session in self._sessions.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        groups = self._simulators.values()
        for group in groups:
            _reached(group, signal.SIGTERM)
        give_up = time.monotonic() + ENDING_TAKES
        while any(_reached(group, 0) for group in groups) and time.monotonic() < give_up:
            time.sleep(0.02)
        for group in groups:
            _reached(group, signal.SIGKILL)


def _reached(group: int, number: int) -> bool:
    """Send a signal, 0 for none, to a group of processes; False where there is none any more."""
    try:
        os.killpg(group, number)
    except OSError:
        return False
    return True


def main() -> None:
    """Watch the owner, and bury it."""
    # Whoever ends the owner's group, its terminal or its service, means the owner.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    channel, *owner = map(int, sys.argv[1:])
    guardian = Guardian(socket.socket(fileno=channel))
    guardian.watch(*owner)
    guardian.bury()


if __name__ == "__main__":
    main()
