"""
Access tokens from their source to the broker (OAUTHBEARER: RFC 7628, KIP-255, KIP-768).

Each process has its own tokens; :mod:`.held` describes how long one serves.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...named_class import find_class
from .held import Keeper
from .login import Exchange, LoginRefused, NoCredentials, OAuthLogin, TokenClass, TokenEndpoint, TokenFile
from .token import AccessToken, read_token

__all__ = [
    "CLASS_PROPERTY",
    "by_token",
    "class_of",
    "held_tokens",
    "retrieve",
    "subject_of",
]

CLASS_PROPERTY = "sasl.login.callback.handler.class"

#: The most characters of an error of a user's class in ours.
_LARGEST_CLASS_ERROR = 200


def retrieve(login: OAuthLogin) -> AccessToken:
    """
    Get a new token; this may take seconds.

    Raises:
        NoCredentials: The source gives no usable token.

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
        raise NoCredentials(
            f"{where} cannot be read: {why}. Check sasl.oauthbearer.token.endpoint.url"
        ) from None
    return read_token(text, where, subject_claim=subject_claim)


def _of_class(named: TokenClass, subject_claim: str) -> AccessToken:
    where = f"{CLASS_PROPERTY} {named.name}"
    try:
        text = _token_function(named)()
    except ConfigError as error:
        raise NoCredentials(str(error)) from error
    except Exception as error:
        why = f"{type(error).__name__}: {error}"[:_LARGEST_CLASS_ERROR]
        raise NoCredentials(f"{where}: token() failed: {why}", may_pass=True) from error
    if not isinstance(text, str):
        raise NoCredentials(
            f"{where}: token() returned {type(text).__name__}. It must return the token as a str"
        )
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


def _new(login: OAuthLogin) -> tuple[AccessToken, float]:
    token = retrieve(login)
    # A file is cheap to read, and its program decides when the token is replaced.
    return token, 0.0 if isinstance(login.source, TokenFile) else token.lives_s or 0.0


#: The tokens of this process.
held_tokens: Keeper[OAuthLogin, AccessToken] = Keeper(_new)


def subject_of(login: OAuthLogin) -> str:
    """Return the subject of the token of this process; empty if it is unknown without a request."""
    try:
        token = retrieve(login) if isinstance(login.source, TokenFile) else held_tokens.known(login)
    except NoCredentials:
        return ""
    return "" if token is None else token.subject


_SEPARATOR = "\x01"

_ADVICE = (
    "Compare the token's issuer, audience, scope and lifetime with the broker's settings, whose log has the "
    "reason. At Amazon MSK, allow kafka-cluster:Connect to this identity, and check region and clock"
)


def by_token(login: OAuthLogin) -> Exchange:
    """
    Log in by a token; if the broker refuses it, an empty message ends the exchange.

    Raises:
        NoCredentials: There is none.
        ValueError: The broker sends a second message after its refusal.

    """
    token = held_tokens.current(login)
    pairs = [("auth", f"Bearer {token.value}"), *login.extensions]
    named = "".join(f"{name}={value}{_SEPARATOR}" for name, value in pairs)
    status = ""
    try:
        # No channel binding, and no authorization id: it is that of the token.
        answer = yield f"n,,{_SEPARATOR}{named}{_SEPARATOR}".encode()
        if answer:
            # RFC 7628, 3.2.2: the broker sends its reason, and fails the login when we have answered.
            status = _status(answer)
            if (yield _SEPARATOR.encode()):
                raise ValueError("its message does not fit the mechanism")
    except LoginRefused as refused:
        held_tokens.discard(login, token)  # a new one may be accepted
        whose = f" of {token.subject!r}" if token.subject else ""
        shown = f" ({status})" if status else ""
        raise LoginRefused(
            f"it does not accept the access token{whose} by OAUTHBEARER{shown}. {_ADVICE}"
        ) from refused


def _status(token: bytes) -> str:
    try:
        answer = json.loads(token)
    except ValueError:
        return ""
    status = answer.get("status") if isinstance(answer, dict) else None
    return status[:100] if isinstance(status, str) else ""
