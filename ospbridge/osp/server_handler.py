"""One client's side of the server role: its registrations, its local ids, and what its handler waits for.

A handler is idle, delayed, or waits for an acknowledgement; where the profile says so it then takes whatever comes for
that acknowledgement (the datagram is lost, except RESET_COMMUNICATION). Facts: OSP 1.1, sections 4.1 to 4.7, and a NERD
server as observed, each named at its place.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from ospbridge.osp.codes import Code
from ospbridge.osp.messages import (
    DeregisterFromValueAck,
    EndAck,
    InitAck,
    Message,
    RegisterForValueAck,
    ResetCommunicationAck,
    ResetSimulationAck,
    StepCompleted,
    ValueContent,
)
from ospbridge.osp.server_commands import COMMANDS
from ospbridge.osp.wire import decode_text, encode_text

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from ospbridge.osp.profile import Profile
    from ospbridge.osp.server import AgentControl, ServerMachine
    from ospbridge.osp.world import Variable

__all__ = ["STALL", "EventIds", "Handler"]

STALL: Final = 0.05
"""How long a stalled completion is delayed: one wait of the real server's handler, begun anew by any datagram."""
_ASCII_ONLY: Final = bytes(byte if byte < 0x80 else 0 for byte in range(256))
_ACK_OF: Final[dict[int, frozenset[int]]] = {
    Code.NEXT_SIMULATION_STEP_COMPLETED: frozenset({Code.NEXT_SIMULATION_STEP_COMPLETED_ACK}),
    Code.RESET_SIMULATION_COMPLETED: frozenset(
        {Code.RESET_SIMULATION_COMPLETED, Code.RESET_SIMULATION_COMPLETED_ACK}
    ),
    Code.AGENT_OVERVIEW: frozenset({Code.AGENT_OVERVIEW_ACK}),
    Code.AGENT_INFO: frozenset({Code.AGENT_INFO_ACK}),
}
"""What acknowledges what. Of a reset both codes are taken, whichever way the server has them."""
_ACKS: Final = frozenset().union(*_ACK_OF.values(), {Code.VALUE_INFO_ACK})
"""Acknowledgements that nobody waits for: ignored, and not worth a word."""


class EventIds:
    """The events that one client registered for, under ids of its own, and those that are still to be told."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._occurred: list[int] = []
        self.last_id = 0
        """0 for a client that never registered for one."""

    def register(self, name: str) -> int:
        """The id of an event, the same each time."""
        if name not in self._ids:
            self.last_id += 1
            self._ids[name] = self.last_id
        return self._ids[name]

    def deregister(self, event_id: int) -> None:
        """Forget an event, and what it did since the last completion."""
        self._ids = {name: known for name, known in self._ids.items() if known != event_id}
        self._occurred = [known for known in self._occurred if known != event_id]

    def occur(self, events: Iterable[str]) -> None:
        """Keep events for the next completion, each once, in order of occurrence."""
        if self._ids:
            for event in events:
                event_id = self._ids.get(event)
                if event_id is not None and event_id not in self._occurred:
                    self._occurred.append(event_id)

    def take(self) -> list[int]:
        """What occurred since the last completion."""
        occurred, self._occurred = self._occurred, []
        return occurred


class Handler:
    """The server's end of one connection. Made by an INIT, gone after END or RESET_COMMUNICATION."""

    def __init__(self, machine: ServerMachine, handler_id: int, peer: Hashable) -> None:
        self.id = handler_id
        self.peer = peer
        self.machine = machine
        self.controlled: dict[int, AgentControl] = {}
        """By id, ascending: the order of completions."""
        self.last_heard = machine.clock.now
        self.deadline: float | None = None
        """Until when the handler sleeps: before its answer to INIT, or because a wake-up was lost."""
        self.knows_agents = False
        self.events = EventIds()
        self.values: list[Variable] = []
        self.value_ids: dict[str, int] = {}
        self.observed: list[int] = []
        self._greeted = False
        self._awaited: Code | None = None
        self._to_tell: list[Code] = []
        """What has happened and is not told yet, each once however often it happened."""
        self._completions: list[AgentControl] = []
        """Whose completions of the step that is being told are still to come."""

    @property
    def profile(self) -> Profile:
        """What kind of server this is."""
        return self.machine.profile

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
        self.deadline = now + self.profile.init_takes
        if self.deadline <= now:
            self.handle_timer()

    def evict(self, *, told: bool) -> None:
        """End this connection because somebody restarts the communication."""
        if told:
            self.reply(ResetCommunicationAck())
            if self.profile.stray_reset_ack:
                self.reply(ResetSimulationAck())
        self.leave()

    def end(self) -> None:
        """End this connection because its client asks for it."""
        if self.events.last_id and not self.profile.end_after_events_is_safe:
            self.machine.problem("END after an event registration: the real server dies of it")
        self.reply(EndAck())
        self.leave()

    def leave(self) -> None:
        """Release all agents and close; the barrier may then be complete without them."""
        for control in list(self.controlled.values()):
            self.release(control)
        self.machine.close(self)
        self.machine.settle()

    def register(self, control: AgentControl) -> None:
        """Control an agent that is free."""
        control.handler = self
        self.controlled = dict(sorted({**self.controlled, control.id: control}.items()))
        self.machine.controlled += 1

    def release(self, control: AgentControl) -> None:
        """Control an agent no more."""
        del self.controlled[control.id]
        control.handler = None
        self.machine.release(self, control)

    # --- datagrams and time ----------------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> None:
        """A datagram of the client."""
        self.last_heard = now
        if self.deadline is not None and self._greeted:
            self.deadline = now + STALL
        if self._awaited is not None and (not data or data[0] != Code.RESET_COMMUNICATION):
            self._take_as_ack(data)
            return
        command = COMMANDS.get(data[0]) if data else None
        if command is not None:
            command(self, data)
        elif not data or data[0] not in _ACKS:
            self.machine.problem("unknown command")

    def _take_as_ack(self, data: bytes) -> None:
        """Whatever comes is the awaited acknowledgement, and lost if it was something else."""
        assert self._awaited is not None
        if not data or data[0] not in _ACK_OF[self._awaited]:
            self.machine.problem("datagram eaten in place of an acknowledgement")
            self._completions.clear()
        self._awaited = None
        self._go_on()

    def handle_timer(self) -> None:
        """``deadline`` has come."""
        self.deadline = None
        if not self._greeted:
            self._greeted = True
            self.reply(InitAck(form=self.profile.init_form))
        self._go_on()

    # --- completions -----------------------------------------------------------------------------------------------

    def tell(self, what: Code, now: float) -> None:
        """A step or reset was made: tell the client, now or when its handler is free.

        A second step before the first was told is told once, with the newer outputs.
        """
        if what not in self._to_tell:
            self._to_tell.append(what)
        if self._awaited is not None or not self._greeted:
            return
        stall = self.machine.faults.stall
        if stall is None or not stall():
            self.deadline = None
            self._go_on()
        elif self.deadline is None:
            self.deadline = now + STALL

    def _go_on(self) -> None:
        """Send what is to be told until an acknowledgement is needed."""
        while self._awaited is None and self.deadline is None and (self._completions or self._to_tell):
            if self._completions:
                self._send_completion(self._completions.pop(0), first=False)
            elif self._to_tell[0] is not Code.NEXT_SIMULATION_STEP_COMPLETED:
                self.send(bytes((self._to_tell.pop(0),)))
                if self.profile.eats_awaited_acks:
                    self._awaited = Code.RESET_SIMULATION_COMPLETED
            else:
                del self._to_tell[0]
                self._completions = list(self.controlled.values())
                if self._completions:
                    self._send_completion(self._completions.pop(0), first=True)

    def _send_completion(self, control: AgentControl, *, first: bool) -> None:
        if self.profile.completions_one_by_one:
            self._awaited = Code.NEXT_SIMULATION_STEP_COMPLETED
        floats = control.agent.outputs.tobytes() + control.agent.infos.tobytes()
        events = self.events.take() if first else []
        observed = self.observed if first and self.profile.values_are_pushed else []
        if not events and not observed:
            self.send(control.head + floats)
            return
        ids = struct.pack(f"<{len(events)}i", *events)
        self.send(control.header(len(events), len(observed)) + floats + ids)
        for value_id in observed:
            self.send_value(value_id)

    def send_value(self, value_id: int) -> None:
        """Send what a variable holds; id -1 and nothing for one that this client does not know."""
        variable = self.known_value(value_id)
        if variable is None:
            self.reply(ValueContent(-1, ""))
        else:
            self.send(ValueContent.pack(value_id, self.text(variable.get())))

    # --- reading and writing ---------------------------------------------------------------------------------------

    def known_agent(self, agent_id: int) -> AgentControl | None:
        """The agent, if this client has asked for an overview before (OSP 1.1, section 4.3, footnote)."""
        controls = self.machine.controls
        return controls[agent_id - 1] if self.knows_agents and 1 <= agent_id <= len(controls) else None

    def known_value(self, value_id: int) -> Variable | None:
        """The variable that was listed for this client under that id."""
        return self.values[value_id - 1] if 1 <= value_id <= len(self.values) else None

    def await_ack(self, code: Code) -> None:
        """Wait for one acknowledgement behind a list, where this kind of server does."""
        if self.profile.eats_awaited_acks:
            self._awaited = code

    def string(self, data: bytes, offset: int) -> str:
        """The string at ``offset``; of a NERD server with a zero for each byte that is not ASCII."""
        raw = data[offset:].partition(b"\0")[0]
        return decode_text(raw.translate(_ASCII_ONLY) if self.profile.ascii_only else raw)

    def text(self, text: str) -> bytes:
        """``text`` as this kind of server writes it, with its zero."""
        try:
            raw = encode_text(text)
        except UnicodeEncodeError:
            # Half of a surrogate pair, of a world's own: no reason to say nothing at all.
            raw = text.encode("utf-8", "replace")
        return (raw.translate(_ASCII_ONLY) if self.profile.ascii_only else raw.partition(b"\0")[0]) + b"\0"

    def reply(self, message: Message) -> None:
        """Send a message without texts."""
        self.send(message.encode())

    def send(self, data: bytes) -> None:
        """Send a datagram. One that is too long for this kind of server loses its end without a word.

        Vectors lose whole values, and the counts stay; strings lose the end byte too, but not their zero.
        """
        end, limit = self.profile.end, self.profile.datagram_limit
        if limit is not None and len(data) >= limit - 1:
            head = _VECTORS_BEGIN.get(data[0])
            if head is None:
                data, end = data[: limit - 2] + b"\0", b""
            else:
                data = data[: head + (limit - 1 - head) // 4 * 4]
        self.machine.send(self.id, data + end)


_VECTORS_BEGIN: Final[dict[int, int]] = {
    message.CODE: message.HEAD.size
    for message in (StepCompleted, RegisterForValueAck, DeregisterFromValueAck)
}
