"""The client's side of OAUTHBEARER (RFC 7628), without I/O."""

from __future__ import annotations

import json

from .held import HeldTokens, held_tokens
from .sources import AwsIam, OAuthLogin

__all__ = ["BearerExchange"]

_SEPARATOR = "\x01"

_ADVICE = (
    "Compare the token's issuer, audience, scope and lifetime with the broker's settings. The broker's log "
    "has the reason"
)
_IAM_ADVICE = "Allow kafka-cluster:Connect to this identity, and check the region and this machine's clock"


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
        self._token = tokens.token(login)
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
        advice = _IAM_ADVICE if isinstance(self._login.source, AwsIam) else _ADVICE
        return f"it does not accept the access token{whose} by OAUTHBEARER{status}. {advice}"

    def accepted(self, session_s: float) -> None:
        """Let the token end with its session, if that is a bit shorter by the broker's clock."""
        self._tokens.limit(self._login, self._token, session_s)

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
