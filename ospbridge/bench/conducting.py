"""Steps of a daemon's conductor, without the daemon's hub: what the daemon itself adds to a session.

The one module of this room that knows another one of its floor: what is measured here is the daemon.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from ospbridge.bench.awaiting import run_in_trio, timed_async
from ospbridge.bench.stage import START
from ospbridge.daemon.attachment import Driver
from ospbridge.daemon.conductor import Conductor
from ospbridge.daemon.settings import Settings
from ospbridge.transport.addresses import parse_endpoint

if TYPE_CHECKING:
    from ospbridge.bench.figures import Run
    from ospbridge.bench.stage import Stage

__all__ = ["conducted"]

LOOK_EVERY: Final = 0.01
"""Seconds between looks at whether the simulator was joined."""


def conducted(stage: Stage, steps: int, warm_up: int) -> Run:
    """Steps of all agents of the stage's simulator, each with the same action."""
    return run_in_trio(partial(_conducted, stage, steps, warm_up))


async def _conducted(stage: Stage, steps: int, warm_up: int) -> Run:
    conductor = Conductor(
        Settings(hub=Path("none"), simulator=parse_endpoint(stage.responder), profile=stage.profile.name)
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(conductor.run)
        with trio.fail_after(START):
            while not conductor.ready:  # noqa: ASYNC110  # it tells nobody when
                await trio.sleep(LOOK_EVERY)
        attachments = conductor.attach(["*"], Driver("the measurement", 0))
        await conductor.reset(attachments, 1, 0)
        moves = [(attachment, stage.action.tobytes()) for attachment in attachments]
        run = await timed_async(partial(conductor.step, moves), steps, warm_up, alone=stage.apart)
        conductor.leave(attachments)
        nursery.cancel_scope.cancel()
    return run
