"""A message of each kind that crosses the hub, with something in each of its fields."""

from __future__ import annotations

import msgspec
import numpy as np

from ospbridge.hub.descriptions import AgentDescription
from ospbridge.hub.framing import encode
from ospbridge.hub.replies import (
    AgentFeedback,
    Attached,
    Detached,
    Feedbacks,
    Held,
    HubReply,
    Kind,
    Moment,
    Moments,
    Numbers,
    Observing,
    Refusal,
    Welcome,
)
from ospbridge.hub.requests import (
    VERSION,
    Again,
    AnnotatedStep,
    Attach,
    Detach,
    Hello,
    HubRequest,
    MomentsSince,
    Note,
    Observe,
    Reset,
    Status,
    Step,
)
from ospbridge.hub.status import AgentStatus, RecordingStatus, SpoolStatus, StatusReply, UpstreamStatus
from ospbridge.interface import AgentInterface, BoxSpace, DiscreteSpace, InterfaceValue

AGENT = AgentInterface(
    0, "cart", (InterfaceValue("/x", -1, 1),), (InterfaceValue("/y", -1, 1),), (InterfaceValue("/z", 0, 1),)
)
BOX = BoxSpace(np.full(1, -1, np.float32), np.full(1, 1, np.float32))
CONTINUOUS = AgentDescription.of(AGENT, BOX, BOX, observation_names=["angle"])
DISCRETE = AgentDescription.of(AGENT, BOX, DiscreteSpace(3))
FEEDBACK = AgentFeedback(
    "cart", bytearray(4), bytes(4), 1.0, False, True, "too slow", 7, ("/hit",), {"/g": "9.81"}, True
)
MOMENT = Moment(4, Kind.STEP, 1, 3, bytes(4), bytes(4), bytes(4), 1.0, False, False, "", 7)
STATUS = StatusReply(True, "10.0.0.1:45454", "joined", "nerd", [], 5, 1, 0, 3.5, "0.1.0", 99)
BUSY = msgspec.structs.replace(
    STATUS,
    agents=[AgentStatus("cart", "playing", "train.py", 3, 40)],
    recording=RecordingStatus("out", 3, 2),
    upstreams=[
        UpstreamStatus(
            "a:1", "drive", weights_seq_no=4, batches=9, spool=SpoolStatus("full", 8, trouble="no")
        )
    ],
)

REQUESTS: list[HubRequest] = [
    *(Hello(VERSION, "python", 99), Attach(["cart"], True), Reset(7, 1)),
    *(
        Step([("cart", bytes(4))]),
        Again(bytes(4)),
        AnnotatedStep([("cart", bytes(4), Note(bytes(8), -0.7, 3))]),
    ),
    *(Detach(), Observe("cart"), MomentsSince("cart", 3, 0.5), Status()),
]
REPLIES: list[HubReply] = [
    *(Welcome(VERSION), Attached([CONTINUOUS], 30.0, 60.0)),
    *(Attached([DISCRETE, CONTINUOUS], 30.0, 60.0), Feedbacks([FEEDBACK])),
    *(Numbers(7, bytearray(8), bytes(4), bytes(16)), Detached(), Held(30.0, "weights are learned")),
    *(Observing(DISCRETE, 4), Moments([MOMENT], 2), Refusal("AgentTaken", "taken", "wait"), STATUS, BUSY),
]


def framed(message: HubRequest | HubReply) -> bytes:
    """As it travels."""
    frame = bytearray()
    encode(message, frame)
    return bytes(frame)
