"""
The connection that a server closes if all its slots are taken and a new client connects.

The server closes the oldest connection of the network that holds the most. Strangers cannot shut out clients
then, since a client that logs in at once is hardly ever the oldest one. Kafka does the same for the listener
between brokers (KIP-402): at ``max.connections`` it closes a connection of another listener.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Collection
from typing import Protocol, TypeVar

__all__ = ["Holder", "first_to_leave", "network_of"]

#: The smallest network that a provider gives to a customer (RFC 6177): its addresses count as one client.
_IPV6_PREFIX = 64


class Holder(Protocol):
    """A connection that holds a slot."""

    @property
    def network(self) -> str:
        """The client's network, by :func:`network_of`."""
        ...

    @property
    def is_proven(self) -> bool:
        """Whether the client has proven itself: by a login, or by a valid first request."""
        ...


H = TypeVar("H", bound=Holder)


def first_to_leave(holders: Collection[H]) -> H:
    """
    Return the holder to close: of equals one that is not proven, and of these the oldest.

    Args:
        holders: The candidates, at least one, the oldest first.

    """
    by_network = Counter(each.network for each in holders)
    return max(holders, key=lambda each: (by_network[each.network], not each.is_proven))


def network_of(host: str) -> str:
    """Return the unit that counts as one client: an IPv4 address, an IPv6 network of 64 bits, or a name."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False))
