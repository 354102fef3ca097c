"""
Errors for advertised addresses that this host cannot reach.

A client requests the brokers' addresses from the bootstrap servers, and connects to those. They come from
``advertised.listeners`` of each broker. A cluster in containers or behind NAT often advertises addresses that
exist only inside. The operator set another address, so the error names the server that advertised this one.
"""

from __future__ import annotations

import socket

from ..errors import Unreachable

__all__ = ["with_advertiser"]


def with_advertiser(error: Unreachable, cluster: str, server: str) -> Unreachable:
    """
    Return the error with the server that advertises the address, and the remedy.

    Args:
        error: The failure to connect to a broker.
        cluster: The cluster's name, such as ``source``.
        server: The server whose metadata names the address.

    """
    here = socket.gethostname()
    if error.unresolved:
        advice = (
            f"Server {server} of the {cluster} cluster advertises that name: set advertised.listeners of its "
            f"brokers to names that {here} can resolve, or add the name to /etc/hosts on {here}"
        )
    else:
        advice = (
            f"Server {server} of the {cluster} cluster advertises that address: if a broker runs there, set "
            f"its advertised.listeners to an address that {here} can reach, or open the firewall to it"
        )
    return Unreachable(error.address, f"{error.reason}. {advice}", unresolved=error.unresolved)
