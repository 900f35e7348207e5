"""`python -m tests.fuzz TARGET`: run a target on many inputs; the first it does not stand is printed, in hexadecimal.

python -m tests.fuzz --list
python -m tests.fuzz all --long                      # every target, until one does not stand an input
python -m tests.fuzz osp-reply --seed 17             # the input of that number once more
python -m tests.fuzz osp-reply --inputs 1000000      # those from number 0, or from --seed, on
python -m tests.fuzz osp-reply --hex 5501
"""

from __future__ import annotations

import argparse
import sys
from time import perf_counter
from typing import TYPE_CHECKING

from tests.fuzz.running import TARGETS, Found, attempt, run_corpus, run_many

if TYPE_CHECKING:
    from tests.fuzz.target import Target


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("target", nargs="?")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--inputs", type=int)
    parser.add_argument("--long", action="store_true", help="as many inputs as the long check runs")
    parser.add_argument("--hex")
    options = parser.parse_args()
    if options.list:
        print("\n".join(TARGETS))
        return 0
    names = list(TARGETS) if options.target == "all" else [options.target]
    if not TARGETS.keys() >= set(names):
        parser.error(f"name one of {', '.join(TARGETS)}, or all")
    if len(names) > 1 and options.hex is not None:
        parser.error("--hex is for one target")
    for name in names:
        seeded(TARGETS[name], options)
    return 0


def seeded(target: Target, options: argparse.Namespace) -> None:
    """Raises Found, and prints it."""
    count = options.inputs or (1 if options.seed is not None else target.inputs)
    count = target.long if options.long else count
    began = perf_counter()
    try:
        if options.hex is not None:
            attempt(target, "--hex", bytes.fromhex(options.hex))
            return
        corpus = 0 if count == 1 else run_corpus(target)
        run_many(target, options.seed or 0, count)
    except Found as found:
        print(found, file=sys.stderr)
        raise
    print(f"{target.name}: {corpus} + {count} inputs in {perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
