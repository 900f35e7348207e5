"""Why a reset does not come about, in words for those who wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ospbridge.daemon.attachment import State
from ospbridge.daemon.awaited_reset import blocked_by_same_thread
from ospbridge.errors import AgentsInUse, BarrierStuck
from ospbridge.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ospbridge.daemon.attachment import Attachment
    from ospbridge.daemon.lockstep import LockStep

__all__ = ["waits_for_itself", "withheld"]


def waits_for_itself(lockstep: LockStep, attachments: Iterable[Attachment]) -> AgentsInUse | None:
    """A thread that waits for one agent's reset while it plays another waits for itself."""
    for mine in attachments:
        for other in lockstep.playing:
            if not other.acted and blocked_by_same_thread(other, mine):
                return AgentsInUse(
                    f"agent {mine.name!r} waits for the reset, which waits for the episode of agent "
                    f"{other.name!r}, which the same thread plays"
                )
    return None


def withheld(lockstep: LockStep, seconds: float, *, not_joined: str, given_up_hint: str = "") -> BarrierStuck:
    """Nobody reset within ``seconds``. ``not_joined`` says what keeps the simulator away; empty where it is there.

    ``given_up_hint``: what to do where nobody joins it any more, so that no reset is to come.
    """
    if given_up_hint:
        return BarrierStuck(
            f"no reset comes about any more: the simulator is not joined: {not_joined}", hint=given_up_hint
        )
    done = [a for a in lockstep.attachments if a.state is State.DONE]
    if lockstep.playing:
        why = f"agents still play: {_told(lockstep.playing)}"
        hint = "end their episodes or close their environments, or use `ospbridge connect --reset-policy any`"
    elif not_joined:
        why = f"the simulator is not joined: {not_joined}"
        hint = "start the simulator again if it has ended: the daemon joins it by itself, as `ospbridge status` shows"
    elif done:
        why = f"those whose episodes have just ended could still ask for it: {_told(done)}"
        hint = (
            "reset or close their environments too, or use `ospbridge connect` with a longer --reset-timeout"
        )
    else:
        why = f"the quorum is {lockstep.quorum}, and fewer wait"
        hint = "start the other environments, or `ospbridge connect` with a smaller --quorum"
    return BarrierStuck(f"the reset did not come about within {seconds:.3g} s: {why}", hint=hint)


def _told(attachments: Iterable[Attachment]) -> str:
    return listed(f"{a.name} (driven by {a.driver})" for a in attachments)
