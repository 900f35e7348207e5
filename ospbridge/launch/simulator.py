"""A simulator that this process has launched: on a port of its own, under SCHED_BATCH, ended with its owner.

It listens when ``wait_ready`` returns; that it speaks OSP is known when a session joins it.
"""

from __future__ import annotations

import errno
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from ospbridge.errors import OspBridgeError, SimulatorNotStarted
from ospbridge.interface import Endpoint
from ospbridge.launch import cores
from ospbridge.launch.logs import SimulatorLog
from ospbridge.transport import guardian
from ospbridge.transport.spinning import OWN_CORE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ospbridge.launch.command import LaunchSpec

__all__ = ["LaunchedSimulator", "check_free", "launch", "stop_all"]

STARTER: Final = Path(__file__).with_name("starter.py")
HOST: Final = "127.0.0.1"
PORTS: Final = range(15_000, 32_768)
"""Below those that the system gives to sockets of clients, of which none can take one meanwhile."""
PROVEN: Final = 10.0
"""Seconds after which a simulator that ends has a reason of its own: it is started again at no cost."""
STARTED_WITHIN: Final = 20.0
"""Seconds for the program to be executed, on whatever busy machine."""
LOOKED_EVERY: Final = 0.02
ENDS_WITHIN: Final = 2.0
"""Seconds from SIGTERM to SIGKILL."""
FELT: Final = 0.3
"""Seconds from a refused datagram to the end of the process whose socket that was."""
PROBED_WITHIN: Final = 0.005
NEEDS_DISPLAY: Final = re.compile(r"display|xcb|x11|wayland|glfw|opengl|glut", re.IGNORECASE)


class LaunchedSimulator:
    """One process, from ``start`` to ``stop``; it may be started again, at the same address.

    ``alone``: no other one writes to the same log file. ``core``: one of its own.
    """

    def __init__(
        self, spec: LaunchSpec, *, alone: bool = True, core: cores.Core | None = None, port: int = 0
    ) -> None:
        self.spec = spec
        self.address: Final = Endpoint(HOST, port or _free_port())
        self.refused: dict[str, str] = {}
        """What the system did not allow: why, by ``"batch"`` and ``"pin"``."""
        self.log: Final = SimulatorLog(spec, self.address.port, alone=alone)
        """Where its output goes. To be rotated now and then."""
        self._core = core
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._ended: float | None = None
        self._owner = os.getpid()

    # --- starting --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Execute the program. Raises SimulatorNotStarted where that cannot be done."""
        command = self.spec.at(self.address.port)
        core = self._core.number if self._core is not None else self.spec.pin
        go_read, go = os.pipe()
        report, report_write = os.pipe()
        options = {
            "batch": self.spec.batch,
            "core": core if isinstance(core, int) else None,
            "go": go_read,
            "report": report_write,
        }
        try:
            with self.log.open() as output:
                self._process = subprocess.Popen(  # noqa: S603  # the program that the user named
                    [sys.executable, "-I", "-S", str(STARTER), json.dumps(options), *command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=self.spec.cwd,
                    env=os.environ
                    | ({OWN_CORE: "1"} if self._core is not None else {})
                    | dict(self.spec.env),
                    pass_fds=(go_read, report_write),
                    start_new_session=True,
                )
            self._started, self._ended = monotonic(), None
            # From here on it ends with this process, and only now it may go on.
            guardian.running(self._process.pid)
            os.write(go, b"g")
        except OSError as error:
            os.close(report)
            raise SimulatorNotStarted(
                f"{self.spec.name} could not be launched: {error.strerror}", hint="see `ulimit -u` and `free`"
            ) from None
        finally:
            for each in (go_read, go, report_write):
                os.close(each)
        self._take_report(report)

    def _take_report(self, report: int) -> None:
        """What the starter could not do."""
        give_up = monotonic() + STARTED_WITHIN
        said = b""
        with open(report, "rb", buffering=0) as file:
            os.set_blocking(report, False)
            while monotonic() < give_up:
                piece = file.read()
                if piece == b"":
                    break
                said += piece or b""
                sleep(0.0 if piece else 0.002)
        for line in said.decode(errors="replace").splitlines():
            what, _, why = line.partition(": ")
            if what == "program":
                self.stop()
                raise SimulatorNotStarted(
                    f"{self.spec.name} could not be launched: {why}",
                    hint=f"try {self.spec.command[0]} in a shell",
                )
            self.refused[what] = why

    def wait_ready(self, give_up: float | None = None) -> None:
        """Until something listens at ``address``, for the ``ready`` seconds of its command at most.

        Raises SimulatorNotStarted where it ends before, or never listens there, with what it said last.
        """
        give_up = monotonic() + self.spec.ready if give_up is None else give_up
        while not _listens(self.address):
            if not self.alive:
                raise self.error("ended before it answered")
            if monotonic() >= give_up:
                elsewhere = self._other_ports()
                if elsewhere:
                    raise self.error(
                        f"does not listen at {self.address} but at UDP port {', '.join(map(str, elsewhere))}",
                        hint="write {port} where the command names its port",
                    )
                raise self.error(
                    f"does not listen at {self.address} after {self.spec.ready:g} s",
                    hint='see its log; give it more time with launch={..., "ready": SECONDS}',
                )
            sleep(LOOKED_EVERY)

    def restart(self) -> None:
        """Once more, at the same address. Raises SimulatorNotStarted."""
        self._end()
        self.log.rotate()
        self.start()
        self.wait_ready()

    # --- while it runs ---------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Its process runs."""
        if self._process is None:
            return False
        if self._process.poll() is None:
            return True
        if self._ended is None:
            self._ended = monotonic()
            guardian.ended(self._process.pid)
        return False

    @property
    def proven(self) -> bool:
        """It lived for long enough that its end is no fault of how it was started."""
        ended = self._ended if self._ended is not None else monotonic()
        return ended - self._started >= PROVEN

    @property
    def pid(self) -> int | None:
        """Of its process, while that runs."""
        return self._process.pid if self.alive and self._process is not None else None

    def has_ended(self) -> bool:
        """The same as not ``alive``, for who has just met its closed port: its process may take a moment to end."""
        give_up = monotonic() + FELT
        while self.alive:
            if monotonic() >= give_up:
                return False
            sleep(LOOKED_EVERY / 4)
        return True

    def end_told(self) -> str:
        """How it ended, for people."""
        code = None if self._process is None else self._process.returncode
        if code is None:
            return "it runs"
        if code < 0:
            with suppress(ValueError):
                return f"it was ended by {signal.Signals(-code).name}"
            return f"it was ended by signal {-code}"
        return f"it ended with exit code {code}"

    def error(self, what: str, *, hint: str = "") -> SimulatorNotStarted:
        """The error of a start that failed, with its last words."""
        how = "" if self.alive else f", {self.end_told()}"
        said = self.log.last_words()
        if not hint and any(NEEDS_DISPLAY.search(line) for line in said):
            hint = "it seems to need a display: launch it under `xvfb-run -a`, or see its options for none"
        told = f"; it said last: {' | '.join(said)}" if said else ", and said nothing"
        return SimulatorNotStarted(
            f"the launched simulator {self.spec.name} {what}{how}{told}",
            hint=hint or f"its log is {self.log}",
        )

    def _other_ports(self) -> list[int]:
        """UDP ports that it listens at instead, as far as /proc tells: that of a hardened service has none."""
        import psutil

        assert self._process is not None
        found: set[int] = set()
        with suppress(psutil.Error):
            mine = psutil.Process(self._process.pid)
            for process in (mine, *mine.children(recursive=True)):
                with suppress(psutil.Error, OSError):
                    found |= {each.laddr.port for each in process.net_connections("udp") if each.laddr}
        return sorted(found - {self.address.port})

    # --- ending ----------------------------------------------------------------------------------------------------

    def stop_soon(self) -> None:
        """Have it end; ``stop`` waits for that."""
        if self._owner == os.getpid() and self.alive:
            self._signal(signal.SIGTERM)

    def stop(self) -> None:
        """End it, within some seconds, and give back its core. Safe to call again; nothing in a forked child."""
        if self._owner != os.getpid():
            return
        self._end()
        if self._core is not None:
            self._core.release()
            self._core = None

    def _end(self) -> None:
        process = self._process
        if process is None:
            return
        self._signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(ENDS_WITHIN)
        # What it has started itself ends too, and it where it heeds no request.
        self._signal(signal.SIGKILL)
        process.wait()
        if self._ended is None:
            self._ended = monotonic()
            guardian.ended(process.pid)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        with suppress(OSError):
            os.killpg(self._process.pid, number)

    def disown(self) -> None:
        """In a forked child: the process is the parent's."""
        if self._process is not None:
            self._process.returncode = 0


def launch(spec: LaunchSpec, count: int = 1, *, of: int = 1, port: int = 0) -> list[LaunchedSimulator]:
    """As many simulators, started side by side, each of which listens. Raises UsageError, SimulatorNotStarted.

    Where ``pin`` is ``"auto"`` each gets a core of its own, if there are more cores than simulators, of which ``of``
    may come in all.
    """
    own = cores.take(count, of=of) if spec.pin == "auto" else []
    made: list[LaunchedSimulator] = []
    try:
        for number in range(count):
            made.append(
                LaunchedSimulator(spec, alone=count == 1, core=own[number] if own else None, port=port)
            )
            made[-1].start()
        give_up = monotonic() + spec.ready
        for simulator in made:
            simulator.wait_ready(give_up)
    except BaseException:
        stop_all(made)
        for core in own[len(made) :]:
            core.release()
        raise
    return made


def stop_all(simulators: Iterable[LaunchedSimulator]) -> None:
    """End them side by side."""
    simulators = list(simulators)
    for simulator in simulators:
        simulator.stop_soon()
    for simulator in simulators:
        simulator.stop()


def _free_port() -> int:
    # Programs that seed `random` alike, and forked workers, would all try the same ports.
    draw = random.SystemRandom()
    for _ in range(1000):
        port = draw.choice(PORTS)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, suppress(OSError):
            sock.bind((HOST, port))
            return port
    raise SimulatorNotStarted(
        f"no UDP port from {PORTS.start} to {PORTS.stop - 1} is free", hint="see `ss -lun` for who has them"
    )


def check_free(address: Endpoint, program: str) -> None:
    """Raises SimulatorNotStarted where another process listens there, with its name as far as it may be known."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.bind((address.host, address.port))
            return
        except OSError as error:
            why, hint = error.strerror, "name another port"
            if error.errno == errno.EADDRINUSE:
                why = f"{_owner(address) or 'another process'} listens there already"
                hint = "end that one, leave out the address to have a free port chosen, or leave out launch to join it"
    raise SimulatorNotStarted(f"{program} cannot be launched at {address}: {why}", hint=hint)


def _owner(address: Endpoint) -> str:
    """Such as ``process 4711 (NerdSim -p 45454)``; empty where this user may not know."""
    import psutil

    from ospbridge.launch.scheduling import owner_of

    with suppress(OspBridgeError, psutil.Error, OSError):
        owner = owner_of(address)
        return f"process {owner.pid} ({owner.command})"
    return ""


def _listens(address: Endpoint) -> bool:
    """Whether a UDP port is open: a closed one of this host refuses what is sent to it at once."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.settimeout(PROBED_WITHIN)
        probe.connect((address.host, address.port))
        try:
            probe.send(b"x")
            probe.recv(1)
        except TimeoutError:
            return True
        except OSError:
            return False
        return True
