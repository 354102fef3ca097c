"""
A check at the start that the advertised addresses of a cluster can be reached.

Without it, an unreachable broker shows only after the timeout of the first request to it, half a minute after
the start.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import wait
from functools import partial

from ..errors import Disconnected, Unreachable
from ..in_thread import in_thread
from ..net.address import Address
from .cluster import Cluster
from .opening import open_socket

__all__ = ["check_advertised", "unreachable_brokers"]

#: The limit for name servers and brokers together: enough for two SYNs over a slow network.
_PATIENCE_S = 3.0


def check_advertised(
    cluster: Cluster, patience_s: float = _PATIENCE_S, *, must_answer: bool = False
) -> list[str]:
    """
    Connect to all advertised brokers at the same time, and close the connections.

    Args:
        cluster: The cluster. If it does not answer, the check ends without an error, unless no name resolves:
            the caller's own requests may wait longer.
        patience_s: The limit for all brokers together.
        must_answer: Whether it is an error if the cluster does not answer.

    Returns:
        A warning for each broker that cannot be reached, if others can.

    Raises:
        Unreachable: No broker can be reached, or no server's name resolves.
        Disconnected: The cluster does not answer, and must.

    """
    if not cluster.config.listeners:
        return []  # it advertises nothing, and may be made later
    try:
        brokers = cluster.refresh([]).brokers.values()
    except Unreachable:
        raise
    except Disconnected:
        if must_answer:
            raise
        return []
    others = [each for each in brokers if each not in cluster.config.bootstrap]
    errors = unreachable_brokers(cluster, others, patience_s)
    if errors and len(errors) == len(brokers):
        raise errors[0]
    return [str(each) for each in errors]


def unreachable_brokers(
    cluster: Cluster, addresses: Iterable[Address], patience_s: float = _PATIENCE_S
) -> list[Unreachable]:
    """
    Connect to these brokers at the same time, and close the connections.

    Args:
        cluster: The cluster whose metadata name the addresses.
        patience_s: The limit for all of them together.

    Returns:
        An error with the remedy for each that cannot be reached.

    """
    attempts = {each: in_thread("shoal-reachable", partial(_failure, each, patience_s)) for each in addresses}
    wait(attempts.values(), patience_s)
    errors = []
    for address, attempt in attempts.items():
        late = Unreachable(str(address), f"no answer in {patience_s:g} s")
        if (error := attempt.result() if attempt.done() else late) is not None:
            errors.append(cluster.explain(address, error))
    return errors


def _failure(address: Address, timeout_s: float) -> Unreachable | None:
    """Connect to an address, and return why that failed."""
    try:
        open_socket(address, timeout_s).close()
    except Unreachable as error:
        return error
    except Disconnected:
        pass  # malformed: the first request to that broker reports it
    return None
