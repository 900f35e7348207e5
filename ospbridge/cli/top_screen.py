"""What ``ospbridge top`` shows: each daemon's status, and what changed since the looks before."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ospbridge.cli.status import launched_told
from ospbridge.hub.status import STEP_BOUNDS
from ospbridge.observe.rates import SPANS, Window, quantile, sparkline
from ospbridge.text import LIST, pluralize, printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from rich.console import Console, ConsoleOptions, Group
    from rich.table import Table
    from rich.text import Text

    from ospbridge.hub.status import AgentStatus, StatusReply, UpstreamStatus

__all__ = ["Screen"]

SPARK: Final = 24
"""Returns in a row of bars."""
RECENT: Final = 10.0
"""Seconds that step times and datagrams are taken over."""
WIDTH: Final = 200
"""Columns where no terminal tells its own."""
WIDEST: Final = 10_000
"""Columns that no terminal has."""
_COLUMNS: Final = ("agent", "state", "driven by", "steps", "episodes", "return", "mean", "returns")
_SPARED: Final = tuple(
    ("returns", "mean", "episodes", "driven by", "return", "steps")[:count] for count in range(7)
)
"""Columns that are left out, more and more of them, where the terminal is narrow."""
STATES: Final = {"playing": "green", "waiting for reset": "yellow", "done": "cyan", "attached": "blue"}


@dataclass
class _Seen:
    """One hub: its latest status, and its counters over time."""

    status: StatusReply
    gone: str = ""
    """Why it does not answer."""
    steps: Window = field(default_factory=Window)
    times: Window = field(default_factory=lambda: Window(RECENT))
    datagrams: Window = field(default_factory=lambda: Window(RECENT))


class Screen:
    """``plain``: bars of ASCII, for terminals that have no others."""

    def __init__(self, *, plain: bool = False) -> None:
        self._plain = plain
        self._seen: dict[str, _Seen] = {}

    def look(self, hub: str, status: StatusReply, now: float) -> None:
        """A hub's answer."""
        seen = self._seen.setdefault(hub, _Seen(status))
        seen.status = status
        seen.gone = ""
        seen.steps.look(now, [status.steps])
        seen.times.look(now, status.step_times.counts)
        counts = status.datagrams
        sent, received = sum(counts.sent.values()), sum(counts.received.values())
        seen.datagrams.look(now, [sent, received, counts.retries])

    def lost(self, hub: str, why: str) -> None:
        """It does not answer; what was known of it stays."""
        if hub in self._seen:
            self._seen[hub].gone = why

    def text(self) -> str:
        """As plain lines."""
        from io import StringIO

        from rich.console import Console

        to = StringIO()
        Console(file=to, width=WIDTH, color_system=None, force_terminal=False).print(self.drawn())
        return "".join(f"{line.rstrip()}\n" for line in to.getvalue().splitlines())

    def drawn(self) -> Group:
        """For a terminal."""
        from rich.console import Group

        return Group(*(part for hub, seen in self._seen.items() for part in self._parts(hub, seen)))

    def _parts(self, hub: str, seen: _Seen) -> Iterator[Text | _Fitting]:
        from rich.text import Text

        status = seen.status
        head = Text()
        head.append(printable(status.simulator), "bold")
        if seen.gone:
            head.append(f"  {printable(seen.gone, LIST)}", "bold red")
        else:
            head.append(f"  {printable(status.connection, LIST)}", "green" if status.ready else "bold red")
            head.append(f" ({status.profile})" if status.profile else "")
        head.append(
            f"  up {_duration(status.uptime)}, pid {status.pid}, ospbridge {status.version}, {hub}", "dim"
        )
        yield head
        yield Text(f"  {self._steps(seen)}")
        yield Text(f"  {self._line(seen)}")
        if status.launched is not None:
            yield Text(f"  launched {printable(launched_told(status.launched), LIST)}")
        if status.recording is not None:
            recording = status.recording
            yield Text(
                f"  recording {printable(recording.directory, LIST)}: {pluralize(recording.recorded, 'episode')}, "
                f"{recording.dropped} dropped"
            )
        for upstream in status.upstreams:
            yield _upstream(upstream)
        if status.agents:
            yield _Fitting([self._agents(status.agents, without) for without in _SPARED])
        yield Text()

    def _steps(self, seen: _Seen) -> str:
        rates = [seen.steps.rate(span) for span in SPANS]
        told = " ".join("-" if rate is None else f"{rate:,.1f}" for rate in rates)
        gained = seen.times.gained(RECENT)
        median = worst = None
        if gained is not None:
            median, worst = (quantile(share, gained[1], STEP_BOUNDS) for share in (0.5, 0.99))
        return (
            f"steps/s {told} (1, 10, 60 s)   a step takes {_seconds(median)}, 99 % at most {_seconds(worst)}   "
            f"{pluralize(seen.status.steps, 'step', form=',')}, {pluralize(seen.status.resets, 'reset', form=',')}"
        )

    def _line(self, seen: _Seen) -> str:
        status = seen.status
        sent, received = (seen.datagrams.rate(RECENT, at) for at in (0, 1))
        told = "-" if sent is None or received is None else f"{sent:,.0f} out, {received:,.0f} in"
        reasons = ", ".join(f"{name} {count}" for name, count in status.rebuilds_by_reason.items())
        return (
            f"datagrams/s {told}   {status.datagrams.retries:,} asked again   {pluralize(status.rebuilds, 'rebuild')}"
            + f" ({reasons})" * bool(reasons)
            + f"   {status.clients} at the hub"
        )

    def _agents(self, agents: list[AgentStatus], without: Collection[str]) -> Table:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        shown = [title for title in _COLUMNS if title not in without]
        for title in shown:
            right = title in {"steps", "episodes", "return", "mean"}
            table.add_column(title, justify="right" if right else "left", overflow="ellipsis", no_wrap=True)
        for agent in agents:
            returns = agent.returns
            cells: dict[str, Text | str] = {
                "agent": Text(printable(agent.name)),
                "state": Text(agent.state, STATES.get(agent.state, "dim")),
                "driven by": Text(printable(agent.driver)),
                "steps": f"{agent.steps:,}",
                "episodes": f"{agent.episodes:,}",
                "return": f"{returns[-1]:.4g}" if returns else "",
                "mean": f"{sum(returns) / len(returns):.4g}" if returns else "",
                "returns": Text(sparkline(returns, SPARK, plain=self._plain)),
            }
            table.add_row(*(cells[title] for title in shown))
        return table


class _Fitting:
    """The first of some tables that the terminal has room for, else the last.

    Left alone, rich cuts all columns of a table alike, until no agent is known by its name.
    """

    def __init__(self, tables: list[Table]) -> None:
        self._tables = tables

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        from rich.measure import Measurement

        roomy = options.update(max_width=WIDEST)
        for table in self._tables:
            if Measurement.get(console, roomy, table).maximum <= options.max_width:
                yield table
                return
        yield self._tables[-1]


def _upstream(upstream: UpstreamStatus) -> Text:
    from rich.text import Text

    told = Text(f"  {upstream.mode} {upstream.address}  ")
    if upstream.trouble:
        told.append(printable(upstream.trouble, LIST), "bold red")
    else:
        told.append("connected", "green")
        told.append(f" ({upstream.dialect})")
    spool = upstream.spool
    if spool is None:
        weights = "none yet" if upstream.weights_seq_no is None else f"{upstream.weights_seq_no}"
        told.append(
            f"  weights {weights}, "
            f"{pluralize(upstream.batches, 'batch', 'batches', form=',')} of "
            f"{pluralize(upstream.steps, 'step', form=',')} learned"
        )
    else:
        waiting = spool.entries + spool.unwritten
        told.append(
            f"  {pluralize(upstream.delivered, 'step', form=',')} delivered, "
            f"{pluralize(waiting, 'episode', form=',')} {'waits' if waiting == 1 else 'wait'} "
            f"({pluralize(spool.bytes, 'byte', form=',')}), {spool.dropped:,} dropped"
        )
    if upstream.discarded:
        told.append(f", {pluralize(upstream.discarded, 'step', form=',')} discarded", "yellow")
    return told


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    if value < 1e-3:
        return f"{value * 1e6:.0f} us"
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def _duration(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}"
