"""Running a target on many inputs, each made from a number: the same number makes the same input."""

from __future__ import annotations

import random
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from time import process_time
from types import FrameType

from tests.fuzz import osp_targets, other_targets, rllink_targets
from tests.fuzz.target import Target

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
