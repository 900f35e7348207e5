"""The page on policy files lists what there is, and its program acts."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

from ospbridge.policy.acting import Policy
from ospbridge.policy.activations import ACTIVATIONS
from ospbridge.policy.onnx_model import LARGEST
from ospbridge.simulator.hosting import world_of
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.task.loading import load
from tests.policy.weights import module_weights

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "policy-files.md").read_text()
PROGRAMS = dict(re.findall(r"<!-- program: (\w+) -->\n```python\n(.*?)```", PAGE, re.DOTALL))


@pytest.mark.loopback
def test_its_program_acts_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("policy.npz", **module_weights(4, outputs=2))  # type: ignore[arg-type]  # no options are meant
    with UdpSimulator(world_of(load("cartpole")), port=0) as simulator:
        program = PROGRAMS["act"].replace("127.0.0.1:45454", str(simulator.address))
        exec(compile(program, "policy-files.md", "exec"), {})
    word, steps = capsys.readouterr().out.split()
    assert word == "return"
    assert 1.0 <= float(steps) <= 500.0


def test_the_program_that_makes_the_file_is_python() -> None:
    assert PROGRAMS.keys() == {"npz", "act"}
    compile(PROGRAMS["npz"], "policy-files.md", "exec")


def test_its_options_are_those_of_the_code_with_the_same_defaults() -> None:
    table = PAGE.partition("| option | RLlib's setting | default |")[2].partition("\n\n")[0]
    told = {
        option: (meaning, default)
        for option, meaning, default in re.findall(r"\| `(\w+)` \| (.*?) \| (\S+) \|", table)
    }
    parameters = inspect.signature(Policy).parameters
    words = {True: "on", False: "off"}
    for option, (_, default) in told.items():
        said = parameters[option].default
        assert default == (words[said] if isinstance(said, bool) else f"`{said}`")
    assert told.keys() == {"activation", "head_activation", "normalize_actions", "clip_actions"}
    named = re.findall(r"`(\w+)`", told["activation"][0])
    assert set(named) - {"fcnet_activation"} == set(ACTIVATIONS)


def test_its_limit_is_that_of_the_code() -> None:
    assert f"more than {LARGEST // 2**20} MiB" in PAGE
