"""The page on Ray clusters: what it tells RLlib is understood, and gives each EnvRunner a bridge of its own."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from ospbridge.envs.rllib import place_of
from ospbridge.errors import ConfigurationError
from tests.envs.test_rllib import Context

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "ray-cluster.md").read_text("utf-8")
(PROGRAM,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def said() -> tuple[list[str], dict[str, Any]]:
    """The hosts and the env_config of the program."""
    tree = ast.parse(PROGRAM)
    (hosts,) = [
        node.value for node in tree.body if isinstance(node, ast.Assign) and "HOSTS" in ast.unparse(node)
    ][:1]
    (config,) = [
        node.value for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "env_config"
    ]
    names = {"HOSTS": ast.literal_eval(hosts)}
    return names["HOSTS"], eval(compile(ast.Expression(config), "ray-cluster.md", "eval"), names)


def test_each_env_runner_has_the_bridge_of_its_number() -> None:
    hosts, config = said()
    places = [place_of(Context(number, len(hosts), **config)) for number in range(1, len(hosts) + 1)]
    assert [place.bridge for place in places] == [f"tls://{host}:45460" for host in hosts]
    assert "num_env_runners=len(HOSTS)" in PROGRAM


def test_one_env_runner_too_many_is_told_in_the_words_of_the_page() -> None:
    hosts, config = said()
    with pytest.raises(ConfigurationError) as told:
        place_of(Context(1, len(hosts) + 1, **config))
    (words,) = re.findall(r"`\.\.\. (env runners need .*?) \.\.\.`", PAGE)
    assert words in told.value.message
