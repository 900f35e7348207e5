"""The programs of the page on PolicyClient, as they stand there: a server learns from a client, in both modes.

Run with Ray 2.47.1 and what the page lists beside it. The simulator and the server are on free ports. The server ends
by itself after a few iterations, in which steps and returns must have come in.
"""

from __future__ import annotations

import argparse
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.peers.ports import free_port

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "policy-client.md"
NAMES = ["server", "client"]
LISTENS_WITHIN = 180.0
LEARNS_WITHIN = 600.0


def ended(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(5)


def started(stack: ExitStack, *command: str, log: Path) -> subprocess.Popen[str]:
    output = stack.enter_context(log.open("w"))
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=output, text=True, cwd=log.parent
    )
    stack.callback(ended, process)
    return process


def listening(port: int, server: subprocess.Popen[str], log: Path) -> None:
    give_up = time.monotonic() + LISTENS_WITHIN
    while time.monotonic() < give_up and server.poll() is None:
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.5)
    sys.exit(f"the server does not listen:\n{log.read_text()[-3000:]}")


def learned(mode: str, programs: dict[str, str], iterations: int) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ospb-")))
        simulator = started(
            stack, "-m", "ospbridge", "sim", "cartpole", "--port", "0", log=folder / "sim.log"
        )
        assert simulator.stdout is not None
        port = free_port()
        real = {"127.0.0.1:45454": simulator.stdout.readline().strip(), "9900": str(port)}
        for name, program in programs.items():
            code = program
            for written, place in real.items():
                if name == "client" and written not in code:
                    sys.exit(f"{PAGE}: the program {name!r} does not say {written}")
                code = code.replace(written, place)
            (folder / f"{name}.py").write_text(code)
        began = time.monotonic()
        server = started(stack, "server.py", str(iterations), log=folder / "server.log")
        listening(port, server, folder / "server.log")
        client = started(stack, "client.py", mode, log=folder / "client.log")
        try:
            said, _ = server.communicate(timeout=LEARNS_WITHIN)
        except subprocess.TimeoutExpired:
            said = ""
        lines = [line.split() for line in said.splitlines()]
        steps, returns = [int(line[1]) for line in lines], [float(line[2]) for line in lines]
        if server.returncode or len(lines) != iterations or client.poll() not in (None, 1):
            logs = "".join((folder / f"{name}.log").read_text()[-2000:] for name in NAMES)
            sys.exit(f"{mode}: the server ended with {server.returncode} and said {said!r}\n{logs}")
        if steps != sorted(set(steps)) or min(returns) < 1.0:
            sys.exit(f"{mode}: steps {steps} and returns {returns}")
        print(
            f"{mode}: {steps[-1]} steps, mean returns {' '.join(f'{each:.1f}' for each in returns)}, "
            f"{time.monotonic() - began:.0f} s",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--iterations", type=int, default=4)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    programs = dict(
        re.findall(r"<!-- program: (\w+) -->\n```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    )
    if list(programs) != NAMES:
        sys.exit(f"{PAGE} has the programs {', '.join(programs)}, expected {', '.join(NAMES)}")
    for mode in ("local", "remote"):
        learned(mode, programs, arguments.iterations)


if __name__ == "__main__":
    main()
