"""Addresses of brokers by their canonical names."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from shoal.client.config import ClientConfig
from shoal.net.address import Address, canonical_addresses

#: One name for two brokers; the third has no name of its own.
ADDRESSES = {"kafka.example": ["10.0.0.1", "10.0.0.2"], "kafka3.example": ["10.0.0.3"]}
NAMES = {"10.0.0.1": "kafka1.example", "10.0.0.2": "kafka2.example"}


@pytest.fixture(autouse=True)
def _names(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(host: str, port: None, type: int) -> list[Any]:
        if host not in ADDRESSES:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(socket.AF_INET, type, 6, "", (address, 0)) for address in ADDRESSES[host]]

    def getnameinfo(address: tuple[str, int], flags: int) -> tuple[str, str]:
        return NAMES.get(address[0], address[0]), "0"

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(socket, "getnameinfo", getnameinfo)


def test_name_of_several_brokers_becomes_their_own_names() -> None:
    given = [Address("kafka.example", 9092), Address("kafka.example", 9092), Address("kafka3.example", 9093)]
    own = [Address("kafka1.example", 9092), Address("kafka2.example", 9092), Address("10.0.0.3", 9093)]
    assert canonical_addresses(given) == own


def test_name_that_does_not_resolve_stays() -> None:
    assert canonical_addresses([Address("none.example", 9092)]) == [Address("none.example", 9092)]


@pytest.mark.parametrize(
    ("lookup", "servers"),
    [
        ("use_all_dns_ips", "kafka.example:9092"),
        ("resolve_canonical_bootstrap_servers_only", "kafka1.example:9092,kafka2.example:9092"),
    ],
)
def test_property_decides_about_names(lookup: str, servers: str) -> None:
    properties = {"bootstrap.servers": "kafka.example:9092", "client.dns.lookup": lookup}
    config, warnings = ClientConfig.from_properties("source", properties)
    assert config.servers == servers
    assert warnings == []
