"""What kinds of OSP servers there are, as data.

``DOCUMENT`` is the text of OSP 1.1; ``NERD`` is the server that can still be run, as observed. Code asks the profile
for a property; nobody asks which profile it is. Both roles use it: the client to speak with such a server, the server
machine to be one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from ospbridge.errors import ConfigurationError
from ospbridge.osp.codes import Code
from ospbridge.osp.wire import END


class InitForm(Enum):
    """How the version numbers of INIT and its answer are written."""

    INTS = "4-byte integers"
    BYTES = "single bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A kind of OSP server; by default one that follows the document. Times in seconds, sizes in bytes."""

    name: str
    init_form: InitForm = InitForm.INTS
    reset_completed: Code = Code.RESET_SIMULATION_COMPLETED_ACK
    """What the server sends when a reset is complete; the client answers with the other of 75 and 76."""
    end_after_events_is_safe: bool = True
    """Whether END may be sent by a session that ever registered for an event."""
    end_frees_agents: bool = False
    """Whether END is known to free the agents of who sends it; else they are given back before."""
    values_are_pushed: bool = True
    """Whether observed values arrive behind a completion; else they are polled."""
    seeds_by_variable: bool = False
    """Whether the seed is the variable /Simulation/Seed, set before the reset; else a field of RESET_SIMULATION."""
    outputs_normalised: bool = True
    """Whether outputs stay in the announced range, so that a space may be built from it."""
    datagram_limit: int | None = None
    """Length at which the server cuts its own datagrams; None where it does not."""
    pipelining: bool = True
    """Whether several requests of one step may be under way before an acknowledgement came."""
    init_takes: float = 0.0
    """How long the server takes to answer an INIT."""
    loses_wakeups: bool = False
    """Whether its threads lose wake-ups to each other under the ordinary scheduling policy: steps stall for 50 ms."""
    matches_whole_names: bool = False
    """Whether the expression of a value listing must match the whole name; else anything in it."""
    ascii_only: bool = False
    """Whether bytes above 0x7f in strings are lost."""
    end_marker: bool = False
    """Whether the server appends byte 120 to each of its datagrams."""
    eats_awaited_acks: bool = False
    """Whether lists and resets await an acknowledgement too, for which any datagram counts, and is lost."""
    completions_one_by_one: bool = False
    """Whether the next agent's completion is sent only after the acknowledgement of the one before."""
    requests_outlive_sessions: bool = False
    """Whether requests are merely counted: those of observers too, through a reset, and when who sent them leaves."""
    barrier_poll: float = 0.0
    """How long after an agent was taken or given back the server looks at its barrier; at requests it looks at once."""
    steps_before_reset: bool = False
    """Whether the first step before any reset resets the world itself (and loses its inputs)."""
    register_for_value_works: bool = True
    """Whether REGISTER_FOR_VALUE_ACK has the ids that were found; else hardly one, with a count in front."""
    interface_type: str | None = "NormalizedDouble"
    """The type of interface values in the repository; None where it is the name of the interface."""
    integer_type: str = "Integer"
    """The type of integers in the repository."""
    foreign_deregister_status: int = 1
    """Status of a DEREGISTER for a known agent that this client does not control."""
    stray_reset_ack: bool = False
    """Whether RESET_COMMUNICATION_ACK is followed by a RESET_SIMULATION_ACK."""
    deaf_after_closed_port: bool = False
    """Whether a handler whose datagram met a closed port hears nobody any more, and keeps its agents."""

    @property
    def end(self) -> bytes:
        """What the server appends to each of its datagrams."""
        return END if self.end_marker else b""


DOCUMENT: Final = Profile(name="document")
NERD: Final = Profile(
    name="nerd",
    init_form=InitForm.BYTES,
    reset_completed=Code.RESET_SIMULATION_COMPLETED,
    end_after_events_is_safe=False,
    end_frees_agents=True,
    values_are_pushed=False,
    seeds_by_variable=True,
    outputs_normalised=False,
    datagram_limit=1024,
    pipelining=False,
    init_takes=0.051,
    loses_wakeups=True,
    matches_whole_names=True,
    ascii_only=True,
    end_marker=True,
    eats_awaited_acks=True,
    completions_one_by_one=True,
    requests_outlive_sessions=True,
    barrier_poll=0.005,
    steps_before_reset=True,
    register_for_value_works=False,
    interface_type=None,
    integer_type="Int",
    foreign_deregister_status=2,
    stray_reset_ack=True,
    deaf_after_closed_port=True,
)
PROFILES: Final = {profile.name: profile for profile in (DOCUMENT, NERD)}


def profile_named(name: str) -> Profile | None:
    """The profile of that name; None for ``auto`` (find out by probing)."""
    if name != "auto" and name not in PROFILES:
        known = ", ".join(PROFILES)
        raise ConfigurationError(f"unknown profile {name!r}", hint=f"use one of auto, {known}")
    return PROFILES.get(name)
