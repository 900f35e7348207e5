"""`python -m tests.fuzz TARGET`: run a target on many inputs; the first it does not stand is raised, in hexadecimal.

Each input is made from a number: the same number makes the same input.

python -m tests.fuzz all --long                      # every target, until one does not stand an input
python -m tests.fuzz osp-reply --seed 17             # the input of that number once more
python -m tests.fuzz osp-reply --inputs 1000000      # those from number 0, or from --seed, on
python -m tests.fuzz osp-reply --hex 5501
"""

from __future__ import annotations

import argparse
import random
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter, process_time
from types import FrameType

from tests.fuzz import osp_targets, other_targets, rllink_targets
from tests.fuzz.mutating import Target

TARGETS = {
    target.name: target for target in (*osp_targets.TARGETS, *rllink_targets.TARGETS, *other_targets.TARGETS)
}
LONGEST = 5.0
"""Seconds of processor time that one input may take."""
HUNG = 30.0
MOST_MEMORY = 300 * 2**20
"""Bytes by which a run's largest memory may exceed that at its beginning."""


class Found(AssertionError):
    """An input that a target did not stand."""

    def __init__(self, target: Target, where: str, data: bytes, why: str) -> None:
        super().__init__(f"{target.name}, {where}: {why}\n{data.hex()}")


def input_of(target: Target, seed: int) -> bytes:
    """The input of that number."""
    chance = random.Random(f"{target.name} {seed}")
    corpus = list(target.corpus.values())
    return target.mutate(chance, chance.choice(corpus), corpus)


def attempt(target: Target, where: str, data: bytes) -> None:
    """Raises Found for what is no documented error, and for an input that takes far too long."""
    began = process_time()
    try:
        target.run(data)
    except Exception as error:
        raise Found(target, where, data, f"{type(error).__name__}: {error}") from error
    took = process_time() - began
    if took > LONGEST:
        raise Found(target, where, data, f"took {took:.1f} s")


@contextmanager
def watched(target: Target) -> Iterator[None]:
    """A target that hangs is interrupted, and one that takes much memory told."""

    def hung(_: int, __: FrameType | None) -> None:
        raise TimeoutError(f"hangs, {HUNG:g} s long")

    before = _memory()
    previous = signal.signal(signal.SIGALRM, hung)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    grown = _memory() - before
    if grown > MOST_MEMORY:
        raise Found(target, "all of the run", b"", f"took {grown >> 20} MiB")


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run_corpus(target: Target) -> int:
    """Every input of the corpus as it is; how many they are."""
    with watched(target):
        for name, data in target.corpus.items():
            signal.setitimer(signal.ITIMER_REAL, HUNG)
            attempt(target, name, data)
    return len(target.corpus)


def run_many(target: Target, seed: int, count: int) -> None:
    """The inputs from that number on."""
    with watched(target):
        for number in range(seed, seed + count):
            signal.setitimer(signal.ITIMER_REAL, HUNG)
            attempt(target, f"seed {number}", input_of(target, number))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("target", choices=[*TARGETS, "all"])
    parser.add_argument("--seed", type=int, help="from the input of that number on, or this one alone")
    parser.add_argument("--inputs", type=int)
    parser.add_argument("--long", action="store_true", help="as many inputs as the long check runs")
    parser.add_argument("--hex", help="this input")
    options = parser.parse_args()
    for target in [TARGETS[options.target]] if options.target in TARGETS else TARGETS.values():
        began = perf_counter()
        count = options.inputs or (1 if options.seed is not None else target.inputs)
        count = target.long if options.long else count
        if options.hex is not None:
            attempt(target, "--hex", bytes.fromhex(options.hex))
            continue
        corpus = 0 if count == 1 else run_corpus(target)
        run_many(target, options.seed or 0, count)
        print(f"{target.name}: {corpus} + {count} inputs in {perf_counter() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
