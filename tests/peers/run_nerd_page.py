"""The programs of the page that trains on NERD, as they stand there, on the stand-in and with short learning.

Needs stable-baselines3.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "train-on-nerd.md"
LAUNCH = 'LAUNCH = ["NerdSim", "-env", "world.xml", "-p", "{port}"]'
LONG = "learn(60_000)"


def program(name: str, short: str) -> str:
    found = re.search(rf"<!-- program: {name} -->\n```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    if found is None or LAUNCH not in found.group(1):
        sys.exit(f"{PAGE} has no program {name} that launches")
    return found.group(1).replace(LAUNCH, "LAUNCH = True").replace(LONG, short)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:

        def run(name: str, steps: int) -> str:
            done = subprocess.run(
                [sys.executable, "-c", program(name, f"learn({steps})")],
                stdout=subprocess.PIPE,
                text=True,
                timeout=900,
                check=True,
                cwd=directory,
            )
            return done.stdout

        trained = run("train.py", 20_000)
        means = [float(found) for found in re.findall(r"ep_rew_mean +\| +([-\d.e+]+)", trained)]
        driven = run("drive.py", 0)
    print(f"mean return of episodes while it learned: {means[0]:.1f} to {means[-1]:.1f}; {driven.strip()}")
    if not means[-1] > means[0] + 50.0:
        sys.exit("expected returns to rise")
    if not re.fullmatch(r"return -?[\d.]+\n", driven):
        sys.exit("expected a return of the learned policy")


if __name__ == "__main__":
    main()
