"""The limits on connections, in total and of one address: Kafka's ``ConnectionQuotas``."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

from shoal.printable import logger

__all__ = ["ConnectionQuotas"]

_log = logger("shoal_broker")


class ConnectionQuotas:
    """Counts connections. Safe to use from several threads."""

    def __init__(self, config: Mapping[str, str]) -> None:
        """Take ``max.connections`` and ``max.connections.per.ip`` of a broker's settings."""
        self._most = int(config["max.connections"])
        self._most_per_ip = int(config["max.connections.per.ip"])
        self._by_host: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._was_refused = False

    def enter(self, host: str) -> bool:
        """Count a connection of an address; return False if there is no room for it."""
        with self._lock:
            exceeded = self._exceeded(host)
            if exceeded is None:
                self._by_host[host] += 1
            says_so = exceeded is not None and not self._was_refused
            self._was_refused = exceeded is not None
        if says_so:
            _log.warning("connections from %s are refused: %s", host, exceeded)
        return exceeded is None

    def leave(self, host: str) -> None:
        """Stop counting a connection that entered."""
        with self._lock:
            self._by_host[host] -= 1
            if not self._by_host[host]:
                del self._by_host[host]

    def _exceeded(self, host: str) -> str | None:
        if self._by_host.get(host, 0) >= self._most_per_ip:
            return f"max.connections.per.ip is {self._most_per_ip}"
        if self._by_host.total() >= self._most:
            return f"max.connections is {self._most}"
        return None
