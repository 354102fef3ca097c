"""
A check at the start that the advertised addresses of a cluster can be reached.

Without it, an unreachable broker shows only after the timeout of the first request to it, half a minute after
the start.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from ..errors import Disconnected, Unreachable
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
    if cluster.config.directory is not None:
        return []  # an archive advertises nothing, and may be made later
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
    attempts = [_Attempt(each, patience_s) for each in addresses]
    deadline = time.monotonic() + patience_s
    return [cluster.explain(each.address, error) for each in attempts if (error := each.outcome(deadline))]


class _Attempt:
    """One attempt to connect, in a thread: a name server may take longer than the limit."""

    def __init__(self, address: Address, patience_s: float) -> None:
        self.address = address
        self._patience_s = patience_s
        self._error: Unreachable | None = None
        self._thread = threading.Thread(target=self._connect, name="shoal-reachable", daemon=True)
        self._thread.start()

    def _connect(self) -> None:
        try:
            open_socket(self.address, self._patience_s).close()
        except Unreachable as error:
            self._error = error
        except Disconnected:
            pass  # malformed: the first request to that broker reports it

    def outcome(self, deadline: float) -> Unreachable | None:
        """Wait until a time of the monotonic clock, and return the error, if there is one."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            return Unreachable(str(self.address), f"no answer in {self._patience_s:g} s")
        return self._error
