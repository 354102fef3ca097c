"""
Which connection has to leave a server whose slots are all taken, so that a new one finds room.

It is the oldest of the network that holds the most. So strangers do not shut out clients, and one that says
at once what the server asks for is hardly ever the oldest. Kafka does the same for its brokers' own listener
(KIP-402): at ``max.connections`` a connection of another listener is closed to let one in.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Collection
from typing import Protocol, TypeVar

__all__ = ["Holder", "first_to_leave", "network_of"]

#: What one customer of a provider has at least (RFC 6177), so its addresses are not counted one by one.
_IPV6_PREFIX = 64


class Holder(Protocol):
    """A connection that holds a slot."""

    @property
    def network(self) -> str:
        """Where the client is, by :func:`network_of`."""
        ...

    @property
    def is_proven(self) -> bool:
        """Whether the client has shown what the server asks for."""
        ...


H = TypeVar("H", bound=Holder)


def first_to_leave(holders: Collection[H]) -> H:
    """
    Return the holder that has to leave; of equals one that is not proven, and of these the oldest.

    Args:
        holders: Those that may have to, at least one, the oldest first.

    """
    by_network = Counter(each.network for each in holders)
    return max(holders, key=lambda each: (by_network[each.network], not each.is_proven))


def network_of(host: str) -> str:
    """Return what counts as one client: an address of IPv4, a network of 64 bits of IPv6, or a name."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False))
