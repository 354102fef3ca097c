"""The access tokens of this process; :mod:`..held` describes how long a token serves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from ..held import USED_LIFETIME, Held
from .retrieval import retrieve
from .sources import OAuthLogin, TokenFile
from .token import AccessToken, NoToken

__all__ = ["HeldTokens", "held_tokens"]


class HeldTokens:
    """The tokens of one process, for all its threads."""

    def __init__(
        self,
        source: Callable[[OAuthLogin], AccessToken] = retrieve,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Begin without tokens.

        Args:
            source: Returns a new token, or raises :class:`NoToken`.
            clock: Returns the seconds of a monotonic clock.

        """
        self._source = source
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[OAuthLogin, Held[AccessToken]] = {}

    def token(self, login: OAuthLogin) -> AccessToken:
        """
        Return a token for a login.

        One thread asks the source at a time. The others get the old token while it is valid, or wait.

        Raises:
            NoToken: The source gives none, and there is none that is still valid.

        """
        if isinstance(login.source, TokenFile):
            # A file is cheap to read, and its program decides when the token is replaced.
            return self._source(login)
        return self._of(login).current(lambda: self._new(login), self._clock)

    def subject(self, login: OAuthLogin) -> str:
        """Return the subject of the token of this process, without asking its source; empty if unknown."""
        if isinstance(login.source, TokenFile):
            with suppress(NoToken):
                return self._source(login).subject
            return ""
        held = self._of(login)
        with held.lock:
            return held.value.subject if held.value is not None else ""

    def _new(self, login: OAuthLogin) -> tuple[AccessToken, float]:
        token = self._source(login)
        # One without a lifetime serves for this login alone.
        return token, token.lives_s or 0.0

    def limit(self, login: OAuthLogin, token: AccessToken, session_s: float) -> None:
        """
        Renew a token in time for a session that ends with it.

        The broker has its own clock and counts in whole seconds, so the session may end before the token does
        here. A session of less than half of that time has another limit (``connections.max.reauth.ms``).

        """
        held = self._of(login)
        with held.lock:
            now = self._clock()
            if held.value is token and (held.expires_at - now) / 2 < session_s:
                held.refresh_at = min(held.refresh_at, now + session_s * USED_LIFETIME)
                held.expires_at = min(held.expires_at, now + session_s)

    def discard(self, login: OAuthLogin, token: AccessToken) -> None:
        """Forget a token that a broker refused: its keys may have changed, and a new one may be accepted."""
        held = self._of(login)
        with held.lock:
            if held.value is token:
                held.value = None

    def _of(self, login: OAuthLogin) -> Held[AccessToken]:
        with self._lock:
            return self._held.setdefault(login, Held())


#: The tokens of this process.
held_tokens = HeldTokens()
