"""
Try the addresses that a cluster advertises, before anything waits for one of them.

Without this, a broker that cannot be reached from here shows only when the first
request to it has used up its time, half a minute of silence after the start.
"""

from __future__ import annotations

import threading
import time

from ..errors import Disconnected, Unreachable
from ..net.address import Address
from .cluster import Cluster
from .opening import open_socket

__all__ = ["check_advertised"]

#: For the name servers and the broker's host together: two SYNs of TCP, and a long way.
_PATIENCE_S = 3.0


def check_advertised(cluster: Cluster, patience_s: float = _PATIENCE_S) -> list[str]:
    """
    Connect to each broker that the cluster advertises, all at once, and hang up.

    Args:
        cluster: Asked for its brokers; a cluster that does not answer is left to the caller's requests,
            which may have more patience, unless its servers' names do not resolve.
        patience_s: The time for all of them.

    Returns:
        A sentence for each broker that cannot be reached, if others can.

    Raises:
        Unreachable: No broker can be reached, or no server's name resolves.

    """
    try:
        brokers = cluster.refresh([]).brokers.values()
    except Unreachable:
        raise
    except Disconnected:
        return []
    attempts = [_Attempt(each, patience_s) for each in brokers if each not in cluster.config.bootstrap]
    deadline = time.monotonic() + patience_s
    errors = [cluster.explain(each.address, error) for each in attempts if (error := each.outcome(deadline))]
    if errors and len(errors) == len(brokers):
        raise errors[0]
    return [str(each) for each in errors]


class _Attempt:
    """One attempt to connect, in a thread: a name server may take longer than an operator waits."""

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
            pass  # no address at all: the first request to that broker says so

    def outcome(self, deadline: float) -> Unreachable | None:
        """Wait until a time of the monotonic clock, and return why the attempt failed, if it did."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            return Unreachable(str(self.address), f"no answer in {self._patience_s:g} s")
        return self._error
