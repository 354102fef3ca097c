"""
The name of a client at the brokers, as Kafka's defaults derive it from the client's own login.

A password's user and a token's subject are the name itself. A ticket's principal, and the subject of a
certificate, become one by rules of the broker (``sasl.kerberos.principal.to.local.rules``,
``ssl.principal.mapping.rules``); this module follows the rule ``DEFAULT``. Java's ``X500Principal.getName()``
(RFC 2253) writes most subjects as RFC 4514 does.
"""

from __future__ import annotations

import re

from cryptography import x509

from .login import KerberosLogin, OAuthLogin, PasswordLogin, Security
from .tickets import held_tickets
from .tokens import held_tokens

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
            name = held_tokens.subject(login)
        case None:
            certificates = security.tls.certificates if security.tls else None
            if certificates is None:
                return None
            name = _subject_of(certificates)
    return f"User:{name}" if name else None


def _of_ticket(login: KerberosLogin) -> str:
    """Return the first part of the principal of a keytab or ticket: ``mirror`` of ``mirror/host@REALM``."""
    principal = login.principal or held_tickets.principal(login)
    return principal.partition("@")[0].partition("/")[0]


#: Java's ``sun.security.x509.AVA`` escapes these in another way than RFC 4514: such a subject is not known.
_WRITTEN_OTHERWISE = re.compile(r"[=#]|^\s|\s$")


def _subject_of(certificates: str) -> str | None:
    """
    Return the subject of the first certificate, as ``CN=mirror,OU=data,O=Example``.

    Args:
        certificates: In PEM, the client's own first.

    Returns:
        The subject. None if it is empty, or if Java would write it in another way than RFC 4514: a value, or
        a type without a name, which Java writes as numbers.

    """
    subject = x509.load_pem_x509_certificate(certificates.encode()).subject
    for each in subject:
        is_named = each.rfc4514_attribute_name.isalpha()
        if not is_named or _WRITTEN_OTHERWISE.search(str(each.value)):
            return None
    return subject.rfc4514_string() or None
