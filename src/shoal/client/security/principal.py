"""
The name of a client at the brokers, as Kafka's defaults derive it from the client's own login.

A password's user and a token's subject are the name itself. A ticket's principal, and the subject of a
certificate, become one by rules of the broker (``sasl.kerberos.principal.to.local.rules``,
``ssl.principal.mapping.rules``); this module follows the rule ``DEFAULT``.
"""

from __future__ import annotations

from cryptography import x509

from .kerberos import principal_of_ticket
from .login import KerberosLogin, OAuthLogin, PasswordLogin, Security
from .tokens import subject_of

__all__ = ["principal_of"]

#: Java's ``X500Principal.getName()`` (RFC 2253) escapes these characters, and RFC 4514 does not everywhere.
_ESCAPED_BY_JAVA = frozenset("=#")


def principal_of(security: Security) -> str | None:
    """Return the principal, as ``User:NAME``; None if only the brokers know it."""
    name: str | None
    match security.login:
        case PasswordLogin() as login:
            return login.user
        case KerberosLogin() as login:
            # The first part of the principal: ``mirror`` of ``mirror/host@REALM``.
            principal = login.principal or principal_of_ticket(login)
            name = principal.partition("@")[0].partition("/")[0]
        case OAuthLogin() as login:
            name = subject_of(login)
        case None:
            certificates = security.tls.certificates if security.tls else None
            if certificates is None:
                return None
            name = _subject_of(certificates)
    return f"User:{name}" if name else None


def _subject_of(certificates: str) -> str | None:
    """
    Return the subject of the first certificate, as ``CN=mirror,OU=data,O=Example``.

    Args:
        certificates: In PEM, the client's own first.

    Returns:
        The subject; None if Java would write it in another way than RFC 4514, or if it is empty.

    """
    subject = x509.load_pem_x509_certificate(certificates.encode()).subject
    return subject.rfc4514_string() or None if all(map(_is_alike, subject)) else None


def _is_alike(attribute: x509.NameAttribute[str | bytes]) -> bool:
    """Return whether Java writes a part of a subject as RFC 4514 does: it has a name there."""
    value = str(attribute.value)
    has_name = attribute.rfc4514_attribute_name != attribute.oid.dotted_string
    return has_name and value == value.strip(" ") and not _ESCAPED_BY_JAVA & set(value)
