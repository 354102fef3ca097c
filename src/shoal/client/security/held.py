"""
A token or ticket of this process: requested at the first login, and again before it expires.

There is no thread that refreshes it: each login asks here. A connection renews its login after 85 % of the
session, which ends with an access token at the latest (KIP-368). A token or ticket counts as old after 80 %
of its lifetime, so that this renewal brings a new one.

If the source fails, an old one serves until it expires, and the source is asked again after a pause.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ..backoff import Backoff
from .login import NoCredentials

__all__ = ["USED_LIFETIME", "Held"]

#: Kafka's sasl.login.refresh.window.factor and sasl.kerberos.ticket.renew.window.factor. It must be less than
#: the part of a session after which client.connection renews the login.
USED_LIFETIME = 0.8

#: The pauses between requests to a source that fails, as those between refused logins.
_FIRST_PAUSE_MS = 1000
_LONGEST_PAUSE_MS = 30_000

_Value = TypeVar("_Value")


@dataclass(slots=True)
class Held(Generic[_Value]):
    """
    The token or ticket of one login, and the last failure of its source.

    ``lock`` guards the fields, and a thread holds ``asking`` while it asks the source. Meanwhile an old value
    serves other threads until it expires. Times are those of the monotonic clock.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    asking: threading.Lock = field(default_factory=threading.Lock)
    value: _Value | None = None
    refresh_at: float = 0.0
    expires_at: float = 0.0
    failure: NoCredentials | None = None
    retry_at: float = 0.0
    backoff: Backoff = field(default_factory=lambda: Backoff(_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS))

    def current(self, source: Callable[[], tuple[_Value, float]], clock: Callable[[], float]) -> _Value:
        """
        Return the value, requested again if it is old. One thread at a time asks the source.

        Args:
            source: Returns a new value and the seconds that it lives; 0 if it serves for one login.
            clock: Returns the seconds of a monotonic clock.

        Raises:
            NoCredentials: The source gives none, and there is none that is still valid.

        """
        if not self.asking.acquire(blocking=False):
            with self.lock:
                if self.value is not None and clock() < self.expires_at:
                    return self.value
            self.asking.acquire()
        try:
            return self._renewed(source, clock)
        finally:
            self.asking.release()

    def _renewed(self, source: Callable[[], tuple[_Value, float]], clock: Callable[[], float]) -> _Value:
        with self.lock:
            if self.value is not None and clock() < self.refresh_at:
                return self.value
            failure = self.failure if clock() < self.retry_at else None
        if failure is None:
            try:
                value, lives_s = source()
            except NoCredentials as error:
                failure = error
                with self.lock:
                    self._fail(error, clock())
            else:
                with self.lock:
                    self._keep(value, lives_s, clock())
                return value
        with self.lock:
            if self.value is not None and clock() < self.expires_at:
                return self.value
        # A new object: each raise would lengthen the traceback of the old one.
        raise type(failure)(failure.reason, may_pass=failure.may_pass)

    def _keep(self, value: _Value, lives_s: float, now: float) -> None:
        self.failure = None
        self.backoff.reset()
        self.value, self.refresh_at, self.expires_at = value, now + lives_s * USED_LIFETIME, now + lives_s

    def _fail(self, failure: NoCredentials, now: float) -> None:
        self.failure = failure
        self.retry_at = now + self.backoff.next_delay_s()
