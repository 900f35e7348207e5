"""Changes one place of a protocol's code after another, at random, and prints the share of changes that tests notice.

    python -m tests.mutants --seed 1 --sample 350    # [tool.mutmut] in pyproject.toml says where; it works in mutants/

Each mutant is given those tests that call its function, the quickest first, of a few seconds together.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

MUTANTS = Path("mutants")
STATS = MUTANTS / "mutmut-stats.json"
SECONDS = 5.0
"""Of tests for one mutant, as long as they took unchanged."""
SURVIVED, UNTESTED = 0, 33


def mutmut(*arguments: str) -> str:
    done = subprocess.run(["mutmut", *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout[-4000:])
    return done.stdout


def results() -> dict[str, int | None]:
    """Exit codes of pytest by mutant."""
    found: dict[str, int | None] = {}
    for path in sorted(MUTANTS.glob("ospbridge/**/*.meta")):
        found |= json.loads(path.read_text())["exit_code_by_key"]
    return found


def function_of(mutant: str) -> str:
    return mutant.partition("__mutmut_")[0]


def give_few_tests() -> dict[str, list[str]]:
    """Keeps the quickest tests of each function: which call it, by its name."""
    stats = json.loads(STATS.read_text())
    took = stats["duration_by_test"]
    for function, tests in stats["tests_by_mangled_function_name"].items():
        left = SECONDS
        kept: list[str] = []
        # mutmut finds no test again whose name has a backslash.
        for test in sorted((test for test in tests if "\\" not in test), key=took.__getitem__):
            left -= took[test]
            if kept and left < 0:
                break
            kept.append(test)
        stats["tests_by_mangled_function_name"][function] = kept
    STATS.write_text(json.dumps(stats))
    return dict(stats["tests_by_mangled_function_name"])


def interval(good: int, of: int) -> tuple[float, float]:
    """Where the share of all lies, in 95 of 100 samples (Wilson)."""
    z = 1.96
    share = good / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z / (1 + z * z / of) * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return middle - half, middle + half


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sample", type=int, default=350)
    parser.add_argument("--at-least", type=float, default=0.85)
    options = parser.parse_args()

    # Makes them all, and learns which test calls what.
    mutmut("run", "--max-children", "1", "ospbridge.osp.profile.*")
    tests = give_few_tests()
    everything = sorted(results())
    sample = random.Random(options.seed).sample(everything, options.sample)
    tested = [mutant for mutant in sample if tests.get(function_of(mutant))]
    print(f"{len(everything)} mutants, a sample of {len(sample)} by seed {options.seed}", flush=True)
    mutmut("run", "--max-children", "1", *tested)

    outcomes = results()
    good: dict[str, int] = defaultdict(int)
    of: dict[str, int] = defaultdict(int)
    for mutant in sorted(sample):
        package = mutant.split(".")[1]
        noticed = mutant in tested and outcomes[mutant] not in (SURVIVED, UNTESTED, None)
        for name in (package, "both"):
            of[name] += 1
            good[name] += noticed
        if not noticed:
            lines = mutmut("show", mutant).splitlines()
            changes = [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]
            print(mutant, *changes, sep="\n    ", flush=True)
    for name in sorted(of):
        low, high = interval(good[name], of[name])
        print(
            f"{name}: {good[name]} of {of[name]} mutants noticed, {good[name] / of[name]:.1%} "
            f"(of all: between {low:.1%} and {high:.1%}, 19 times in 20)"
        )
    return int(any(good[name] < options.at_least * of[name] for name in of))


if __name__ == "__main__":
    sys.exit(main())
