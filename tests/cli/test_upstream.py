"""What the options of `ospbridge connect` say of an RLlink server."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from ospbridge.cli import main
from ospbridge.cli.server_options import LONGEST
from ospbridge.cli.upstream import LEARNING, upstream_from, upstream_options
from ospbridge.daemon.relay.settings import Upstream
from ospbridge.errors import ConfigurationError, UsageError
from ospbridge.rllink.framing import LARGEST_BODY, LARGEST_TAKEN


def said(*options: str) -> Upstream:
    found: list[Upstream | None] = []

    @click.command()
    @upstream_options
    def command(**given: Any) -> None:
        found.append(upstream_from(given))

    result = CliRunner().invoke(command, ["--rllink", "127.0.0.1:5555", *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    (upstream,) = found
    assert upstream is not None
    return upstream


def test_what_no_server_tells_can_be_said() -> None:
    nothing = said()
    assert (nothing.activation, nothing.head_activation) == (None, None)
    assert (nothing.normalize_actions, nothing.clip_actions) == (None, None)
    upstream = said(
        "--rllink-activation",
        "elu",
        "--rllink-head-activation",
        "silu",
        "--no-rllink-normalize-actions",
        "--rllink-clip-actions",
    )
    assert (upstream.activation, upstream.head_activation) == ("elu", "silu")
    assert (upstream.normalize_actions, upstream.clip_actions) == (False, True)


@pytest.mark.parametrize("option", ["--rllink-activation", "--rllink-head-activation"])
def test_an_activation_that_there_is_not_is_told_with_those_that_there_are(option: str) -> None:
    with pytest.raises(ConfigurationError, match="sin") as caught:
        said(option, "sin")
    assert "relu" in f"{caught.value.message} {caught.value.hint}"


def test_messages_of_a_server_are_as_large_as_is_said_and_no_larger_than_can_be_announced() -> None:
    assert said().largest_message == LARGEST_TAKEN
    assert said("--rllink-largest-message", "99999999").largest_message == LARGEST_BODY == LONGEST
    with pytest.raises(AssertionError, match="99,999,999 bytes that a message can have"):
        said("--rllink-largest-message", "1G")


def test_a_server_may_learn_for_longer_than_the_world_is_held() -> None:
    upstream = said("--rllink-timeout", "2")
    assert upstream.hold == 2.0
    assert upstream.limits.state == 2.0 + LEARNING


@pytest.mark.parametrize("mode", ["drive", "observe"])
def test_a_pickle_may_be_read_in_both_modes(mode: str) -> None:
    assert said("--rllink-mode", mode, "--rllink-read-pickle").read_pickle
    assert not said("--rllink-mode", mode).read_pickle


def test_a_pickle_is_not_asked_for_where_nothing_is() -> None:
    with pytest.raises(UsageError, match="--rllink-read-pickle means nothing with --rllink-unannotated"):
        said("--rllink-mode", "observe", "--rllink-unannotated", "--rllink-read-pickle")


def test_what_is_said_of_a_server_needs_one() -> None:
    for option in ("--insecure", "--rllink-greedy"):
        result = CliRunner().invoke(main, ["config", "show", option])
        assert result.exit_code == 2
        assert f"{option} was given, but no server" in result.stderr
