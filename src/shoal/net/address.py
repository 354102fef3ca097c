"""Addresses of brokers, and their lists in options and properties."""

from __future__ import annotations

import re
import socket
from typing import NamedTuple

__all__ = ["Address", "canonical_addresses", "parse_bootstrap"]


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


_KAFKA_S_PORT = 9092


_HOST_AND_PORT = re.compile(r"(\[(?P<ipv6>[0-9a-fA-F:.%]+)\]|(?P<host>[^\s:;/\[\]]+)):(?P<port>[0-9]{1,5})")


def parse_bootstrap(servers: str) -> list[Address]:
    """
    Parse ``HOST:PORT[,HOST:PORT…]``, as in Kafka's ``bootstrap.servers``.

    Raises:
        ValueError: The list is empty, or an element is not HOST:PORT.

    """
    addresses = []
    for server in filter(None, (part.strip() for part in servers.split(","))):
        parts = _HOST_AND_PORT.fullmatch(server)
        if not parts or not 0 < int(parts["port"]) < 65536:
            raise ValueError(f"invalid address {server!r}. Use HOST:PORT{_with_port(server)}")
        addresses.append(Address(parts["ipv6"] or parts["host"], int(parts["port"])))
    if not addresses:
        raise ValueError(f"no address in {servers!r}. Use HOST:PORT")
    return addresses


def canonical_addresses(addresses: list[Address]) -> list[Address]:
    """
    Replace each host by the canonical names of its addresses, as Java does for Kerberos (KIP-235).

    A host that does not resolve stays as it is: connections to it have the error.

    """
    found = [Address(name, address.port) for address in addresses for name in _canonical_names(address.host)]
    return list(dict.fromkeys(found))


def _canonical_names(host: str) -> list[str]:
    try:
        known = [str(each[4][0]) for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
        # An address without a name stays an address.
        return [socket.getnameinfo((each, 0), 0)[0] for each in known]
    except (OSError, UnicodeError):
        return [host]


def _with_port(server: str) -> str:
    """Suggest Kafka's port if the port is missing."""
    suggested = f"{server}:{_KAFKA_S_PORT}"
    return f", such as {suggested}" if _HOST_AND_PORT.fullmatch(suggested) else ""
