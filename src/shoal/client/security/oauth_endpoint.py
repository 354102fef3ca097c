"""
A token from an OAuth token endpoint, by client credentials.

The request is that of Kafka's own client (``ClientCredentialsRequestFormatter``): id and secret in a Basic
header, the rest in the body. Redirects are refused, since they would carry the secret to another server.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.request
from functools import partial
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

from ...in_thread import in_thread
from .login import NoCredentials, TokenEndpoint, shown_url
from .tls import tls_context, tls_refusal
from .token import AccessToken, read_token

__all__ = ["request_token"]

_LARGEST_ANSWER = 1024 * 1024

#: The most characters of an endpoint's own error text in ours.
_LARGEST_ERROR = 200

#: Statuses that say nothing about the request: a timeout, too many requests. So do all from 500 on.
_MAY_PASS = frozenset({408, 425, 429})

_URL = "sasl.oauthbearer.token.endpoint.url"

_CREDENTIALS = (
    "Check sasl.oauthbearer.client.credentials.client.id and "
    "sasl.oauthbearer.client.credentials.client.secret, or clientId and clientSecret in sasl.jaas.config"
)


def request_token(endpoint: TokenEndpoint, subject_claim: str) -> AccessToken:
    """
    Request a token.

    Raises:
        NoCredentials: The endpoint does not answer, refuses the credentials, or sends no usable token.

    """
    where = f"the token endpoint {shown_url(endpoint.url)}"
    answer = _post(endpoint, where)
    # As Kafka's client (JwtResponseParser); some services return only an id_token.
    token = next((answer[name] for name in ("access_token", "id_token") if answer.get(name)), None)
    if not isinstance(token, str):
        raise NoCredentials(
            f"{where} sent an answer without an access_token. Check {_URL}, and that the service allows the "
            "grant client_credentials"
        )
    lives_s = _lifetime_s(answer.get("expires_in"))
    return read_token(token, f"the answer of {where}", subject_claim=subject_claim, lives_s=lives_s)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Leave a redirect to the caller, as an error."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _post(endpoint: TokenEndpoint, where: str) -> dict[str, Any]:
    """
    Send the request, and return the JSON object of the answer.

    One limit holds for all of it: a socket's timeout begins again with each byte.
    """
    asked = in_thread("shoal-token", partial(_answer, endpoint, where))
    try:
        return asked.result(endpoint.timeout_ms / 1000)
    except TimeoutError as error:
        raise _no_answer(error, endpoint, where) from None


def _answer(endpoint: TokenEndpoint, where: str) -> dict[str, Any]:
    secured = urllib.request.HTTPSHandler(context=tls_context(endpoint.tls))
    opener = urllib.request.build_opener(secured, _NoRedirect())
    try:
        with opener.open(_request(endpoint), timeout=endpoint.timeout_ms / 1000) as response:
            answer = _json(response)
    except urllib.error.HTTPError as error:
        with error:
            raise _refusal(error, endpoint, where) from None
    except (OSError, http.client.HTTPException, UnicodeError) as error:  # a label too long for DNS
        raise _no_answer(error, endpoint, where) from None
    if answer is None:
        raise NoCredentials(f"{where} sent an answer that is not a JSON object. Check {_URL}")
    return answer


def _request(endpoint: TokenEndpoint) -> urllib.request.Request:
    client = endpoint.client
    user = (client.client_id, client.client_secret)
    if client.escapes_header:
        user = (quote_plus(user[0]), quote_plus(user[1]))
    fields = {"grant_type": "client_credentials"} | ({"scope": endpoint.scope} if endpoint.scope else {})
    return urllib.request.Request(  # noqa: S310 (the scheme is checked with the properties)
        endpoint.url,
        urlencode(fields).encode(),
        {
            "Accept": "application/json",
            "Cache-Control": "no-cache",
            "Content-Type": "application/x-www-form-urlencoded",
            "User-Agent": "shoal",  # services refuse urllib's own
            "Authorization": f"Basic {base64.b64encode(':'.join(user).encode()).decode()}",
        },
    )


def _json(response: Any) -> dict[str, Any] | None:
    try:
        answer = json.loads(response.read(_LARGEST_ANSWER))
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _refusal(error: urllib.error.HTTPError, endpoint: TokenEndpoint, where: str) -> NoCredentials:
    """Return the error for an answer with another status than 2xx."""
    reason = f"{where} answered with status {error.code}{_said(error, endpoint)}"
    if 300 <= error.code < 400:
        target = shown_url(error.headers.get("Location") or "")
        return NoCredentials(f"{reason}, a redirect to {target!r}. Set {_URL} to the last URL")
    if error.code >= 500 or error.code in _MAY_PASS:
        return NoCredentials(f"{reason}. Check the service", may_pass=True)
    if error.code in (404, 405):
        return NoCredentials(f"{reason}. Check {_URL}")
    return NoCredentials(
        f"{reason}. {_CREDENTIALS}" + (", and sasl.oauthbearer.scope" if endpoint.scope else "")
    )


def _said(error: urllib.error.HTTPError, endpoint: TokenEndpoint) -> str:
    """Return the error's code and description (RFC 6749, section 5.2), without our secret."""
    try:
        answer = _json(error) or {}
    except (OSError, http.client.HTTPException):
        return ""
    # The second pair is that of Okta, as in Kafka's client.
    for names in (("error", "error_description"), ("errorCode", "errorSummary")):
        said = ": ".join(answer[name] for name in names if isinstance(answer.get(name), str))
        if said:
            said = said.replace(endpoint.client.client_secret, "…")
            return f" ({said[:_LARGEST_ERROR]})"
    return ""


def _no_answer(error: Exception, endpoint: TokenEndpoint, where: str) -> NoCredentials:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        why = tls_refusal(cause, urlsplit(endpoint.url).hostname or "")
        return NoCredentials(f"{where}: {why}, as an option of sasl.jaas.config")
    if isinstance(cause, TimeoutError):
        why = f"no answer in {endpoint.timeout_ms / 1000:g} s"
    else:
        why = str(getattr(cause, "strerror", None) or cause)
    return NoCredentials(f"{where} cannot be reached: {why}", may_pass=True)


def _lifetime_s(value: Any) -> float | None:
    """Return ``expires_in``, which some services send as text."""
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return None
    return seconds if 0 < seconds < float("inf") else None
