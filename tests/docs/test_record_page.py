"""The page on recording names all that stands in a file."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import orjson
import pytest

from ospbridge.record.collecting import EpisodeCollector, at_once
from ospbridge.record.episode import RecordedEpisode
from ospbridge.record.writing import EpisodeWriter
from tests.record.episodes import feedback, whose

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "record.md").read_text()
ROWS = dict(re.findall(r"^\| (`[^|]*`) \| (.*) \|$", PAGE.partition("For N steps:")[2], re.MULTILINE))
ARRAYS = {name for names in ROWS for name in re.findall(r"`(\w+)`", names)}


@pytest.mark.parametrize("actions", [0, 2], ids=["discrete", "box"])
def test_its_arrays_are_those_of_a_file_and_its_keys_those_of_about(tmp_path: Path, actions: int) -> None:
    collector = EpisodeCollector(whose(actions=actions), at_once(EpisodeWriter(tmp_path).write))
    collector.begin(feedback(0.0), weights_seq_no=3)
    drawn_from = np.zeros(2 * actions or 2, np.float32)
    action = np.zeros(actions, np.float32) if actions else 1
    drawn = 2 * np.ones(actions, np.float32) if actions else None
    collector.step(action, feedback(1.0, terminated=True), logp=-0.5, dist_inputs=drawn_from, drawn=drawn)
    (file,) = tmp_path.glob("*.npz")
    with np.load(file, allow_pickle=False) as archive:
        assert set(archive.files) == ARRAYS - (
            {"action_low", "action_high", "drawn_actions"} if not actions else set()
        )
        about = orjson.loads(archive["about"].tobytes())
    assert set(about) == set(re.findall(r"`(\w+)`", ROWS["`about`"])) - {"continued"}


def test_the_program_that_makes_a_file_for_rllib_names_what_an_episode_has() -> None:
    (program,) = re.findall(r"<!-- program: parquet -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    compile(program, "record.md", "exec")
    named = set(re.findall(r"episode\.(\w+)", program)) - {"SingleAgentEpisode"}
    assert named == {"observations", "actions", "rewards", "terminated", "truncated"}
    assert named <= {field.name for field in fields(RecordedEpisode)}
