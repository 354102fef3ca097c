"""Addresses of brokers, and their lists in options and properties."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Address", "parse_bootstrap"]


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


def _with_port(server: str) -> str:
    """Suggest Kafka's port if the port is missing."""
    suggested = f"{server}:{_KAFKA_S_PORT}"
    return f", such as {suggested}" if _HOST_AND_PORT.fullmatch(suggested) else ""
