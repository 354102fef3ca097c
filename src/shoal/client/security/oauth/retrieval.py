"""A token from its source."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from ....errors import ConfigError
from ....named_class import find_class
from .sources import AwsIam, OAuthLogin, TokenClass, TokenEndpoint, TokenFile
from .token import AccessToken, NoToken, read_token

__all__ = ["CLASS_PROPERTY", "class_of", "retrieve"]

CLASS_PROPERTY = "sasl.login.callback.handler.class"

#: The most characters of an error of a user's class in ours.
_LARGEST_ERROR = 200


def retrieve(login: OAuthLogin) -> AccessToken:
    """
    Get a new token; this may take seconds.

    Raises:
        NoToken: The source gives no usable token.

    """
    match login.source:
        case TokenEndpoint() as endpoint:
            # Imported here and below: urllib takes 30 ms of CPU, and the packages of AWS far more.
            from .endpoint import request_token

            return request_token(endpoint, login.subject_claim)
        case TokenFile() as file:
            return _of_file(file, login.subject_claim)
        case TokenClass() as named:
            return _of_class(named, login.subject_claim)
        case AwsIam() as iam:
            try:
                from .aws import sign_token
            except ModuleNotFoundError as error:
                # The driver has it, or it would not have read the properties.
                raise NoToken(
                    f"AWS_MSK_IAM needs the package {error.name}. Install 'shoal[msk]' on this machine, too"
                ) from error
            return sign_token(iam)


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
        why = f"{type(error).__name__}: {error}"[:_LARGEST_ERROR]
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
