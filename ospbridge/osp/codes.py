"""The command and reply identifiers of OSP 1.1 (section 5), and the names of variables that both roles know."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

PROTOCOL_MAJOR: Final = 1
PROTOCOL_MINOR: Final = 1
DATAGRAM_END: Final = 120


class Code(IntEnum):
    """First byte of every datagram."""

    INIT_COMMUNICATION = 5
    INIT_COMMUNICATION_ACK = 6
    END_COMMUNICATION = 7
    END_COMMUNICATION_ACK = 8
    RESET_COMMUNICATION = 10
    RESET_COMMUNICATION_ACK = 11
    REGISTER_FOR_EVENT = 20
    REGISTER_FOR_EVENT_ACK = 21
    DEREGISTER_FROM_EVENT = 30
    DEREGISTER_FROM_EVENT_ACK = 31
    GET_VALUE_IDS = 40
    VALUE_IDS = 41
    VALUE_INFO_ACK = 42
    VALUE_INFO = 43
    GET_VALUE = 50
    VALUE = 51
    SET_VALUE = 52
    SET_VALUE_ACK = 53
    REGISTER_FOR_VALUE = 54
    REGISTER_FOR_VALUE_ACK = 55
    DEREGISTER_FROM_VALUE = 56
    DEREGISTER_FROM_VALUE_ACK = 57
    RESET_SIMULATION = 70
    RESET_SIMULATION_ACK = 71
    RESET_SIMULATION_COMPLETED = 75
    RESET_SIMULATION_COMPLETED_ACK = 76
    NEXT_SIMULATION_STEP = 80
    NEXT_SIMULATION_STEP_ACK = 81
    NEXT_SIMULATION_STEP_COMPLETED = 85
    NEXT_SIMULATION_STEP_COMPLETED_ACK = 86
    GET_AGENT_OVERVIEW = 90
    AGENT_OVERVIEW = 91
    AGENT_OVERVIEW_NEXT = 92
    AGENT_OVERVIEW_ACK = 93
    GET_AGENT_INFO = 95
    AGENT_INFO = 96
    AGENT_INFO_ACK = 97
    AGENT_INFO_NEXT = 98
    REGISTER_FOR_AGENT = 100
    REGISTER_FOR_AGENT_ACK = 101
    DEREGISTER_FROM_AGENT = 105
    DEREGISTER_FROM_AGENT_ACK = 106


# Variables that every server is expected to have, as a NERD server names them.
SIMULATION_TIME: Final = "/Simulation/SimulationTime"
TIME_STEP_SIZE: Final = "/Simulation/TimeStepSize"
ITERATIONS: Final = "/Simulation/IterationsPerStep"
SEED: Final = "/Simulation/Seed"
