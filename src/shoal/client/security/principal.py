"""
The name of a client at the brokers, as Kafka's defaults derive it from the client's own login.

A password's user and a token's subject are the name itself. A ticket's principal, and the subject of a
certificate, become one by rules of the broker (``sasl.kerberos.principal.to.local.rules``,
``ssl.principal.mapping.rules``); this module follows the rule ``DEFAULT``. A subject is written as Java's
``X500Principal.getName()`` writes it (RFC 2253).
"""

from __future__ import annotations

from cryptography import x509
from cryptography.x509.oid import NameOID

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


#: The types that RFC 2253 names. Java writes others as numbers, with the value's encoding in hexadecimal.
_NAMES = {
    NameOID.COMMON_NAME: "CN",
    NameOID.LOCALITY_NAME: "L",
    NameOID.STATE_OR_PROVINCE_NAME: "ST",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.COUNTRY_NAME: "C",
    NameOID.STREET_ADDRESS: "STREET",
    NameOID.DOMAIN_COMPONENT: "DC",
    NameOID.USER_ID: "UID",
}

#: The characters that Java's ``sun.security.x509.AVA`` escapes: those of RFC 2253, and ``=`` and ``#``.
_ESCAPED = ',=+<>#;"\\'


def _subject_of(certificates: str) -> str | None:
    """
    Return the subject of the first certificate, as ``CN=mirror,OU=data,O=Example``.

    Args:
        certificates: In PEM, the client's own first.

    Returns:
        The subject; None if a part of it has a type that RFC 2253 does not name, or if it is empty.

    """
    subject = x509.load_pem_x509_certificate(certificates.encode()).subject
    if any(each.oid not in _NAMES for each in subject):
        return None
    parts = ("+".join(map(_pair, part)) for part in reversed(subject.rdns))
    return ",".join(parts) or None


def _pair(attribute: x509.NameAttribute[str | bytes]) -> str:
    return f"{_NAMES[attribute.oid]}={_escape(str(attribute.value))}"


def _escape(value: str) -> str:
    found = "".join(f"\\{each}" if each in _ESCAPED else each for each in value)
    inner = found.strip(" ")
    begin = len(found) - len(found.lstrip(" "))
    end = len(found) - len(inner) - begin
    return "\\ " * begin + inner + "\\ " * end
