"""
Access tokens from their source to the broker (OAUTHBEARER: RFC 7628, KIP-255, KIP-768).

Each process has its own tokens; :mod:`.held` describes how long one serves.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...named_class import find_class
from .held import Keeper
from .login import OAuthLogin, TokenClass, TokenEndpoint, TokenFile
from .token import AccessToken, NoToken, read_token

__all__ = [
    "CLASS_PROPERTY",
    "BearerExchange",
    "HeldTokens",
    "class_of",
    "held_tokens",
    "retrieve",
]

CLASS_PROPERTY = "sasl.login.callback.handler.class"

#: The most characters of an error of a user's class in ours.
_LARGEST_CLASS_ERROR = 200


def retrieve(login: OAuthLogin) -> AccessToken:
    """
    Get a new token; this may take seconds.

    Raises:
        NoToken: The source gives no usable token.

    """
    match login.source:
        case TokenEndpoint() as endpoint:
            # Imported here: urllib takes 30 ms of CPU.
            from .oauth_endpoint import request_token

            return request_token(endpoint, login.subject_claim)
        case TokenFile() as file:
            return _of_file(file, login.subject_claim)
        case TokenClass() as named:
            return _of_class(named, login.subject_claim)


def _of_file(file: TokenFile, subject_claim: str) -> AccessToken:
    where = f"the token file {file.path!r}"
    try:
        text = Path(file.path).read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise NoToken(f"{where} cannot be read: {why}. Check sasl.oauthbearer.token.endpoint.url") from None
    return read_token(text, where, subject_claim=subject_claim)


def _of_class(named: TokenClass, subject_claim: str) -> AccessToken:
    where = f"{CLASS_PROPERTY} {named.name}"
    try:
        text = _token_function(named)()
    except ConfigError as error:
        raise NoToken(str(error)) from error
    except Exception as error:
        why = f"{type(error).__name__}: {error}"[:_LARGEST_CLASS_ERROR]
        raise NoToken(f"{where}: token() failed: {why}", may_pass=True) from error
    if not isinstance(text, str):
        raise NoToken(f"{where}: token() returned {type(text).__name__}. It must return the token as a str")
    return read_token(text, f"the result of {where}", subject_claim=subject_claim)


@lru_cache(maxsize=8)
def _token_function(named: TokenClass) -> Callable[[], Any]:
    """Return the method of the one object that this process has of a class."""
    found: Callable[[], Any] = class_of(named.name)(dict(named.options)).token
    return found


def class_of(name: str) -> type[Any]:
    """
    Return a user's class of tokens.

    Raises:
        ConfigError: There is no such class, or it has no method ``token``.

    """
    found = find_class(CLASS_PROPERTY, name)
    if not callable(getattr(found, "token", None)):
        raise ConfigError(f"{CLASS_PROPERTY} {name}: it has no method token(), which returns an access token")
    return found


class HeldTokens(Keeper[OAuthLogin, AccessToken]):
    """The tokens of one process."""

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

        def new(login: OAuthLogin) -> tuple[AccessToken, float]:
            token = source(login)
            # A file is cheap to read, and its program decides when the token is replaced.
            return token, 0.0 if isinstance(login.source, TokenFile) else token.lives_s or 0.0

        super().__init__(new, clock)

    def subject(self, login: OAuthLogin) -> str:
        """Return the subject of the token of this process; empty if it is unknown without a request."""
        if not isinstance(login.source, TokenFile):
            known = self.known(login)
            return known.subject if known is not None else ""
        try:
            return _of_file(login.source, login.subject_claim).subject
        except NoToken:
            return ""


#: The tokens of this process.
held_tokens = HeldTokens()


_SEPARATOR = "\x01"

_ADVICE = (
    "Compare the token's issuer, audience, scope and lifetime with the broker's settings, whose log has the "
    "reason; at Amazon MSK, allow kafka-cluster:Connect to this identity, and check region and clock"
)


class BearerExchange:
    """One login: the token, and if the broker refuses it, an empty message that ends the exchange."""

    def __init__(self, login: OAuthLogin, tokens: HeldTokens = held_tokens) -> None:
        """
        Get a token, which may take seconds.

        Raises:
            NoToken: There is none.

        """
        self._login = login
        self._tokens = tokens
        self._token = tokens.current(login)
        self._is_done = False
        self._status: str | None = None
        pairs = [("auth", f"Bearer {self._token.value}"), *login.extensions]
        named = "".join(f"{name}={value}{_SEPARATOR}" for name, value in pairs)
        # No channel binding, and no authorization id: it is that of the token.
        self._message = f"n,,{_SEPARATOR}{named}{_SEPARATOR}".encode()

    @property
    def is_done(self) -> bool:
        """Whether the login is complete."""
        return self._is_done

    def next_token(self) -> bytes:
        """Return the client's next message."""
        return self._message if self._status is None else _SEPARATOR.encode()

    def receive(self, token: bytes) -> None:
        """
        Process the broker's message.

        Raises:
            ValueError: The broker sends a second message after its refusal.

        """
        if not token:
            self._is_done = True
        elif self._status is not None:
            raise ValueError("its message does not fit the mechanism")
        else:
            # RFC 7628, 3.2.2: the broker sends its reason, and fails the login when we have answered.
            self._status = _status(token)

    @property
    def refusal(self) -> str:
        """The sentence about a refused token, without the token."""
        subject = self._token.subject
        whose = f" of {subject!r}" if subject else ""
        status = f" ({self._status})" if self._status else ""
        return f"it does not accept the access token{whose} by OAUTHBEARER{status}. {_ADVICE}"

    def refused(self) -> None:
        """Request a new token for the next login."""
        self._tokens.discard(self._login, self._token)


def _status(token: bytes) -> str:
    try:
        answer = json.loads(token)
    except ValueError:
        return ""
    status = answer.get("status") if isinstance(answer, dict) else None
    return status[:100] if isinstance(status, str) else ""
