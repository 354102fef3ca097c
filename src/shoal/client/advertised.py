"""
Addresses that a cluster advertises and that cannot be reached from here.

A client asks the servers that it was given for the brokers' addresses, and
connects to those: what ``advertised.listeners`` of each broker says. A cluster
in containers or behind NAT often advertises addresses that mean something only
inside. An error has to say which server of which cluster advertised what, since
the operator gave another address.
"""

from __future__ import annotations

import socket

from ..errors import Unreachable

__all__ = ["with_advertiser"]


def with_advertiser(error: Unreachable, cluster: str, server: str) -> Unreachable:
    """
    Return an error with the server that advertises the address, and what to do.

    Args:
        error: The failure to connect to a broker.
        cluster: The cluster's name in sentences, such as ``source``.
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
