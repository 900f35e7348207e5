"""Seeds of servers that take them by a variable, because they ignore the one of a reset (deviation D10)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.errors import IncompleteListing, QueryTimeout, ValueRejected
from ospbridge.osp.client.asking import get_value
from ospbridge.osp.client.listing import find_value
from ospbridge.osp.client.renumbering import write_value

if TYPE_CHECKING:
    from ospbridge.osp.client.machine import ClientMachine, Exchange

__all__ = ["SEED", "seed_by_value"]

SEED: Final = "/Simulation/Seed"
OWN_SEEDS: Final = "/Simulation/RandomizeSeedAtReset"
YES: Final = ("T", "TRUE", "1")


def seed_by_value(m: ClientMachine, seed: int) -> Exchange[None]:
    """Write the seed of the reset that follows. What hinders that is told, and does not hinder the reset."""
    if m.seedless:
        return
    try:
        entry = None if m.repository_mute else (yield from find_value(m, SEED))
    except QueryTimeout:
        # The clock is asked for next: in one silence both count as one.
        m.mute_questions += m.clock.known
        if not m.repository_mute:
            # A simulator that was stopped, or busy, may have the variable all the same: the next reset asks again.
            m.notices.remark(
                f"{m.peer} did not answer about {SEED}: it has not got the seed {seed}", about=SEED
            )
            return
        entry = None
    try:
        done = (yield from write_value(m, SEED, str(seed), sets_pace=False)) if entry else None
    except ValueRejected:
        done = False
    if done is None:
        m.seedless = True
        m.notices.remark(f"{m.peer} has no variable {SEED}: seeds have no effect")
    elif not done:
        m.notices.remark(f"{m.peer} refused the seed {seed}", about=SEED)
    elif not m.own_seeds_looked_for:
        m.own_seeds_looked_for = True
        yield from _look_for_own_seeds(m)


def _look_for_own_seeds(m: ClientMachine) -> Exchange[None]:
    """Tell where the simulator is set to draw a seed at each reset, in place of the one that it was given."""
    try:
        entry = yield from find_value(m, OWN_SEEDS)
        content = None if entry is None else (yield from get_value(m, entry.id))
    except (QueryTimeout, IncompleteListing):
        # It is there to be told of, and nothing depends on it.
        return
    if content is not None and content.strip().upper() in YES:
        m.notices.remark(
            f"{m.peer} draws a seed of its own at each reset: given seeds have no effect ({OWN_SEEDS} is {content}; "
            "false under [values] of a scenario mends that)"
        )
