"""The page on the service: its commands are there, its files are ones, and what it says of the units they say too.

That all of it works with a real systemd is shown by ``tests/peers/systemd_service.py``.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from ospbridge.cli import main
from ospbridge.cli.connect import connect
from ospbridge.cli.keys import sections
from ospbridge.config.reading import read
from ospbridge.service.shipped import shipped_text

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "service.md").read_text()
UNIT = shipped_text("ospbridge.service")
COMMANDS = re.findall(r"^(?:sudo )?(?:/opt/ospbridge/bin/)?ospbridge (.*)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_is_one(line: str) -> None:
    command: click.Command = main
    words = shlex.split(line)
    context = click.Context(main)
    while isinstance(command, click.Group):
        found = command.get_command(context, words.pop(0))
        assert found is not None
        command = found
    # Parsed, and not run.
    command.make_context(line, words)


@pytest.mark.parametrize("text", re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL))
def test_every_configuration_is_one(text: str) -> None:
    read(text, list(sections(connect).values()), origin="page", directory=Path("/etc/ospbridge"))


def test_the_drop_in_that_filters_addresses_is_the_shipped_one() -> None:
    (told,) = re.findall(r"<!-- drop-in -->\n```ini\n(.*?)```", PAGE, re.DOTALL)
    assert shipped_text("examples/ip-filter.conf").endswith(told)


def test_the_credential_is_the_one_that_the_unit_shows() -> None:
    (line,) = re.findall(r"^LoadCredential=.*$", PAGE, re.MULTILINE)
    assert f"#{line}\n" in UNIT


def test_limits_and_exit_codes_are_those_of_the_unit() -> None:
    settings = dict(line.partition("=")[::2] for line in UNIT.splitlines() if not line.startswith("#"))
    assert f"started again after {settings['RestartSec'].replace('s', ' s')};" in PAGE
    assert f"hangs for {settings['WatchdogSec'].replace('s', ' s')} |" in PAGE
    assert f"kills it after {settings['TimeoutStopSec'].replace('s', ' s')} |" in PAGE
    assert f"ends {settings['StartLimitBurst']} times within an hour" in PAGE
    assert settings["StartLimitIntervalSec"] == "1h"
    assert settings["RestartPreventExitStatus"] == "2 78"
    assert "(exit codes 78 and 2)" in PAGE
    assert f"`KillMode={settings['KillMode']}`" in PAGE


def test_links_lead_to_pages() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (Path(__file__).parents[2] / "docs" / "how-to" / target).exists()


def test_what_only_root_and_the_group_may_read_is_read_with_sudo() -> None:
    reading = re.findall(r"^(.*) --config /etc/ospbridge/", PAGE, re.MULTILINE)
    assert len(reading) == 2
    assert all("sudo /opt/ospbridge/bin/ospbridge " in words for words in reading)
