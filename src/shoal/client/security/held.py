"""
The tokens or tickets of this process: requested at the first login, and again before they expire.

There is no thread that refreshes them: each login asks here. A connection renews its login after 85 % of the
session, which ends with an access token at the latest (KIP-368). A token or ticket counts as old after 80 %
of its lifetime, so that this renewal brings a new one.

If the source fails, an old one serves until it expires, and the source is asked again after a pause.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ..backoff import Backoff
from .login import NoCredentials

__all__ = ["Keeper"]

#: Kafka's sasl.login.refresh.window.factor and sasl.kerberos.ticket.renew.window.factor. It must be less than
#: the part of a session after which client.connection renews the login.
_USED_LIFETIME = 0.8

#: The pauses between requests to a source that fails, as those between refused logins.
_FIRST_PAUSE_MS = 1000
_LONGEST_PAUSE_MS = 30_000

L = TypeVar("L", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True)
class _Held(Generic[V]):
    """
    The token or ticket of one login, and the last failure of its source.

    A thread holds ``asking`` while it asks the source. Meanwhile an old value serves other threads until it
    expires. Times are those of the monotonic clock.
    """

    asking: threading.Lock = field(default_factory=threading.Lock)
    value: V | None = None
    made_at: float = 0.0
    refresh_at: float = 0.0
    expires_at: float = 0.0
    failure: NoCredentials | None = None
    retry_at: float = 0.0
    backoff: Backoff = field(default_factory=lambda: Backoff(_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS))


class Keeper(Generic[L, V]):
    """Keeps the value of each login, for all threads of the process."""

    def __init__(
        self, source: Callable[[L], tuple[V, float]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """
        Begin without values.

        Args:
            source: Returns a new value and the seconds that it lives, 0 if it serves for one login; or raises
                :class:`NoCredentials`.
            clock: Returns the seconds of a monotonic clock.

        """
        self._source = source
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[L, _Held[V]] = {}

    def current(self, login: L) -> V:
        """
        Return the value of a login, requested again if it is old. One thread at a time asks the source.

        Raises:
            NoCredentials: The source gives none, and there is none that is still valid.

        """
        held = self._of(login)
        if not held.asking.acquire(blocking=False):
            if (value := self._valid(held)) is not None:
                return value
            held.asking.acquire()
        try:
            return self._renewed(login, held)
        finally:
            held.asking.release()

    def known(self, login: L) -> V | None:
        """Return the last value of a login, without asking its source."""
        return self._of(login).value

    def discard(self, login: L, value: V, least_s: float = 0.0) -> None:
        """Forget a value of a certain age that a broker refused: a new one may be accepted."""
        held = self._of(login)
        with self._lock:
            if held.value is value and self._clock() - held.made_at >= least_s:
                held.value = None

    def _of(self, login: L) -> _Held[V]:
        with self._lock:
            return self._held.setdefault(login, _Held())

    def _valid(self, held: _Held[V]) -> V | None:
        with self._lock:
            return held.value if self._clock() < held.expires_at else None

    def _renewed(self, login: L, held: _Held[V]) -> V:
        with self._lock:
            now = self._clock()
            if held.value is not None and now < held.refresh_at:
                return held.value
            failure = held.failure if now < held.retry_at else None
        if failure is None:
            try:
                value, lives_s = self._source(login)
            except NoCredentials as error:
                failure = held.failure = error
                held.retry_at = self._clock() + held.backoff.next_delay_s()
            else:
                with self._lock:
                    now = self._clock()
                    held.failure, held.value, held.made_at = None, value, now
                    held.refresh_at, held.expires_at = now + lives_s * _USED_LIFETIME, now + lives_s
                    held.backoff.reset()
                return value
        if (old := self._valid(held)) is not None:
            return old
        # A new object: each raise would lengthen the traceback of the old one.
        raise NoCredentials(failure.reason, may_pass=failure.may_pass)
