"""The page on several simulators, as it stands there: two simulators, one daemon, two env runners of one RLlib.

A program, not a test. --python is that of a virtual environment with Ray 2.49 or later and msgpack-numpy; ospbridge
runs in this one. Prints what RLlib's mean return came to, and how many steps each simulator gave.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ospbridge.session.hub_client import HubClient
from tests.peers.ports import free_port

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "several-simulators.md").read_text()
PROGRAM = (sys.executable, "-m", "ospbridge")
ENOUGH = 60.0
"""A mean return that no untrained policy comes near: about 20 is theirs."""
WITHIN = 480.0


def block(mark: str) -> str:
    found = re.search(rf"<!-- {mark} -->\n```\w+\n(.*?)```", PAGE, flags=re.DOTALL)
    if found is None:
        sys.exit(f"the page has no {mark}")
    return found.group(1)


def simulator() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PROGRAM, "sim", "--env", "CartPole-v1", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def run(python: str, program: str) -> str:
    """What the page's program of RLlib prints."""
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [python, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    ) as rllib:
        try:
            told, _ = rllib.communicate(timeout=WITHIN)
        except subprocess.TimeoutExpired as slow:
            sys.exit(f"RLlib did not end within {WITHIN:g} s; it printed {slow.stdout!r}")
        finally:
            # Asked to, Ray ends its own processes too.
            rllib.terminate()
    if rllib.returncode:
        sys.exit(f"RLlib ended with {rllib.returncode}")
    return told


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", required=True)
    arguments = parser.parse_args()
    first = free_port()
    with tempfile.TemporaryDirectory(prefix="ospb-") as directory:
        os.environ["XDG_RUNTIME_DIR"] = directory
        simulators = [simulator(), simulator()]
        started: list[subprocess.Popen[Any]] = [*simulators]
        try:
            text = block("configuration: several.toml")
            for name, process in zip(("45454", "45455"), simulators, strict=True):
                text = text.replace(f"127.0.0.1:{name}", address(process))
            text = text.replace("unix:/tmp/", f"unix:{directory}/")
            text = text.replace(":5556", f":{first + 1}").replace(":5557", f":{first + 2}")
            file = Path(directory) / "several.toml"
            file.write_text(text)
            program = block("program: rllib").replace('"port": 5555', f'"port": {first}')
            daemon = subprocess.Popen([*PROGRAM, "connect", "--config", str(file), "--log-level", "warning"])
            started.append(daemon)
            told = run(arguments.python, program)
            steps = []
            for name in ("left", "right"):
                client = HubClient.connect(f"unix:{directory}/{name}.sock")
                found = client.status()
                client.close()
                steps.append(found.steps)
                print(f"{name}: {found.steps} steps, {found.upstreams[0].batches} batches")
            daemon.send_signal(signal.SIGTERM)
            if daemon.wait(40) != 0:
                sys.exit(f"the daemon ended with {daemon.returncode}")
        finally:
            for process in started:
                if process.poll() is None:
                    process.terminate()
                    process.wait(20)
    returns = [line for line in told.splitlines() if re.fullmatch(r"\d+\.\d+", line)]
    print("mean returns:", " ".join(f"{float(line):.0f}" for line in returns))
    if not returns or float(returns[-1]) < ENOUGH or min(steps) < 4000:
        sys.exit(f"expected a mean return of {ENOUGH:g} and thousands of steps of each")


if __name__ == "__main__":
    main()
