"""Who may come in to the dashboard, by which names it is called, and where it listens."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from ospbridge.dashboard.address import CREDENTIAL, Access, called, listening, read_token
from ospbridge.errors import ConfigurationError
from ospbridge.interface import Endpoint

TOKEN = "a-token-of-some-length"


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:9000",
        "LOCALHOST.",
        "127.0.0.1:8464",
        "192.168.0.7",
        "[::1]:8464",
        "lab.example:443",
        socket.gethostname(),
    ],
)
def test_ip_addresses_localhost_this_host_and_named_ones_are_ours(host: str) -> None:
    assert Access(names=("lab.example",)).knows(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "user@localhost",
        "localhost/x",
        "localhost:x",
        "[::1",
        "1.2.3",
    ],
)
def test_any_other_name_may_be_an_attackers(host: str) -> None:
    assert not Access().knows(host)


@pytest.mark.parametrize(
    "origin, ours",
    [
        ("http://localhost:8464", True),
        ("https://127.0.0.1", True),
        ("null", False),
        ("https://evil.example", False),
        ("http://[", False),
        ("http://[::1]:8464", True),
        ("://localhost", False),
        ("localhost", False),
    ],
)
def test_only_pages_of_ours_are_an_origin(origin: str, ours: bool) -> None:
    assert Access().came_from_us(origin) is ours


@pytest.mark.parametrize("name", ["lab.example", "Lab.Example.", " lab.example\n"])
def test_a_name_is_taken_however_it_is_written(name: str) -> None:
    assert Access(names=(called(name),)).knows("lab.example:443")


@pytest.mark.parametrize(
    "name, told",
    [
        ("lab.example:8464", "write lab.example alone"),
        ("https://lab.example", "write lab.example alone"),
        ("https://Lab.Example:443/dash", "write lab.example alone"),
        ("lab.example/dash", "write lab.example alone"),
        ("[::1]", "write ::1 alone"),
        ("*.lab.example", "xn--"),
        ("bücher.example", "xn--"),
        ("two words", "xn--"),
        ("lab..example", "xn--"),
        ("https://[", "xn--"),
        ("", "xn--"),
        (".", "xn--"),
    ],
)
def test_what_no_browser_would_call_it_is_refused(name: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match="no name of a host") as caught:
        called(name)
    assert told in caught.value.hint


def test_without_a_token_everybody_may_come_in() -> None:
    assert Access().admits()


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


def test_a_token_is_read_from_a_file(tmp_path: Path) -> None:
    assert read_token(write(tmp_path / "token", f"{TOKEN}\n", 0o640)) == TOKEN


def test_a_systemd_credential_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert not read_token(None)
    write(tmp_path / CREDENTIAL, TOKEN, 0o400)
    assert read_token(None) == TOKEN


def test_without_a_file_and_a_credential_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    assert not read_token(None)


def test_a_pipe_is_no_token_and_is_not_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "token"
    os.mkfifo(file, 0o600)
    with pytest.raises(ConfigurationError, match="holds no token"):
        read_token(file)


@pytest.mark.parametrize(
    "text", ["", "short", "two words that are long", "x" * 600, "a line\nand another one", "äöü" * 9]
)
def test_a_file_without_a_token_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match="holds no token") as caught:
        read_token(write(tmp_path / "token", text))
    assert "openssl rand" in caught.value.hint


def test_a_token_that_everybody_can_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="every user") as caught:
        read_token(write(tmp_path / "token", TOKEN, 0o644))
    assert "chmod" in caught.value.hint


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_token(tmp_path / "nowhere")


@pytest.mark.loopback
def test_an_address_in_use_is_refused() -> None:
    with listening(Endpoint("127.0.0.1", 0), guarded=False) as taken:
        with pytest.raises(ConfigurationError, match="cannot listen") as caught:
            listening(Endpoint("127.0.0.1", taken.getsockname()[1]), guarded=False)
        assert "port 0" in caught.value.hint


def test_an_address_of_a_kind_that_the_kernel_does_not_know_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused_by_kernel(*_: object) -> Any:
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))

    # As where Linux was started with ipv6.disable=1.
    monkeypatch.setattr(socket, "socket", refused_by_kernel)
    with pytest.raises(ConfigurationError, match=r"cannot listen at .*Address family"):
        listening(Endpoint("::1", 0), guarded=False)


def test_other_hosts_are_let_in_only_with_a_token() -> None:
    with pytest.raises(ConfigurationError, match="no token is asked for") as caught:
        listening(Endpoint("0.0.0.0", 0), guarded=False)
    assert "--dashboard-token" in caught.value.hint


def test_a_name_that_does_not_resolve_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="does not resolve"):
        listening(Endpoint("nowhere.invalid", 1), guarded=True)
