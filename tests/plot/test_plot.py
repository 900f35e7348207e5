"""Pictures of recordings and traces: what is drawn, that the same data give the same bytes, and what is refused."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ospbridge.errors import ConfigurationError, OspBridgeError, UsageError
from ospbridge.plot.choosing import plot
from ospbridge.plot.episodes import EpisodeFigures, draw_episodes, figures_of, moving_median
from ospbridge.plot.latencies import draw_latencies, step_times
from ospbridge.plot.looks import Looks, drawing, write
from ospbridge.plot.signals import MOST_PANELS, choose_signals, signals_of
from ospbridge.record.collecting import EpisodeCollector, at_once
from ospbridge.record.reading import read_recording, recorded_files
from ospbridge.record.writing import EpisodeWriter
from tests.record.episodes import feedback, play, whose
from tests.simulator.traced import Traced, vote

pytest.importorskip("matplotlib", reason="needs the extra: pip install 'ospbridge[plot]'")

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RECORDING = Path(__file__).parents[1] / "osp" / "traces" / "o01_ode_arena.jsonl"


def record(directory: Path, *lengths: int, agent: str = "cart", actions: int = 0, ended: bool = True) -> Path:
    """Episodes of these lengths."""
    collector = EpisodeCollector(whose(agent, actions=actions), at_once(EpisodeWriter(directory).write))
    for length in lengths:
        if actions:
            collector.begin(feedback(0.0))
            for step in range(1, length + 1):
                inputs = np.full(actions, step / 10, np.float32)
                collector.step(inputs, feedback(float(step), terminated=step == length))
        else:
            play(collector, length, **({"terminated": True} if ended else {}))
    collector.close()
    return directory


def written(tmp_path: Path, *lines: Traced) -> Path:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b"".join(record.encode() for line in lines for record in line.records))
    return path


def drawn(figures: Sequence[EpisodeFigures], title: str = "", window: int = 2) -> Figure:
    with drawing(Looks()):
        return draw_episodes(figures, title, Looks(), window=window)


def texts(figure: Figure) -> list[str]:
    """All that is written on it, but for the numbers of axes."""
    found = [figure.get_suptitle()]
    found += [text.get_text() for box in figure.legends for text in box.get_texts()]
    for axes in figure.axes:
        found += [axes.get_title("left"), axes.get_xlabel(), axes.get_ylabel()]
        if (box := axes.get_legend()) is not None:
            found += [text.get_text() for text in box.get_texts()]
    return [text for text in found if text]


# --- what is drawn --------------------------------------------------------------------------------------------------


def test_returns_and_lengths_are_those_of_the_episodes(tmp_path: Path) -> None:
    record(tmp_path, 4, 8, 2)
    figures = figures_of(read_recording(tmp_path))
    assert [(each.agent, each.steps, each.whole) for each in figures] == [
        ("cart", n, True) for n in (4, 8, 2)
    ]
    assert [each.total for each in figures] == [2.5, 9.0, 0.75]
    figure = drawn(figures, "title")
    upper, lower = figure.axes
    assert [np.asarray(line.get_ydata()).tolist() for line in upper.lines] == [[2.5, 5.75, 4.875]]
    assert [np.asarray(line.get_ydata()).tolist() for line in lower.lines] == [[4.0, 6.0, 5.0]]
    upper_texts = ["title", "return (sum of rewards)", "episode", "median of the latest 2"]
    assert texts(figure) == [*upper_texts, "episode", "length (steps)"]


def test_parts_of_an_episode_that_filled_several_files_are_one(tmp_path: Path) -> None:
    one, other = read_recording(record(tmp_path, 4, 8))
    parts = [replace(one, id="long", how="continued"), other, replace(other, id="long", how="terminated")]
    assert figures_of(parts) == [EpisodeFigures("cart", 12, 11.5, True), EpisodeFigures("cart", 8, 9.0, True)]
    assert not figures_of(parts[:2])[0].whole


def test_an_episode_that_was_abandoned_is_hollow_and_said_to_be(tmp_path: Path) -> None:
    record(tmp_path, 4, 8, ended=False)
    figures = figures_of(read_recording(tmp_path))
    assert [each.whole for each in figures] == [False, False]
    assert "abandoned or lost" in texts(drawn(figures, window=1))


def test_a_moving_median_is_of_what_came_before() -> None:
    values = np.array([1.0, 9.0, 5.0, np.nan, 3.0])
    assert moving_median(values, 3).tolist() == [1.0, 5.0, 5.0, 7.0, 4.0]
    assert np.isnan(moving_median(np.array([np.nan, 1.0]), 1)).tolist() == [True, False]


def test_signals_are_all_that_an_episode_has_by_name(tmp_path: Path) -> None:
    (episode,) = read_recording(record(tmp_path, 5, actions=2))
    signals = signals_of(episode)
    assert list(signals) == [
        *["reward", "action/0", "action/1", "observation/0", "observation/1", "observation/2"],
        *["/episode/reward", "/Body/X"],
    ]
    assert signals["action/1"][0].tolist() == [1, 2, 3, 4, 5]
    assert signals["observation/1"][0].tolist() == [0, 1, 2, 3, 4, 5]
    assert signals["observation/1"][1].tolist() == episode.observations[:, 1].tolist()
    assert signals["/Body/X"][1].tolist() == episode.infos[:, 1].tolist()


def test_signals_are_chosen_by_globs_in_their_order() -> None:
    names = ["reward", "action/0", "observation/0", "observation/1", "/Body/X"]
    assert choose_signals(names, ["obs*", "reward", "*/0"]) == (
        ["observation/0", "observation/1", "reward", "action/0"],
        0,
    )
    assert choose_signals([f"observation/{at}" for at in range(40)], []) == (
        [f"observation/{at}" for at in range(MOST_PANELS)],
        40 - MOST_PANELS,
    )
    with pytest.raises(UsageError, match="no signal of the episode is called 'height'") as caught:
        choose_signals(names, ["height"])
    assert "reward, action/0" in caught.value.hint


def test_times_of_steps_are_those_of_the_trace(tmp_path: Path) -> None:
    times = step_times(Traced().step(0.5, 1.0).sent(vote(0.5)).step(0.5, 2.0).records)
    assert times.took.tolist() == pytest.approx([20.0, 20.0])
    assert times.begun.tolist() == pytest.approx([0.02, 0.07])
    assert times.lost.tolist() == pytest.approx([0.06])
    with drawing(Looks()):
        figure = draw_latencies(times, "", Looks())
    assert {"never completed", "median: 20 ms", "95 %: 20 ms", "time since the trace began (s)"} <= set(
        texts(figure)
    )


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "signals, ending, dark",
    [((), "png", False), (("*",), "svg", True), (None, "svg", False)],
    ids=["episodes", "signals", "a trace"],
)
def test_the_same_data_make_the_same_file(
    tmp_path: Path, signals: Sequence[str] | None, ending: str, dark: bool
) -> None:
    source = RECORDING if signals is None else record(tmp_path / "runs", 4, 8, 2)
    pictures = []
    for name in ("one", "other"):
        picture = tmp_path / f"{name}.{ending}"
        plot(source, picture, looks=Looks(dark=dark), signals=signals or ())
        pictures.append(picture.read_bytes())
    assert pictures[0] == pictures[1]
    if ending == "svg":
        assert ET.fromstring(pictures[0]).tag.endswith("svg")
        assert b"dc:date" not in pictures[0]
    else:
        assert pictures[0].startswith(b"\x89PNG")


def test_a_picture_has_the_size_that_was_asked_for(tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    plot(record(tmp_path / "runs", 4), picture, looks=Looks(size=(640, 401)))
    head = picture.read_bytes()[16:24]
    assert (int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")) == (640, 401)
    plot(tmp_path / "runs", tmp_path / "picture.svg", looks=Looks(size=(960, 480)))
    root = ET.fromstring((tmp_path / "picture.svg").read_bytes())
    assert (root.get("width"), root.get("height")) == ("720pt", "360pt")


def test_neither_pyplot_nor_a_display_is_asked_for(tmp_path: Path) -> None:
    runs = record(tmp_path / "runs", 4)
    program = (
        "import sys; from pathlib import Path; from ospbridge.plot.choosing import plot\n"
        "assert 'matplotlib' not in sys.modules\n"
        f"plot(Path({str(runs)!r}), Path({str(tmp_path / 'p.png')!r}))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_names_may_hold_what_matplotlib_or_a_terminal_would_obey(tmp_path: Path) -> None:
    figures = [
        EpisodeFigures(name, 3, 1.0, True) for name in ("$x^{$", "\x1b[2J\n", "_hidden", "漢字", "a" * 300)
    ]
    with drawing(Looks()):
        figure = draw_episodes(figures * 2, "$\\frac$", Looks(), window=2)
        write(figure, tmp_path / "picture.png")
    assert r"\x1b[2J\n: median of the latest 2" in texts(figure)
    assert " _hidden: median of the latest 2" in texts(figure)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_numbers_that_no_axis_has_a_place_for_are_left_out(tmp_path: Path, value: float) -> None:
    figures = [EpisodeFigures("cart", 3, total, True) for total in (value, value, 1.0)]
    with drawing(Looks()):
        write(draw_episodes(figures, "", Looks(), window=2), tmp_path / "picture.png")
        write(draw_episodes(figures[:1], "", Looks(), window=2), tmp_path / "picture.svg")


def test_agents_are_chosen_by_globs(tmp_path: Path) -> None:
    runs = record(tmp_path / "runs", 2, 2, agent="robot1")
    record(runs, 3, agent="robot2")
    assert plot(runs, tmp_path / "p.svg", agents=["*1"]) == "2 episodes of agent robot1, 4 steps"
    assert plot(runs, tmp_path / "p.svg") == "3 episodes of 2 agents, 7 steps"
    assert plot(runs, tmp_path / "p.svg", agents=["*1"], signals=["reward"]).endswith("of agent robot1")
    for signals in ([], ["reward"]):
        with pytest.raises(UsageError, match="of agents that fit rob1") as caught:
            plot(runs, tmp_path / "p.svg", agents=["rob1"], signals=signals)
        assert caught.value.hint == "there are episodes of robot1, robot2"


# --- what it is, and what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, options, error, message",
    [
        ("empty", {}, UsageError, "there is no episode to draw in"),
        ("runs", {"agents": ["dog"]}, UsageError, "of agents that fit dog"),
        ("runs", {"signals": ["dog"]}, UsageError, "no signal of the episode is called 'dog'"),
        ("one.npz", {"agents": ["cart"]}, UsageError, "is one episode, with no agents to choose from"),
        ("trace", {"signals": ["reward"]}, UsageError, "is a trace, which has no signals"),
        ("trace", {}, UsageError, "no step of the trace was completed"),
        ("damaged.npz", {}, ConfigurationError, "is no recorded episode, or damaged"),
        ("damaged.jsonl", {}, ConfigurationError, "expected a record of a trace"),
    ],
)
def test_what_cannot_be_drawn_is_refused_and_no_picture_is_left(
    tmp_path: Path, name: str, options: dict[str, list[str]], error: type[OspBridgeError], message: str
) -> None:
    (tmp_path / "empty").mkdir()
    (one,) = recorded_files(record(tmp_path / "runs", 2))
    (tmp_path / "one.npz").write_bytes(one.read_bytes())
    written(tmp_path, Traced()).rename(tmp_path / "trace")
    (tmp_path / "damaged.npz").write_bytes(b"PK\3\4nothing")
    (tmp_path / "damaged.jsonl").write_bytes(b'{"t": "late"}\n')
    with pytest.raises(error, match=message) as caught:
        plot(tmp_path / name, tmp_path / "picture.svg", **options)  # type: ignore[arg-type]
    assert caught.value.hint
    assert not (tmp_path / "picture.svg").exists()
    absent = tmp_path / "absent" / "p.png"
    with pytest.raises(ConfigurationError, match=f"cannot write a picture to {absent}: No such file"):
        plot(tmp_path / "runs", absent)
