"""The deviations of real servers from the document of OSP 1.1, as a table. Numbers are those of the protocol notes."""

from __future__ import annotations

from typing import Final

from ospbridge.diagnosis import connecting, events, reading, resetting, stepping, values
from ospbridge.diagnosis.findings import Deviation

__all__ = ["DEVIATIONS", "ORDER"]

DEVIATIONS: Final = (
    Deviation(
        id="D1",
        title="INIT has single bytes",
        document="the version numbers of INIT and its answer are 4-byte integers",
        server="they are single bytes; an INIT of the document is ignored",
        probe=connecting.init_form,
    ),
    Deviation(
        id="D2",
        title="another version is ignored",
        document="says nothing of a version that the server does not speak",
        server="no answer at all",
        probe=connecting.other_version,
        alone=True,
    ),
    Deviation(
        id="D3",
        title="datagrams end with byte 120",
        document="datagrams end after their last field; code 120 is listed and not explained",
        server="byte 120 is behind each of its datagrams",
        probe=connecting.end_marker,
    ),
    Deviation(
        id="D4",
        title="one acknowledgement for a list",
        document="leaves open whether overview and info are acknowledged once or datagram by datagram",
        server="all datagrams in one burst, then one acknowledgement; whatever comes next is taken for it",
        probe=reading.list_acks,
    ),
    Deviation(
        id="D5",
        title="info of an unknown agent",
        document="says nothing of an unknown id",
        server="an answer of zeros, for which no acknowledgement is awaited",
        probe=reading.unknown_info,
        alone=True,
    ),
    Deviation(
        id="D6",
        title="deregistering from an agent of others",
        document="status 1, also for an agent that the client does not control",
        server="status 2 for every agent that this client has not registered for",
        probe=reading.foreign_deregister,
        alone=True,
    ),
    Deviation(
        id="D7",
        title="RESET_COMMUNICATION is confirmed twice",
        document="RESET_COMMUNICATION_ACK, and nothing else",
        server="a RESET_SIMULATION_ACK follows, which nobody asked for",
        probe=connecting.restart,
        invasive=True,
        alone=True,
    ),
    Deviation(
        id="D8",
        title="codes 75 and 76 are swapped",
        document="the server tells of a completed reset with 76, the client answers with 75",
        server="it tells with 75, and is answered with 76",
        probe=resetting.completion_code,
        alone=True,
        agents=1,
    ),
    Deviation(
        id="D9",
        title="observers must acknowledge resets",
        document="all clients are told of a reset",
        server="those without agents too, and each handler then takes the next datagram for the acknowledgement",
        probe=resetting.observer_told,
        invasive=True,
        alone=True,
        agents=1,
    ),
    Deviation(
        id="D10",
        title="the seed of a reset is ignored",
        document="the seed of RESET_SIMULATION decides the initial conditions",
        server="it is never used; the variable /Simulation/Seed is",
        probe=resetting.seed,
        alone=True,
        agents=1,
    ),
    Deviation(
        id="D11",
        title="anybody's reset request counts",
        document="those who control agents ask for a reset, once for each agent",
        server="requests of clients without agents count as well",
        probe=resetting.observer_resets,
        invasive=True,
        alone=True,
        agents=1,
    ),
    Deviation(
        id="D12",
        title="registering for a variable is refused",
        document="the ids of all variables that were found are repeated in the answer",
        server="0 for nearly every one of them",
        probe=values.observe_confirmed,
    ),
    Deviation(
        id="D13",
        title="REGISTER_FOR_VALUE_ACK has a count",
        document="the ids alone",
        server="their number, then the ids",
        probe=values.observe_count,
    ),
    Deviation(
        id="D14",
        title="observed variables are not sent",
        document="their content follows each completion",
        server="never",
        probe=stepping.pushed_values,
        alone=True,
        agents=1,
    ),
    Deviation(
        id="D15",
        title="datagrams are cut at 1024 bytes",
        document="no limit of the size",
        server="what is too long is cut without a word; the counts stay",
        probe=stepping.cut_completion,
    ),
    Deviation(
        id="D16",
        title="other names of types",
        document="types such as String, Integer, NormalizedDouble, Point3D",
        server="Int, Double, Vector3D and others; the type of an interface value is the name of its interface",
        probe=values.type_names,
    ),
    Deviation(
        id="D17",
        title="expressions fit whole names",
        document="an expression finds names that contain it",
        server="it must fit the name from end to end",
        probe=values.expression_anchored,
    ),
    Deviation(
        id="D18",
        title="outputs leave their range",
        document="interface values are normalised, between the minimum and maximum of the info",
        server="the range is the normalised one, outputs and infos are raw and go far beyond it",
        probe=stepping.outputs_in_range,
        alone=True,
        agents=1,
    ),
    Deviation(
        id="D19",
        title="VALUE_INFO_ACK is not awaited",
        document="the code is listed; no exchange uses it",
        server="it is neither sent nor awaited",
        probe=values.listing_ack,
    ),
    Deviation(
        id="D20",
        title="no restart at the main port",
        document="any client can restart the communication",
        server="at its handler's port only; at the main port the request is ignored",
        probe=connecting.restart_at_main_port,
        invasive=True,
        alone=True,
    ),
    Deviation(
        id="D21",
        title="steps before a reset",
        document="steps come after a reset",
        server="the first step of all resets the world by itself, and loses its inputs",
        probe=stepping.first_step,
        alone=True,
        agents=1,
    ),
    Deviation(
        id="D22",
        title="step requests survive a reset",
        document="a reset is a fresh start",
        server="step requests from before a reset still count after it",
        probe=resetting.votes_survive,
        alone=True,
        agents=2,
    ),
    Deviation(
        id="D23",
        title="text is ASCII",
        document="a string is a sequence of bytes",
        server="a byte above 127 comes back as 00, which ends the text",
        probe=values.no_ascii,
    ),
    Deviation(
        id="D24",
        title="deregistered events are still heard",
        document="deregistering ends the notification",
        server="the id is forgotten, the listener stays attached, and the server dies of it when its client has left",
        probe=events.deregistered_event,
        alone=True,
        agents=1,
    ),
    Deviation(
        id="D25",
        title="one's own agents are not available",
        document="the flag says whether an agent is controlled by a client",
        server="it is 0 for agents of the asking client too",
        probe=reading.own_agent_flag,
        alone=True,
        agents=1,
    ),
)
"""All of them, by number."""

_LAST: Final = ("D9", "D11", "D20", "D7")
_BEFORE_RESETS: Final = "D21"


def _in_order() -> tuple[Deviation, ...]:
    """A step before any reset comes first, then what only looks, then what moves the world, then what evicts."""

    def place(deviation: Deviation) -> tuple[bool, int, int]:
        last = _LAST.index(deviation.id) + 1 if deviation.id in _LAST else 0
        return deviation.id != _BEFORE_RESETS, last, deviation.agents

    return tuple(sorted(DEVIATIONS, key=place))


ORDER: Final = _in_order()
"""All of them, in the order in which they are probed."""
