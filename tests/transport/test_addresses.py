"""Addresses as users write them."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from ospbridge.errors import ConfigurationError, OspBridgeError, SimulatorNotFound
from ospbridge.interface import Endpoint
from ospbridge.transport.addresses import is_of_this_host, parse_endpoint, resolve
from ospbridge.transport.tls import parse_stream, parse_tls


@pytest.mark.parametrize(
    "text, host, port",
    [
        ("[::1]:5556", "::1", 5556),
        ("[::1]", "::1", 45454),
        ("::1", "::1", 45454),
        ("2001:db8::5555", "2001:db8::5555", 45454),
        ("[fe80::1%eth0]:9", "fe80::1%eth0", 9),
    ],
)
def test_an_ipv6_address_stands_alone_or_in_brackets_with_a_port(text: str, host: str, port: int) -> None:
    assert parse_endpoint(text) == Endpoint(host, port)


@pytest.mark.parametrize(
    "text", ["[::1]5556", "[::1", "[localhost]:1", "[]:1", "a:1:2", "::1:port", "TLS://a:1"]
)
def test_a_colon_too_many_or_missing_is_told_and_never_means_another_port(text: str) -> None:
    for parse in (parse_endpoint, parse_stream, parse_tls):
        with pytest.raises(ConfigurationError, match="of more than one ':' each must be of an IPv6 address"):
            parse(text)


@pytest.mark.parametrize("port", ["5_556", "-1", " 1", "\uff11", "", "9" * 5000])
def test_a_port_is_written_with_digits_and_nothing_else(port: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a number"):
        parse_endpoint(f"host:{port}")


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "a\0b", "\ud800", "a/b"])
def test_what_no_resolver_takes_is_no_address(host: str) -> None:
    with pytest.raises(ConfigurationError, match="does not resolve"):
        resolve(parse_endpoint(f"{host}:9"))


def test_of_several_addresses_the_one_is_taken_that_simulators_listen_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def looked_up(host: str, port: int, **_: object) -> list[Any]:
        six = (socket.AF_INET6, socket.SOCK_DGRAM, 17, "", ("::1", port, 0, 0))
        four = (socket.AF_INET, socket.SOCK_DGRAM, 17, "", ("127.0.0.1", port))
        return [six] if host == "six" else [six, four]

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    assert resolve(Endpoint("localhost", 9)) == Endpoint("127.0.0.1", 9)
    assert resolve(Endpoint("six", 9)) == Endpoint("::1", 9)


@pytest.mark.parametrize(
    "number, error, hint",
    [
        (socket.EAI_NONAME, ConfigurationError, "write the IP address"),
        (socket.EAI_AGAIN, SimulatorNotFound, "reaches its name server"),
        (socket.EAI_FAIL, SimulatorNotFound, "reaches its name server"),
    ],
)
def test_a_name_that_nobody_looks_up_now_is_not_one_that_there_is_not(
    number: int, error: type[OspBridgeError], hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked_up(*_: object, **__: object) -> Any:
        raise socket.gaierror(number, "so it is")

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    with pytest.raises(error, match="'robot' does not resolve: so it is") as caught:
        resolve(Endpoint("robot", 1))
    assert hint in caught.value.hint
    assert type(caught.value) is error


def test_addresses_of_the_loopback_interface_and_of_this_hosts_others_are_its_own() -> None:
    assert is_of_this_host("127.0.0.1")
    assert is_of_this_host("127.8.9.10")
    for own in _own_addresses():
        assert is_of_this_host(own), own
    # Of a net for documentation, which no host has; and a name.
    for other in ("192.0.2.7", "2001:db8::7", "localhost"):
        assert not is_of_this_host(other)


def _own_addresses() -> set[str]:
    """What a datagram to elsewhere would be sent from; nothing goes out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.7", 9))
        except OSError:
            return set()
        return {sock.getsockname()[0]}
