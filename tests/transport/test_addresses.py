"""Addresses as users write them."""

from __future__ import annotations

import pytest

from ospbridge.errors import ConfigurationError
from ospbridge.interface import Endpoint
from ospbridge.transport.addresses import parse_endpoint, resolve


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "robot-1.example.org", "bücher.example", "a_b", "a."]
)
def test_what_can_be_a_hosts_name_is_taken_as_it_is(host: str) -> None:
    assert parse_endpoint(f"{host}:9") == Endpoint(host, 9)


@pytest.mark.parametrize("host", ["a..b", ".", "x" * 64, "a\0b", "\ud800"])
def test_what_no_resolver_takes_is_no_address(host: str) -> None:
    with pytest.raises(ConfigurationError, match="can be no host's name"):
        resolve(parse_endpoint(f"{host}:9"))
