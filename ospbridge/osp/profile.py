"""What kinds of OSP servers there are, as data.

``DOCUMENT`` is the text of OSP 1.1; ``NERD`` is the server that can still be run, as observed. Code asks the profile
for a property; nobody asks which profile it is. Both roles use it: the client to speak with such a server, the server
machine to be one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ospbridge.errors import ConfigurationError
from ospbridge.osp.codes import Code
from ospbridge.osp.wire import END

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DOCUMENT", "NERD", "PROFILES", "Expression", "InitForm", "Profile", "SeedBy", "profile_named"]


class InitForm(Enum):
    """How the version numbers of INIT and its answer are written."""

    INTS = "4-byte integers"
    BYTES = "single bytes"


class SeedBy(Enum):
    """By what the simulator learns its randomisation seed."""

    RESET = "the seed field of RESET_SIMULATION"
    VALUE = "the variable /Simulation/Seed, set before the reset"


class Expression(Enum):
    """How a server matches the regular expression of a value listing."""

    SEARCH = "anywhere in the name"
    WHOLE = "the whole name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A kind of OSP server. Times in seconds, sizes in bytes."""

    name: str
    init_form: InitForm
    reset_completed: Code
    """What the server sends when a reset is complete; the client answers with the other of 75 and 76."""
    end_after_events_is_safe: bool
    """Whether END may be sent by a session that ever registered for an event."""
    end_frees_agents: bool
    """Whether END is known to free the agents of who sends it; else they are given back before."""
    values_are_pushed: bool
    """Whether observed values arrive behind a completion; else they are polled."""
    seed_by: SeedBy
    outputs_normalised: bool
    """Whether outputs stay in the announced range, so that a space may be built from it."""
    datagram_limit: int | None
    """Length at which the server cuts its own datagrams; None where it does not."""
    pipelining: bool
    """Whether several requests of one step may be under way before an acknowledgement came."""
    patience: float
    """The shortest silence that may be acted upon."""
    init_takes: float
    """How long the server takes to answer an INIT."""
    loses_wakeups: bool
    """Whether its threads lose wake-ups to each other under the ordinary scheduling policy: steps stall for 50 ms."""
    expression: Expression
    ascii_only: bool
    """Whether bytes above 0x7f in strings are lost."""
    end_marker: bool
    """Whether the server appends byte 120 to each of its datagrams."""
    lists_want_ack: bool
    """Whether overview and info wait for one acknowledgement, eating the next datagram in its place."""
    eats_awaited_acks: bool
    """Whether any datagram counts as the awaited acknowledgement and is lost."""
    completions_one_by_one: bool
    """Whether the next agent's completion is sent only after the acknowledgement of the one before."""
    observers_may_reset: bool
    """Whether reset requests of clients without agents count."""
    steps_before_reset: bool
    """Whether the first step before any reset resets the world itself (and loses its inputs)."""
    register_for_value_works: bool
    register_for_value_count: bool
    """Whether REGISTER_FOR_VALUE_ACK carries a count in front of the ids."""
    typed_by_interface: bool
    """Whether the type of an interface value in the repository is its interface name."""
    foreign_deregister_status: int
    """Status of a DEREGISTER for a known agent that this client does not control."""
    stray_reset_ack: bool
    """Whether RESET_COMMUNICATION_ACK is followed by a RESET_SIMULATION_ACK."""
    own_agents_available: bool
    """Whether the overview flags agents of the asking client as available."""
    votes_survive_reset: bool
    """Whether step requests made before a reset still count after it."""
    votes_survive_leaving: bool
    """Whether the requests of a client that leaves or deregisters stay counted, so that those of the others suffice."""
    deaf_after_closed_port: bool
    """Whether a handler whose datagram met a closed port hears nobody any more, and keeps its agents."""
    type_names: Mapping[str, str]
    """Names of variable types where they differ from ``Int``, ``Double``, ``Bool``, ``String``."""

    @property
    def end(self) -> bytes:
        """What the server appends to each of its datagrams."""
        return END if self.end_marker else b""


DOCUMENT: Final = Profile(
    name="document",
    init_form=InitForm.INTS,
    reset_completed=Code.RESET_SIMULATION_COMPLETED_ACK,
    end_after_events_is_safe=True,
    end_frees_agents=False,
    values_are_pushed=True,
    seed_by=SeedBy.RESET,
    outputs_normalised=True,
    datagram_limit=None,
    pipelining=True,
    patience=0.25,
    init_takes=0.0,
    loses_wakeups=False,
    expression=Expression.SEARCH,
    ascii_only=False,
    end_marker=False,
    lists_want_ack=False,
    eats_awaited_acks=False,
    completions_one_by_one=False,
    observers_may_reset=False,
    steps_before_reset=False,
    register_for_value_works=True,
    register_for_value_count=False,
    typed_by_interface=False,
    foreign_deregister_status=1,
    stray_reset_ack=False,
    own_agents_available=False,
    votes_survive_reset=False,
    votes_survive_leaving=False,
    deaf_after_closed_port=False,
    type_names=MappingProxyType({"Int": "Integer"}),
)

NERD: Final = Profile(
    name="nerd",
    init_form=InitForm.BYTES,
    reset_completed=Code.RESET_SIMULATION_COMPLETED,
    end_after_events_is_safe=False,
    end_frees_agents=True,
    values_are_pushed=False,
    seed_by=SeedBy.VALUE,
    outputs_normalised=False,
    datagram_limit=1024,
    pipelining=False,
    patience=0.25,
    init_takes=0.051,
    loses_wakeups=True,
    expression=Expression.WHOLE,
    ascii_only=True,
    end_marker=True,
    lists_want_ack=True,
    eats_awaited_acks=True,
    completions_one_by_one=True,
    observers_may_reset=True,
    steps_before_reset=True,
    register_for_value_works=False,
    register_for_value_count=True,
    typed_by_interface=True,
    foreign_deregister_status=2,
    stray_reset_ack=True,
    own_agents_available=False,
    votes_survive_reset=True,
    votes_survive_leaving=True,
    deaf_after_closed_port=True,
    type_names=MappingProxyType({}),
)

PROFILES: Final = {profile.name: profile for profile in (DOCUMENT, NERD)}


def profile_named(name: str) -> Profile | None:
    """The profile of that name; None for ``auto`` (find out by probing)."""
    if name == "auto":
        return None
    try:
        return PROFILES[name]
    except KeyError:
        raise ConfigurationError(
            f"unknown profile {name!r}", hint=f"use one of auto, {', '.join(PROFILES)}"
        ) from None
