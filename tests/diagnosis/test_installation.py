from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from ospbridge.diagnosis.checks import State
from ospbridge.diagnosis.installation import Requirement, check_installation, parsed, release

LINES = [
    "click>=8.2",
    "gymnasium<2,>=1.2",
    'onnxruntime>=1.20; extra == "onnx"',
    'minari[hdf5]>=0.5.4; extra == "minari"',
    'pillow>=10.1; extra == "minari"',
    'pytest>=8.3; extra == "test"',
    'ospbridge[onnx]; extra == "all"',
]
ALL = {"click": "8.2.1", "gymnasium": "1.2.0", "onnxruntime": "1.20", "minari": "0.5.4", "pillow": "11.0"}


def states(**changed: str | None) -> dict[str, tuple[State, str]]:
    versions: dict[str, str | None] = {**ALL, **changed}
    return {check.subject: (check.state, check.detail) for check in check_installation(LINES, versions.get)}


@pytest.mark.parametrize(
    "older, newer", [("1.9", "1.10"), ("1", "1.0.1"), ("0.5.4", "1"), ("2.46.post1", "2.47")]
)
def test_releases_are_compared_by_their_numbers(older: str, newer: str) -> None:
    assert release(older) < release(newer)
    assert not Requirement("x", newer).fits(older)
    assert Requirement("x", older).fits(newer)
    assert not Requirement("x", "", newer).fits(newer)


def test_a_dependency_that_is_missing_or_too_old_or_too_new_is_a_problem_and_named() -> None:
    for version in (None, "1.1", "2.0"):
        state, detail = states(gymnasium=version)["installation"]
        assert state is State.PROBLEM
        assert f"gymnasium {version or 'missing'} (needs gymnasium>=1.2,<2)" in detail


def test_an_extra_that_is_not_installed_is_said_with_how_to_get_it() -> None:
    state, detail = states(onnxruntime=None)["extra [onnx]"]
    assert state is State.SKIPPED
    assert "pip install 'ospbridge[onnx]'" in detail


def test_an_extra_that_is_too_old_is_a_problem() -> None:
    state, detail = states(onnxruntime="1.19.2")["extra [onnx]"]
    assert state is State.PROBLEM
    assert "onnxruntime 1.19.2 (needs onnxruntime>=1.20)" in detail


def test_every_requirement_of_the_project_is_understood() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    for line in (*project["dependencies"], *extras):
        requirement = parsed(line)
        assert requirement is not None, line
        said = re.sub(r"\[[^\]]*\]", "", line)
        assert sorted(str(requirement)) == sorted(said), line


def test_this_installation_is_well() -> None:
    assert check_installation()[0].state is State.WELL
