"""
The name of a client at the brokers, as Kafka's defaults derive it from the client's own login.

A password's user and a token's subject are the name itself. A ticket's principal, and the subject of a
certificate, become one by rules of the broker (``sasl.kerberos.principal.to.local.rules``,
``ssl.principal.mapping.rules``); this module follows the rule ``DEFAULT``.
"""

from __future__ import annotations

from .login import KerberosLogin, OAuthLogin, PasswordLogin, Security

__all__ = ["principal_of"]


def principal_of(security: Security) -> str | None:
    """Return the principal, as ``User:NAME``; None if only the brokers know it."""
    name: str | None
    match security.login:
        case PasswordLogin() as login:
            return login.user
        case KerberosLogin() as login:
            name = _of_ticket(login)
        case OAuthLogin() as login:
            # Imported here and below: the packages that read tokens and certificates take long to import.
            from .tokens import held_tokens

            name = held_tokens.subject(login)
        case None:
            certificates = security.tls.certificates if security.tls else None
            if certificates is None:
                return None
            from .subject import subject_of

            name = subject_of(certificates)
    return f"User:{name}" if name else None


def _of_ticket(login: KerberosLogin) -> str:
    """Return the first part of the principal of a keytab or ticket: ``mirror`` of ``mirror/host@REALM``."""
    from .tickets import held_tickets

    principal = login.principal or held_tickets.principal(login)
    return principal.partition("@")[0].partition("/")[0]
