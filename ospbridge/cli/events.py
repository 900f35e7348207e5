"""`ospbridge events`: what happens in a simulator, as its events tell.

OSP tells a client of events only with the completions of steps, and those only go to clients that control an agent.
Whoever watches must therefore control one, and take part in every step.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import click

from ospbridge.cli.options import CloseNames, json_option, limit_option, simulator_options
from ospbridge.cli.output import note, print_json_line, say
from ospbridge.cli.stopping import stoppable
from ospbridge.osp.timing import Limits
from ospbridge.text import listed, printable

if TYPE_CHECKING:
    from ospbridge.cli.options import SimulatorAccess
    from ospbridge.errors import OspBridgeError
    from ospbridge.interface import StepOutcome
    from ospbridge.session.blocking import BlockingSession

__all__ = ["events"]


@click.group(cls=CloseNames)
def events() -> None:
    """Watch events of a simulator."""


@events.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option(
    "--agent",
    metavar="GLOB",
    help="Control this agent while watching.  [default: the first that is available]",
)
@click.option("--steps", type=click.IntRange(1), metavar="N", help="Take part in N steps, then end.")
@click.option("--reset", "reset_first", is_flag=True, help="Reset the world before the first step.")
@limit_option("--step-timeout", Limits().step, "Give up when other clients hold up a step for this time.")
@click.option(
    "--yes",
    is_flag=True,
    help="Do it on a NERD server too, which stays vulnerable after it.",
)
@simulator_options
@json_option('Print lines of {"step", "event"}.')
def watch(
    *,
    names: tuple[str, ...],
    agent: str | None,
    steps: int | None,
    reset_first: bool,
    step_timeout: float,
    yes: bool,
    simulator: SimulatorAccess,
    as_json: bool,
) -> None:
    """Print events as they occur, with the number of the step.

    NAME is the exact name of an event, for instance /Control/StepCompleted; a simulator cannot list them.

    A simulator reports events only to clients that control an agent. So this command controls one, keeps it at its
    neutral inputs, and asks for a step whenever the last one is complete: alone it drives the simulator at full speed;
    beside other clients it steps as they do, and while it runs they cannot reset the world. Steps are counted from its
    start. If a completion is lost, or cut before its events, the events of that step are unknown; the command says so
    once, and at the end for how many steps.

    A NERD server crashes if a client that registered for an event says goodbye. So the command leaves such a server
    without a goodbye; its handler stays there until the communication is restarted. This needs --yes.

    Ends after --steps, or by Ctrl-C or SIGTERM with exit code 0.
    """
    with (
        suppress(KeyboardInterrupt),
        stoppable(),
        simulator.session(reclaim_stale=True, step_timeout=step_timeout) as session,
    ):
        _check_allowed(session, yes=yes)
        name = session.matching((agent,) if agent else ())[0]
        _register_events(session, names)
        (interface,) = session.register(name)
        others = [entry.name for entry in session.agents() if not entry.available and entry.name != name]
        note(f"watching {listed(names)} from agent {printable(name)} of {session.server}, at rest")
        if others:
            note(f"other clients control {listed(others)}: while this runs they cannot reset the world")
        if reset_first:
            session.reset()
            session.pop_notices()
        neutral = [min(max(0.0, value.min), value.max) for value in interface.inputs]
        _watch(session, name, neutral, steps, was_reset=reset_first or bool(others), as_json=as_json)


def _check_allowed(session: BlockingSession, *, yes: bool) -> None:
    from ospbridge.errors import UsageError

    if session.profile.end_after_events_is_safe:
        return
    if not yes:
        raise UsageError(
            f"{session.server} is a server of profile {session.profile.name!r}: once registered for an event it must "
            "not be told goodbye, and a handler of it stays behind",
            hint="add --yes to watch all the same; infos and `ospbridge values watch` need no event",
        )
    note(f"{session.server} will be left without a goodbye: it would crash at the next event otherwise")


def _register_events(session: BlockingSession, names: tuple[str, ...]) -> None:
    from ospbridge.errors import UsageError

    unknown = [name for name in names if not session.register_event(name)]
    if unknown:
        raise UsageError(
            f"{session.server} has no event {', '.join(repr(name) for name in unknown)}",
            hint="names are exact, for instance /Control/StepCompleted; the simulator's manual has them",
        )


def _watch(
    session: BlockingSession,
    agent: str,
    neutral: list[float],
    steps: int | None,
    *,
    was_reset: bool,
    as_json: bool,
) -> None:
    from ospbridge.osp.notices import WorldReset

    step = lost = 0
    try:
        while steps is None or step < steps:
            outcome = _step(session, agent, neutral, may_need_reset=not (step or was_reset))
            step += 1
            for event in outcome.events:
                if as_json:
                    print_json_line({"step": step, "event": event})
                else:
                    say(f"{step:8d}  {event}")
            if outcome.restored:
                lost += 1
                if lost == 1:
                    note(
                        f"the events of step {step} are lost: its completion was, or it was cut in front of them"
                    )
            if any(isinstance(notice, WorldReset) for notice in session.pop_notices()):
                note(f"the world was reset by another client, before or in step {step}")
    finally:
        if lost > 1:
            note(
                f"the events of {lost} of {step} steps are lost; where the simulator cuts what it sends, watch from a "
                "smaller agent (--agent)"
            )


def _step(session: BlockingSession, agent: str, neutral: list[float], *, may_need_reset: bool) -> StepOutcome:
    from ospbridge.errors import BarrierStuck, OutputsIncomplete, SessionLost, StepUncertain

    try:
        return session.step({agent: neutral})[agent]
    except (BarrierStuck, StepUncertain) as error:
        if may_need_reset:
            raise type(error)(
                error.message, hint="a simulator may step only after a reset: add --reset"
            ) from None
        if isinstance(error, BarrierStuck):
            raise
        raise _events_lost(error) from None
    except (OutputsIncomplete, SessionLost) as error:
        raise _events_lost(error) from None


def _events_lost(error: OspBridgeError) -> OspBridgeError:
    return type(error)(error.message, hint="run the command again; events in between are lost")
