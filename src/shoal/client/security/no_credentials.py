"""The error of a login that has no token or ticket to log in with."""

from __future__ import annotations

__all__ = ["NoCredentials"]


class NoCredentials(Exception):
    """
    There is no access token, or no Kerberos ticket.

    Attributes:
        reason: The source, the problem and the remedy, without a secret.
        may_pass: Whether a retry may succeed without a change of the configuration.

    """

    def __init__(self, reason: str, *, may_pass: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.may_pass = may_pass
