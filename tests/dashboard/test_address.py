"""Who may come in to the dashboard, by which names it is called, and where it listens."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ospbridge.dashboard.address import CREDENTIAL, Access, called, listening, read_token
from ospbridge.errors import ConfigurationError
from ospbridge.interface import Endpoint

TOKEN = "a-token-of-some-length"
OURS = ["localhost", "localhost:9000", "LOCALHOST.", "127.0.0.1:8464", "192.168.0.7", "[::1]:8464"]
OURS += ["lab.example:443", socket.gethostname()]
OTHERS = ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "user@localhost"]
OTHERS += ["localhost/x", "localhost:x", "[::1", "1.2.3"]


@pytest.mark.parametrize(
    "host, ours", [*((host, True) for host in OURS), *((host, False) for host in OTHERS)]
)
def test_ip_addresses_localhost_this_host_and_named_ones_are_ours(host: str, ours: bool) -> None:
    assert Access(names=("lab.example",)).knows(host) is ours


@pytest.mark.parametrize(
    "name, told",
    [
        ("lab.example:8464", "write lab.example alone"),
        ("https://lab.example", "write lab.example alone"),
        ("https://Lab.Example:443/dash", "write lab.example alone"),
        ("lab.example/dash", "write lab.example alone"),
        ("[::1]", "write ::1 alone"),
        *((name, "xn--") for name in ("*.lab.example", "bücher.example", "two words", "lab..example")),
        *((name, "xn--") for name in ("https://[", "", ".")),
    ],
)
def test_what_no_browser_would_call_it_is_refused(name: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match="no name of a host") as caught:
        called(name)
    assert told in caught.value.hint


def test_the_token_or_its_cookie_is_needed_where_there_is_one() -> None:
    access = Access(token=TOKEN)
    assert access.admits(token=TOKEN)
    assert access.admits(cookie=access.cookie)
    assert not access.admits()
    assert not access.admits(token=access.cookie)
    assert not access.admits(cookie=TOKEN)
    assert not access.admits(token="Ünglaublich")
    assert TOKEN not in access.cookie
    assert access.cookie != Access(token=TOKEN + "2").cookie


def write(file: Path, text: str, mode: int = 0o600) -> Path:
    file.write_text(text)
    file.chmod(mode)
    return file


def test_a_token_is_read_from_a_file_or_a_credential_of_systemd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_token(write(tmp_path / "token", f"{TOKEN}\n", 0o640)) == TOKEN
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert not read_token(None)
    write(tmp_path / CREDENTIAL, TOKEN, 0o400)
    assert read_token(None) == TOKEN


NO_TOKENS = ["", "short", "two words that are long", "x" * 600, "a line\nand another one", "äöü" * 9]


@pytest.mark.parametrize(
    "text, mode, told, hint",
    [
        *((text, 0o600, "holds no token", "openssl rand") for text in NO_TOKENS),
        (TOKEN, 0o644, "every user", "chmod"),
    ],
)
def test_a_file_without_a_token_or_that_everybody_can_read_is_refused(
    tmp_path: Path, text: str, mode: int, told: str, hint: str
) -> None:
    with pytest.raises(ConfigurationError, match=told) as caught:
        read_token(write(tmp_path / "token", text, mode))
    assert hint in caught.value.hint


@pytest.mark.loopback
def test_an_address_in_use_is_refused() -> None:
    with listening(Endpoint("127.0.0.1", 0), guarded=False) as taken:
        with pytest.raises(ConfigurationError, match="cannot listen") as caught:
            listening(Endpoint("127.0.0.1", taken.getsockname()[1]), guarded=False)
        assert "port 0" in caught.value.hint


def test_other_hosts_are_let_in_only_with_a_token() -> None:
    with pytest.raises(ConfigurationError, match="no token is asked for") as caught:
        listening(Endpoint("0.0.0.0", 0), guarded=False)
    assert "--dashboard-token" in caught.value.hint
