"""The page on the dashboard: its commands open one, its picture is there, and its messages are those of the program."""

from __future__ import annotations

import http.client
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ospbridge.dashboard.address import Access, called, listening, read_token
from ospbridge.dashboard.assets import page_files
from ospbridge.dashboard.streaming import MOST_STREAMS
from ospbridge.errors import ConfigurationError
from ospbridge.hub.status import RETURNS_KEPT
from ospbridge.interface import Endpoint
from ospbridge.observe.recent import MOST_KEPT
from ospbridge.simulator.arena import ArenaWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.running import Daemon, run_program

FOLDER = Path(__file__).parents[2] / "docs" / "how-to"
PAGE = (FOLDER / "dashboard.md").read_text("utf-8")
COMMANDS = [shlex.split(line) for line in re.findall(r"^ospbridge (.*)$", PAGE, re.MULTILINE)]
(TOKEN,) = re.findall(r"^\(umask.*\)$", PAGE, re.MULTILINE)
ROWS = re.findall(r"^\| (`.*?`|\*.*?) \|", PAGE, re.MULTILINE)
ON_A_FREE_PORT = {"8464": "0", "0.0.0.0:8464": "0.0.0.0:0"}


@pytest.mark.loopback
@pytest.mark.skipif(shutil.which("openssl") is None, reason="the page's command needs openssl")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_each_command_opens_a_dashboard(
    tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("starlette", reason="needs the extra: pip install 'ospbridge[dashboard]'")
    pytest.importorskip("hypercorn", reason="needs the extra: pip install 'ospbridge[dashboard]'")
    monkeypatch.chdir(tmp_path)
    subprocess.run(["sh", "-ec", TOKEN], check=True, timeout=30)
    assert command[0] == "connect"
    options = [ON_A_FREE_PORT.get(word, word) for word in command[1:]]
    with (
        UdpSimulator(ArenaWorld(1), port=0) as simulator,
        Daemon(simulator.address, *options, directory=tmp_path) as daemon,
    ):
        (entry,) = daemon.lines("dashboard open")
        name = (
            options[options.index("--dashboard-host") + 1] if "--dashboard-host" in options else "localhost"
        )
        connection = http.client.HTTPConnection("127.0.0.1", urlsplit(entry["url"]).port, timeout=20)
        connection.request("GET", "/", headers={"Host": name})
        assert connection.getresponse().status == (401 if "--dashboard-token" in options else 200)
        connection.close()
        assert daemon.end() == 0


def test_a_configuration_file_takes_it(tmp_path: Path) -> None:
    (line,) = re.findall(r"`(dashboard = \"\d+\")`", PAGE)
    (tmp_path / "daemon.toml").write_text(f"[daemon]\n{line}\n")
    shown = run_program("config", "show", "--config", str(tmp_path / "daemon.toml"))
    assert shown.returncode == 0, shown.stderr
    assert "8464" in tomllib.loads(shown.stdout)["daemon"]["dashboard"]


def test_its_pictures_are_there_and_not_large() -> None:
    pictures = [FOLDER / path for path in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", PAGE)]
    assert pictures
    for picture in pictures:
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stat().st_size < 250_000


def test_its_numbers_are_those_of_the_code() -> None:
    assert f"latest {RETURNS_KEPT} episodes" in PAGE
    assert f"the latest {MOST_KEPT} since" in PAGE
    assert f"{MOST_STREAMS} pages" in PAGE


def test_its_table_has_the_words_of_the_program(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a-token-of-some-length")
    file.chmod(0o644)
    with pytest.raises(ConfigurationError) as open_to_all:
        read_token(file)
    with pytest.raises(ConfigurationError) as unguarded:
        listening(Endpoint("0.0.0.0", 0), guarded=False)
    with pytest.raises(ConfigurationError) as nameless:
        called("https://lab.example.org")
    said = [error.value.message for error in (open_to_all, unguarded, nameless)]
    for words in (
        "every user of this host may open",
        "other hosts can reach a dashboard at",
        "browsers cannot call the dashboard",
    ):
        assert any(words in message for message in said)
        assert any(words in row for row in ROWS)
    script = "".join(page_files()[name].decode() for name in ("stream.js", "main.js", "door.html"))
    for words in (
        "no answer",
        "connecting",
        "refused: too many pages, or another token",
        "That is not the token",
    ):
        assert any(f"*{words}*" in row for row in ROWS)
        assert words in script
    assert not Access().knows("lab.example.org")
