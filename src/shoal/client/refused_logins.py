"""
Logins and certificates that brokers accepted before, and refuse now.

A login service may be unavailable, or a certificate about to be renewed. Neither needs a restart, so the
error is that of a lost connection. If each connection of a mirror tried again by itself, the refused logins
could lock the account. So a process makes one attempt at a broker at a time, with pauses that double.

If one broker of a cluster has accepted a password, the password is right for all its brokers, also for new
ones. Certificates differ by broker.
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
from ..timing import SYSTEM_CLOCK, Clock
from .backoff import Backoff
from .security import Security

__all__ = ["RefusedLogins", "logins"]

#: As Kafka's reconnect.backoff.max.ms; the pauses between refused logins begin where its reconnects end.
_FIRST_PAUSE_MS = 1000

#: The longest wait after an operator has repaired a login. Faster attempts could lock the account.
_LONGEST_PAUSE_MS = 30_000


@dataclass(slots=True)
class _RefusedLogin:
    """A login that is refused at one broker."""

    clock: Clock
    since: str
    reason: str
    backoff: Backoff = field(default_factory=lambda: Backoff(_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS))
    try_again_at: float = 0.0
    next_attempt: str = ""

    def pause(self, reason: str) -> None:
        self.reason = reason
        delay_s = self.backoff.next_delay_s()
        self.try_again_at = self.clock.monotonic() + delay_s
        # Computed once: a text that changes would be printed again at each check.
        self.next_attempt = _time_of_day(self.clock, delay_s)

    def __str__(self) -> str:
        times = f"{self.backoff.failures} times" if self.backoff.failures > 1 else "once"
        return (
            f"{self.reason} (it was accepted before, was refused {times} since {self.since}, "
            f"and is next tried at {self.next_attempt})"
        )


class _Login(NamedTuple):
    """The credentials for one broker of a cluster; the bootstrap servers identify the cluster."""

    cluster: tuple[Address, ...]
    address: Address
    security: Security


class RefusedLogins:
    """The logins of one process, for all its threads."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._accepted: set[_Login] = set()
        self._refused: dict[_Login, _RefusedLogin] = {}

    @contextmanager
    def attempt(
        self, cluster: tuple[Address, ...], address: Address, security: Security | None, where: str
    ) -> Iterator[None]:
        """
        Wrap a connection attempt with its login.

        Args:
            cluster: The bootstrap servers of the cluster.
            security: The credentials; None for a PLAINTEXT listener, which refuses none.
            where: The broker's name in errors.

        Raises:
            AccessRefused: The broker refuses a login that was never accepted.
            Disconnected: The broker refuses a login that was accepted before, or did so at the last attempt.

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
        """Claim the next attempt; raise if it is not due yet."""
        with self._lock:
            refused = self._refused.get(login)
            if refused is None:
                return
            if self._clock.monotonic() < refused.try_again_at:
                raise Disconnected(where, str(refused))
            # Other threads wait for the outcome of this attempt.
            refused.try_again_at = self._clock.monotonic() + _FIRST_PAUSE_MS / 1000

    def _explain(self, login: _Login, where: str, error: AccessRefused) -> AccessRefused | Disconnected:
        with self._lock:
            if not self._has_worked(login, error.is_login):
                return AccessRefused(where, error.reason, error.is_login)
            new = _RefusedLogin(self._clock, _time_of_day(self._clock), error.reason)
            refused = self._refused.setdefault(login, new)
            refused.pause(error.reason)
            return Disconnected(where, str(refused))

    def _has_worked(self, login: _Login, at_any_broker: bool) -> bool:
        if login.security.has_worked or login in self._accepted:
            return True
        return at_any_broker and any(login == each._replace(address=login.address) for each in self._accepted)


def _time_of_day(clock: Clock, in_s: float = 0.0) -> str:
    return time.strftime("%H:%M:%S UTC", time.gmtime(clock.wall() + in_s))


#: The logins of this process.
logins = RefusedLogins()
