"""Variables whose local id a simulator does not know any more: they are looked for by name again.

Ids are a client's own, for as long as its session lasts, and so it is with real servers as far as is known. But a world
that is built anew in a reset may have numbered its variables anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ospbridge.osp.client.asking import set_value
from ospbridge.osp.client.listing import find_value

if TYPE_CHECKING:
    from ospbridge.osp.client.machine import ClientMachine, Exchange

__all__ = ["forget_ids", "write_value"]


def forget_ids(m: ClientMachine) -> None:
    """What is known of the repository is not valid any more: one of its ids is unknown to the simulator."""
    m.values.clear()
    m.listed = False
    for agent in m.echo.agents.values():
        agent.looked = False


def write_value(
    m: ClientMachine, name: str, content: str, *, sets_pace: bool = True
) -> Exchange[bool | None]:
    """Write the variable of that name; None where there is none, False where the simulator does not know its id.

    Raises ValueRejected where the text does not parse.
    """
    done: bool | None = False
    for _ in range(2):
        entry = yield from find_value(m, name)
        if entry is None:
            return None
        done = yield from set_value(m, entry.id, content, name=name, sets_pace=sets_pace)
        if done:
            break
        forget_ids(m)
    return done
