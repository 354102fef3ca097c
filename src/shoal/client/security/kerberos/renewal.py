"""
The renewal of ticket caches, by ``kinit -R`` as Java's client for Kafka does it.

A mirror may make no login for days, and a ticket cannot be renewed after its end. So each cache has a thread,
which ends with the process. Many processes may use a cache: each waits for a random part of the ticket's
lifetime, and renews it only if no other has done so.
"""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections.abc import Callable

from .library import load_gssapi
from .login import TicketCache

__all__ = ["CacheRenewal", "renew_by_kinit", "renewals", "seconds_left"]

#: Kafka's sasl.kerberos.ticket.renew.window.factor and jitter: a ticket is renewed after 75 to 80 % of its
#: remaining time.
_LEAST_USED, _MOST_USED = 0.75, 0.8

#: Kafka's sasl.kerberos.min.time.before.relogin.
_PAUSE_S = 60.0

#: The limit of a renewal: a KDC that does not answer takes libkrb5 some 20 seconds.
_KINIT_S = 60.0

#: The most characters of kinit's message in ours.
_LARGEST_MESSAGE = 200


def seconds_left(cache: TicketCache) -> float:
    """Return the seconds until the tickets of a cache expire; 0 if there are none."""
    gssapi = load_gssapi()
    store = {"ccache": cache.name} if cache.name else {}
    try:
        return float(gssapi.Credentials(usage="initiate", store=store).lifetime)
    except gssapi.exceptions.GSSError:
        return 0.0


def renew_by_kinit(cache: TicketCache) -> str | None:
    """Renew the tickets of a cache, and return the reason if that fails."""
    command = [cache.kinit, "-R", *(("-c", cache.name) if cache.name else ())]
    shown = " ".join(command)
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_KINIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{shown!r} did not end in {_KINIT_S:g} s"
    except OSError as error:
        return f"{shown!r} cannot be run: {error.strerror}. Check sasl.kerberos.kinit.cmd"
    return None if done.returncode == 0 else f"{shown!r} failed: {done.stderr.strip()[:_LARGEST_MESSAGE]}"


class CacheRenewal:
    """
    The renewal of one ticket cache.

    Attributes:
        failure: The reason why the last renewal failed; None if it did not.

    """

    def __init__(
        self,
        cache: TicketCache,
        left: Callable[[TicketCache], float] = seconds_left,
        renew: Callable[[TicketCache], str | None] = renew_by_kinit,
    ) -> None:
        self.failure: str | None = None
        self._cache = cache
        self._left = left
        self._renew = renew
        self._lock = threading.Lock()
        self._has_begun = False
        #: The seconds left from which on a renewal is due; tickets with more are new.
        self._due_below = 0.0

    def begin(self) -> None:
        """Start the thread at the first call."""
        with self._lock:
            if not self._has_begun:
                self._has_begun = True
                threading.Thread(target=self._run, name="shoal-kinit", daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(self.step())

    def step(self) -> float:
        """Renew the tickets if that is due, and return the seconds until the next step."""
        left = self._left(self._cache)
        if 0 < left <= self._due_below:
            self.failure = self._renew(self._cache)
            if self.failure is not None:
                return max(left / 4, min(_PAUSE_S, left))
            left = self._left(self._cache)
        if left <= 0:
            self._due_below = 0.0
            return _PAUSE_S
        # New tickets, from here or from another process.
        used = random.uniform(_LEAST_USED, _MOST_USED)  # noqa: S311 (spreads renewals, protects nothing)
        # libkrb5 counts in whole seconds.
        self._due_below = left * (1 - used) + 1
        return max(left * used, min(_PAUSE_S, left / 2))


class _Renewals:
    """The renewals of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_cache: dict[TicketCache, CacheRenewal] = {}

    def of(self, cache: TicketCache) -> CacheRenewal:
        """Return the renewal of a ticket cache."""
        with self._lock:
            return self._by_cache.setdefault(cache, CacheRenewal(cache))


#: The renewals of this process.
renewals = _Renewals()
