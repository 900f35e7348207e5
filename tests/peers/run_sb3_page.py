"""The programs of the page on Stable-Baselines3, as they stand there but with short learning.

Simulators are on free ports, hubs in a folder of their own. Needs stable-baselines3.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "stable-baselines3.md"
OSPBRIDGE = (sys.executable, "-m", "ospbridge")
NAMES = ["one", "fleet", "hubs", "robots", "evaluation"]
LONG, SHORT = "learn(60_000", "learn(2_048"


def ended(process: subprocess.Popen[Any]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(5)


def simulator(stack: ExitStack, scenario: str) -> str:
    """A simulator with the scenario's world; its address."""
    process = subprocess.Popen(
        [*OSPBRIDGE, "sim", scenario, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    stack.callback(ended, process)
    assert process.stdout is not None
    return process.stdout.readline().strip()


def hub(stack: ExitStack, address: str, path: str) -> str:
    """A daemon before the simulator, its agent ready; the address of its hub."""
    bridge = f"unix:{path}"
    daemon = subprocess.Popen(
        [
            *(*OSPBRIDGE, "connect", "--simulator", address, "--hub", bridge),
            *("--scenario", "cartpole", "--log-level", "warning"),
        ]
    )
    stack.callback(ended, daemon)
    subprocess.run(
        [*OSPBRIDGE, "status", "--hub", bridge, "--wait", "60"],
        check=True,
        timeout=120,
        stdout=subprocess.DEVNULL,
    )
    return bridge


def main() -> None:
    programs = dict(
        re.findall(r"<!-- program: (\w+) -->\n```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    )
    if list(programs) != NAMES:
        sys.exit(f"{PAGE} has the programs {', '.join(programs)}, expected {', '.join(NAMES)}")
    torch.set_num_threads(1)
    warnings.simplefilter("error", UserWarning)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ospb-"))
        real = {
            "127.0.0.1:45454": simulator(stack, "cartpole"),
            "127.0.0.1:45455": simulator(stack, "cartpole"),
            "127.0.0.1:45456": simulator(stack, "arena_two"),
        }
        for name in ("one", "two"):
            # A simulator of its own, since a daemon keeps the agents of its simulator.
            bridge = hub(stack, simulator(stack, "cartpole"), f"{folder}/{name}.sock")
            real[f"unix:/tmp/{name}.sock"] = bridge
        for name, program in programs.items():
            if LONG not in program:
                sys.exit(f"{PAGE}: the program {name!r} does not say {LONG}")
            code = program.replace(LONG, SHORT)
            for written, address in real.items():
                code = code.replace(written, address)
            began = time.perf_counter()
            exec(compile(code, f"{PAGE.name}: {name}", "exec"), {"__name__": name})
            print(f"{name}: {time.perf_counter() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
