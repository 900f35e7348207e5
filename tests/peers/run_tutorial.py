"""The tutorial's program, as it stands there, against a simulator on a free port. Needs stable-baselines3."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "first-policy.md"
ENOUGH = 475


def main() -> None:
    found = re.search(
        r"<!-- program: first policy -->\n```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL
    )
    if found is None:
        sys.exit(f"{PAGE} has no program")
    with subprocess.Popen(
        [sys.executable, "-m", "ospbridge", "sim", "--env", "CartPole-v1", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as simulator:
        try:
            assert simulator.stdout is not None
            program = found.group(1).replace("127.0.0.1:45454", simulator.stdout.readline().strip())
            done = subprocess.run(
                [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=600, check=True
            )
        finally:
            simulator.terminate()
    print(done.stdout, end="")
    mean = re.search(r"mean return (\d+)", done.stdout)
    if mean is None or int(mean.group(1)) < ENOUGH:
        sys.exit(f"expected a mean return of {ENOUGH} or more")


if __name__ == "__main__":
    main()
