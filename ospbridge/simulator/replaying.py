"""A recorded simulator: answers clients as a trace says that one did, without I/O.

It takes the place of ``ServerMachine`` under ``UdpServer``. The first client is given the first recorded conversation,
the next one the next, and after the last the first again. An INIT is answered where it has the form that the recorded
one had; one that comes again, before anything else did, by the same handler.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ospbridge.errors import RemoteProtocolError
from ospbridge.osp.codes import PROTOCOL_MAJOR, PROTOCOL_MINOR
from ospbridge.osp.messages import Init
from ospbridge.osp.server import NO_INIT, OTHER_INIT, SILENT, CloseHandler, OpenHandler, Send
from ospbridge.simulator.replay_handler import ReplayHandler, Told, What
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from ospbridge.osp.profile import InitForm
    from ospbridge.osp.server import Effect
    from ospbridge.simulator.replay_script import Script, Vote

__all__ = ["ReplayMachine", "Told", "What"]


class ReplayMachine:
    """One server that has only a past: ``scripts``, at least one.

    ``tell``: called with what is worth knowing. ``speed``: 1 keeps the recorded delays of answers, 2 halves them; None
    is as fast as possible. ``loop``: a reset behind the last recorded one goes on with the first. ``strict``: nothing
    is answered any more once a client did something else than the recorded one.
    """

    def __init__(
        self,
        scripts: Sequence[Script],
        *,
        tell: Callable[[Told], None],
        speed: float | None = None,
        loop: bool = False,
        strict: bool = False,
        max_handlers: int = 64,
    ) -> None:
        self.scripts = tuple(scripts)
        self.speed = speed
        self.loop = loop
        self.problems: Counter[str] = Counter()
        self.due = False
        """Nothing ever is: there is no world that thinks."""
        self.steps = 0
        """Steps given, to all clients."""
        self.resets = 0
        self.differences = 0
        self._tell = tell
        self._strict = strict
        self._max_handlers = max_handlers
        self._next = 0
        self._handlers: dict[int, ReplayHandler] = {}
        self._last_handler_id = 0
        self._effects: list[Effect] = []

    # --- what the driver calls -------------------------------------------------------------------------------------

    @property
    def timed(self) -> list[ReplayHandler]:
        """Handlers that wait for a point in time."""
        return [handler for handler in self._handlers.values() if handler.deadline is not None]

    def receive_main(self, data: bytes, peer: Hashable, now: float) -> None:
        """A datagram came to the main port. Whatever is not an INIT of a recorded form is ignored."""
        if self._silent:
            return
        try:
            init = Init.decode(data)
        except RemoteProtocolError:
            self.problem(NO_INIT)
            return
        again = next((each for each in self._handlers.values() if each.peer == peer and not each.heard), None)
        if again is not None and again.script.form is init.form:
            if again.deadline is None:
                again.greet(now)
            return
        script = (
            self._script(init.form) if (init.major, init.minor) == (PROTOCOL_MAJOR, PROTOCOL_MINOR) else None
        )
        if script is None:
            self.problem(OTHER_INIT)
        elif len(self._handlers) >= self._max_handlers and not self._make_room(now):
            self.problem("INIT beyond the limit of handlers")
        else:
            self._last_handler_id += 1
            handler = ReplayHandler(self, self._last_handler_id, peer, script)
            self._handlers[handler.id] = handler
            self._effects.append(OpenHandler(handler.id, peer))
            self.tell(Told(What.JOINED, script.number, 0.0, _extent(script)))
            handler.greet(now)

    def receive(self, handler_id: int, data: bytes, now: float) -> None:
        """A datagram came to a handler's socket, from its peer. Never raises for what is in it."""
        handler = self._handlers.get(handler_id)
        if handler is not None and not self._silent:
            handler.receive(data, now)

    def next_deadline(self) -> float | None:
        """When ``handle_timer`` wants to be called; None if only datagrams matter."""
        deadlines = (handler.deadline for handler in self._handlers.values())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def handle_timer(self, now: float) -> None:
        """Send what is due."""
        for handler in self.timed:
            handler.handle_timer(now)

    def take_effects(self) -> list[Effect]:
        """What the driver has to do now, in this order."""
        effects, self._effects = self._effects, []
        return effects

    # --- what handlers call ----------------------------------------------------------------------------------------

    def send(self, handler_id: int, data: bytes) -> None:
        """Queue a datagram."""
        if not self._silent:
            self._effects.append(Send(handler_id, data))

    def close(self, handler: ReplayHandler) -> None:
        """Forget a handler."""
        if self._handlers.pop(handler.id, None) is not None:
            self._effects.append(CloseHandler(handler.id))

    def problem(self, kind: str) -> None:
        """Count a datagram that was ignored."""
        self.problems[kind] += 1

    def count(self, last: Vote) -> None:
        """A step or reset was given."""
        if last.is_step:
            self.steps += 1
        else:
            self.resets += 1

    def tell(self, told: Told) -> None:
        """Pass on what is worth knowing."""
        if told.what in {What.DIFFERS, What.STANDS_STILL}:
            self.differences += 1
        self._tell(told)

    def _make_room(self, now: float) -> bool:
        """Close the handler that was silent for longest, if that is a minute: its client may have left without END."""
        silent = min(self._handlers.values(), key=lambda handler: handler.last_heard)
        if now - silent.last_heard < SILENT:
            return False
        silent.give_way()
        return True

    @property
    def _silent(self) -> bool:
        return self._strict and self.differences > 0

    def _script(self, form: InitForm) -> Script | None:
        """The next conversation that began with such an INIT."""
        for offset in range(len(self.scripts)):
            at = (self._next + offset) % len(self.scripts)
            if self.scripts[at].form is form:
                self._next = at + 1
                return self.scripts[at]
        return None


def _extent(script: Script) -> str:
    done = [vote for vote in script.votes if vote.complete]
    steps = sum(vote.is_step for vote in done)
    return f"a client joined; {pluralize(steps, 'step')} and {pluralize(len(done) - steps, 'reset')} are recorded"
