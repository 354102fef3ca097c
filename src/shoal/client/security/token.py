"""An access token: its text, and the claims that a client needs of it."""

from __future__ import annotations

import base64
import json
import re
import time
from dataclasses import dataclass, field
from typing import Any

from .login import NoCredentials

__all__ = ["AccessToken", "read_token"]

#: The characters of a token (RFC 6750, section 2.1). Others could end the message that it is sent in.
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")

#: Brokers read messages of half a megabyte before a login (``BrokerSecurityConfigs``: 524288).
_LARGEST_TOKEN = 500_000


@dataclass(frozen=True, slots=True)
class AccessToken:
    """
    A token for a login. The ``repr()`` does not contain it.

    Attributes:
        subject: The principal's name for errors; empty if the token does not reveal it.
        lives_s: The seconds from now until it expires; None if it does not reveal it.

    """

    value: str = field(repr=False)
    subject: str = ""
    lives_s: float | None = None


def read_token(
    text: str, where: str, *, subject_claim: str = "sub", lives_s: float | None = None
) -> AccessToken:
    """
    Check a token, and read its claims if it is a JWT; only brokers check signatures.

    Args:
        where: The token's source, for errors.
        subject_claim: The claim that names the principal.
        lives_s: The lifetime that the source states. Without it, the token's own end is compared with the
            clock of this machine.

    Raises:
        NoCredentials: The text is no token, or the token has expired.

    """
    text = text.strip()
    if not text:
        raise NoCredentials(f"{where} is empty. It must contain an access token")
    if not _TOKEN.fullmatch(text) or len(text) > _LARGEST_TOKEN:
        raise NoCredentials(
            f"{where} contains no access token: it has spaces or other characters that no token has"
        )
    claims = _claims(text)
    expires_at = claims.get("exp")
    if lives_s is None and isinstance(expires_at, (int, float)) and not isinstance(expires_at, bool):
        lives_s = expires_at - time.time()
    if lives_s is not None and lives_s <= 0:
        raise NoCredentials(
            f"{where} has an access token that expired {-lives_s:,.0f} s ago. Renew it, or compare the "
            "clocks of both machines"
        )
    subject = claims.get(subject_claim)
    return AccessToken(text, subject if isinstance(subject, str) else "", lives_s)


def _claims(token: str) -> dict[str, Any]:
    """Return the claims of a JWT (RFC 7519); none of an opaque or encrypted token."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}
    return claims if isinstance(claims, dict) else {}
