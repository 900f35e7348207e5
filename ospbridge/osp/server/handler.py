"""One client's side of the server role: its registrations, its local ids, and what its handler waits for.

A handler is idle, stalled, or waits for an acknowledgement; where the profile says so it then takes whatever comes for
that acknowledgement (the datagram is lost, except RESET_COMMUNICATION). The commands themselves are in
``commands``. Facts: OSP 1.1, sections 4.1 to 4.7, and a NERD server as observed, each named at its place.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from ospbridge.osp.codes import PROTOCOL_MAJOR, PROTOCOL_MINOR, Code
from ospbridge.osp.profile import InitForm
from ospbridge.osp.server.agent import COMPLETED_HEAD, AgentControl
from ospbridge.osp.server.commands import COMMANDS
from ospbridge.osp.text import decode_text, encode_text

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ospbridge.osp.server.machine import ServerMachine
    from ospbridge.osp.world import Variable

__all__ = ["STALL", "Handler", "Vote"]

STALL: Final = 0.05
"""How long a stalled completion is delayed: one wait of the real server's handler, begun anew by any datagram."""

_TWO_INTS: Final = struct.Struct("<Bii")
_ONE_INT: Final = struct.Struct("<Bi")


class Handler:
    """The server's end of one connection. Made by an INIT, gone after END or RESET_COMMUNICATION."""

    def __init__(self, machine: ServerMachine, handler_id: int, peer: Hashable) -> None:
        self.id = handler_id
        self.peer = peer
        self.controlled: dict[int, AgentControl] = {}
        """By id, ascending: the order of completions."""
        self.deadline = 0.0
        """Meaningful while this handler is among ``machine.timed``."""
        self.last_heard = machine.clock.now
        self.machine = machine
        self.profile = machine.profile
        self._end = self.profile.end
        self._awaits_greeting = False
        self._stalled = False
        self._awaited: Code | None = None
        self._reset_to_tell = False
        self._step_to_tell = False
        self._completions: list[AgentControl] = []
        self.knows_agents = False
        self.event_ids: dict[str, int] = {}
        self.last_event_id = 0
        self.listened = False
        self._occurred: list[int] = []
        self.values: list[Variable] = []
        self.value_ids: dict[str, int] = {}
        self.observed: list[int] = []

    @property
    def client(self) -> str:
        """The peer's address, as the ledger has it."""
        peer = self.peer
        if isinstance(peer, tuple) and len(peer) >= 2:
            return f"[{peer[0]}]:{peer[1]}" if ":" in str(peer[0]) else f"{peer[0]}:{peer[1]}"
        return str(peer)

    @property
    def waits_for_ack(self) -> bool:
        """Whether the next datagram will be taken for an acknowledgement."""
        return self._awaited is not None

    # --- beginning and end -----------------------------------------------------------------------------------------

    def greet(self, now: float) -> None:
        """Answer the INIT, as late as this kind of server does."""
        if self.profile.init_takes > 0.0:
            self._awaits_greeting = True
            self._wait_until(now + self.profile.init_takes)
        else:
            self._send_greeting()

    def _send_greeting(self) -> None:
        if self.profile.init_form is InitForm.BYTES:
            data = bytes((Code.INIT_COMMUNICATION_ACK, PROTOCOL_MAJOR, PROTOCOL_MINOR))
        else:
            data = _TWO_INTS.pack(Code.INIT_COMMUNICATION_ACK, PROTOCOL_MAJOR, PROTOCOL_MINOR)
        self.send(data)

    def evict(self, *, told: bool) -> None:
        """End this connection because somebody restarts the communication."""
        if told:
            self.send(bytes((Code.RESET_COMMUNICATION_ACK,)))
            if self.profile.stray_reset_ack:
                self.send(bytes((Code.RESET_SIMULATION_ACK,)))
        self.leave()

    def leave(self) -> None:
        """Release all agents and close; the barrier may then be complete without them."""
        for control in list(self.controlled.values()):
            self.release(control)
        for event in list(self.event_ids):
            self.forget_event(event)
        self.machine.close(self)
        self.machine.settle()

    def release(self, control: AgentControl) -> None:
        """Control an agent no more."""
        del self.controlled[control.id]
        control.handler = None
        self.machine.withdraw(self, control)

    # --- datagrams -------------------------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> None:
        """A datagram of the client."""
        self.last_heard = now
        if self._awaited is not None and (not data or data[0] != Code.RESET_COMMUNICATION):
            self._take_as_ack(data, now)
            return
        if self._stalled:
            self._wait_until(now + STALL)
        command = COMMANDS.get(data[0]) if data else None
        if command is not None:
            command(self, data)
        elif not data or data[0] not in _ACKS:
            self.problem("unknown command")

    def _take_as_ack(self, data: bytes, now: float) -> None:
        """Whatever comes is the awaited acknowledgement, and lost if it was something else."""
        awaited, self._awaited = self._awaited, None
        if not data or data[0] not in _ANSWERS[awaited]:
            self.problem("datagram eaten in place of an acknowledgement")
            self._completions.clear()
        self._go_on(now)

    def handle_timer(self, now: float) -> None:
        """The time came that this handler waited for."""
        self.machine.timed.discard(self)
        if self._awaits_greeting:
            self._awaits_greeting = False
            self._send_greeting()
        self._stalled = False
        self._go_on(now)

    def _wait_until(self, deadline: float) -> None:
        self.deadline = deadline
        self.machine.timed.add(self)

    # --- completions -----------------------------------------------------------------------------------------------

    def reset_completed(self, now: float) -> None:
        """The world was reset: tell the client, now or when its handler is free."""
        self._reset_to_tell = True
        self._begin(now)

    def step_completed(self, now: float) -> None:
        """The world made a step: tell the client, now or when its handler is free.

        A second step before the first was told is told once, with the newer outputs.
        """
        self._step_to_tell = True
        self._begin(now)

    def _begin(self, now: float) -> None:
        if self._awaited is not None or self._stalled or self._awaits_greeting:
            return
        stall = self.machine.stall
        if stall is not None and stall():
            self._stalled = True
            self._wait_until(now + STALL)
            return
        self._go_on(now)

    def _go_on(self, now: float) -> None:
        """Send what is to be told until an acknowledgement is needed."""
        one_by_one = self.profile.completions_one_by_one
        while self._awaited is None:
            if self._completions:
                self._send_completion(self._completions.pop(0), first=False)
                if one_by_one:
                    self._awaited = Code.NEXT_SIMULATION_STEP_COMPLETED
            elif self._reset_to_tell:
                self._reset_to_tell = False
                self.send(bytes((self.profile.reset_completed,)))
                if self.profile.eats_awaited_acks:
                    self._awaited = Code.RESET_SIMULATION_COMPLETED
            elif self._step_to_tell:
                self._step_to_tell = False
                controls = list(self.controlled.values())
                if not controls:
                    return
                self._completions = controls[1:]
                self._send_completion(controls[0], first=True)
                if one_by_one:
                    self._awaited = Code.NEXT_SIMULATION_STEP_COMPLETED
            else:
                return

    def _send_completion(self, control: AgentControl, *, first: bool) -> None:
        agent = control.agent
        floats = agent.outputs.tobytes() + agent.infos.tobytes()
        if not first or not (self._occurred or self.observed):
            data = control.head + floats
            if self.profile.datagram_limit is None:
                self.machine.send(self.id, data + self._end)
            else:
                self.send_vector(data, COMPLETED_HEAD)
            return
        events, self._occurred = self._occurred, []
        observed = self.observed if self.profile.values_are_pushed else []
        data = control.header(len(events), len(observed)) + floats + struct.pack(f"<{len(events)}i", *events)
        self.send_vector(data, COMPLETED_HEAD)
        for value_id in observed:
            self.send_value(value_id)

    def note_event(self, event: str) -> None:
        """Keep an event for the next completion, once."""
        event_id = self.event_ids.get(event)
        if event_id is not None and event_id not in self._occurred:
            self._occurred.append(event_id)

    def forget_event(self, event: str) -> None:
        """Listen for an event no more; what it did since the last completion is not told either."""
        event_id = self.event_ids.pop(event)
        self.machine.listening -= 1
        if event_id in self._occurred:
            self._occurred.remove(event_id)

    def send_value(self, value_id: int) -> None:
        """Send what a variable holds; id -1 and nothing for one that this client does not know."""
        variable = self.known_value(value_id)
        if variable is None:
            self.send(_ONE_INT.pack(Code.VALUE, -1) + b"\0")
        else:
            self.send_text(_ONE_INT.pack(Code.VALUE, value_id) + self.text(variable.get()))

    # --- reading and writing ---------------------------------------------------------------------------------------

    def known_agent(self, agent_id: int) -> AgentControl | None:
        """The agent, if this client has asked for an overview before (OSP 1.1, section 4.3, footnote)."""
        controls = self.machine.controls
        return controls[agent_id - 1] if self.knows_agents and 1 <= agent_id <= len(controls) else None

    def known_value(self, value_id: int) -> Variable | None:
        return self.values[value_id - 1] if 1 <= value_id <= len(self.values) else None

    def await_ack(self, code: Code) -> None:
        if self.profile.lists_want_ack:
            self._awaited = code

    def string(self, data: bytes, offset: int) -> str:
        raw = data[offset:].partition(b"\0")[0]
        return decode_text(_ascii(raw) if self.profile.ascii_only else raw)

    def text(self, text: str) -> bytes:
        text = text.partition("\0")[0]
        try:
            raw = encode_text(text)
        except UnicodeEncodeError:
            # Half of a surrogate pair, of a world's own: no reason to say nothing at all.
            raw = text.encode("utf-8", "replace")
        return (_ascii(raw) if self.profile.ascii_only else raw) + b"\0"

    def send(self, data: bytes) -> None:
        self.machine.send(self.id, data + self._end)

    def send_text(self, data: bytes) -> None:
        """Send what ends with a string; one that is too long loses its end, and the end byte, but not its zero."""
        limit = self.profile.datagram_limit
        if limit is None or len(data) < limit - 1:
            self.machine.send(self.id, data + self._end)
        else:
            self.machine.send(self.id, data[: limit - 2] + b"\0")

    def send_vector(self, data: bytes, head: int) -> None:
        """Send what ends with 4-byte values; too many are dropped without a word, the counts stay."""
        limit = self.profile.datagram_limit
        if limit is not None and len(data) >= limit - 1:
            data = data[: head + (limit - 1 - head) // 4 * 4]
        self.machine.send(self.id, data + self._end)

    def problem(self, kind: str) -> None:
        self.machine.problem(kind)


Vote = tuple[Handler, AgentControl]
"""Who asked for a step, and for which agent."""


def _ascii(raw: bytes) -> bytes:
    """``raw`` up to the first byte that is not ASCII."""
    for at, byte in enumerate(raw):
        if byte >= 0x80:
            return raw[:at]
    return raw


_ANSWERS: Final[dict[Code | None, frozenset[int]]] = {
    Code.NEXT_SIMULATION_STEP_COMPLETED: frozenset({Code.NEXT_SIMULATION_STEP_COMPLETED_ACK}),
    Code.RESET_SIMULATION_COMPLETED: frozenset(
        {Code.RESET_SIMULATION_COMPLETED, Code.RESET_SIMULATION_COMPLETED_ACK}
    ),
    Code.AGENT_OVERVIEW: frozenset({Code.AGENT_OVERVIEW_ACK}),
    Code.AGENT_INFO: frozenset({Code.AGENT_INFO_ACK}),
}
"""What acknowledges what. Of a reset both codes are taken, whichever way the server has them."""

_ACKS: Final = frozenset().union(*_ANSWERS.values(), {Code.VALUE_INFO_ACK})
"""Acknowledgements that nobody waits for: ignored, and not worth a word."""
