"""
Logins and certificates that brokers accepted, and refuse now.

A login service may be away, or a certificate about to be renewed: that heals without a new start, so it
counts as a lost connection. Each connection of a mirror would try again by itself, and many refused logins
lock an account: so a process makes one attempt at a broker at a time, with pauses that double.

A password that one broker of a cluster accepted is right for all its brokers, also for those that this
process has not met yet: a new one, or the one that a coordinator moved to. Certificates differ by broker.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from ..errors import AccessRefused, Disconnected
from ..net.address import Address
from .backoff import Backoff
from .security import Security

__all__ = ["RefusedLogins", "logins"]

#: As Kafka's reconnect.backoff.max.ms; the pauses between refused logins begin where its reconnects end.
_FIRST_PAUSE_MS = 1000

#: An operator who repairs a login sees it work within this. Accounts are locked by refusals that come faster.
_LONGEST_PAUSE_MS = 30_000


@dataclass(slots=True)
class _Refused:
    """A login that is refused at one broker."""

    since: str
    reason: str
    backoff: Backoff = field(default_factory=lambda: Backoff(_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS))
    try_again_at: float = 0.0
    next_attempt: str = ""

    def pause(self, reason: str) -> None:
        self.reason = reason
        delay_s = self.backoff.next_delay_s()
        self.try_again_at = time.monotonic() + delay_s
        # Told once: a sentence that changed from one look to the next would be printed as news.
        self.next_attempt = _clock(delay_s)

    def __str__(self) -> str:
        times = f"{self.backoff.failures} times" if self.backoff.failures > 1 else "once"
        return (
            f"{self.reason} (it was accepted before, and refused {times} since {self.since}; "
            f"the next attempt is at {self.next_attempt})"
        )


class _Login(NamedTuple):
    """What is shown to one broker of a cluster, which is known by its bootstrap servers."""

    cluster: tuple[Address, ...]
    address: Address
    security: Security


class RefusedLogins:
    """The logins of one process, for all its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._accepted: set[_Login] = set()
        self._refused: dict[_Login, _Refused] = {}

    @contextmanager
    def attempt(
        self, cluster: tuple[Address, ...], address: Address, security: Security | None, where: str
    ) -> Iterator[None]:
        """
        Connect and log in within this.

        Args:
            cluster: Its bootstrap servers.
            address: The broker's.
            security: What is shown to it; None if nothing can be refused.
            where: The broker, for errors.

        Raises:
            AccessRefused: It refused what it never accepted, or a password that no broker of the cluster did.
            Disconnected: It refused what was accepted before, now or at the last attempt.

        """
        if security is None:
            yield
            return
        login = _Login(cluster, address, security)
        self._claim(login, where)
        try:
            yield
        except AccessRefused as error:
            raise self._explain(login, where, error) from error
        with self._lock:
            self._accepted.add(login)
            self._refused.pop(login, None)

    def _claim(self, login: _Login, where: str) -> None:
        """Take the next attempt, or fail until it is due."""
        with self._lock:
            refused = self._refused.get(login)
            if refused is None:
                return
            if time.monotonic() < refused.try_again_at:
                raise Disconnected(where, str(refused))
            # Other threads wait for the outcome of this attempt.
            refused.try_again_at = time.monotonic() + _FIRST_PAUSE_MS / 1000

    def _explain(self, login: _Login, where: str, error: AccessRefused) -> AccessRefused | Disconnected:
        with self._lock:
            if not self._has_worked(login, error.is_login):
                return AccessRefused(where, error.reason, error.is_login)
            refused = self._refused.setdefault(login, _Refused(_clock(), error.reason))
            refused.pause(error.reason)
            return Disconnected(where, str(refused))

    def _has_worked(self, login: _Login, at_any_broker: bool) -> bool:
        if login.security.has_worked or login in self._accepted:
            return True
        return at_any_broker and any(login == each._replace(address=login.address) for each in self._accepted)


def _clock(in_s: float = 0.0) -> str:
    return time.strftime("%H:%M:%S UTC", time.gmtime(time.time() + in_s))


#: Those of this process.
logins = RefusedLogins()
