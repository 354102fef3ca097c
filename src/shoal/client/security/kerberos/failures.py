"""Sentences for the errors of libkrb5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .library import NoTicket

__all__ = ["no_ticket", "shown"]

#: The first of libkrb5's error codes (krb5.h, ERROR_TABLE_BASE_krb5). Those of RFC 4120 follow in its order.
_BASE = -1765328384

_CLIENT_UNKNOWN, _SERVICE_UNKNOWN, _REVOKED, _KEY_EXPIRED, _WRONG_KEY = 6, 7, 18, 23, 24
_TICKET_EXPIRED, _NOT_YET_VALID, _SKEW = 32, 33, 37
#: Errors of libkrb5 itself: KRB5_CONFIG_CANTOPEN, KRB5_CONFIG_BADFORMAT, KRB5_CC_NOTFOUND, KRB5_KDCREP_SKEW,
#: KRB5_REALM_UNKNOWN, KRB5_KDC_UNREACH, KRB5_KT_NOTFOUND, KRB5_FCC_NOFILE, KRB5_REALM_CANT_RESOLVE and
#: KRB5_CONFIG_NODEFREALM.
_NO_CONFIG, _BAD_CONFIG, _NO_CACHE, _ANSWER_SKEW, _NO_KDC = 135, 136, 141, 148, 154
_KDC_UNREACHABLE, _NO_KEY, _NO_FILE, _KDC_UNRESOLVED, _NO_REALM = 156, 181, 195, 220, 224
#: gssapi_err_krb5.h, KG_CCACHE_NOMATCH
_OTHER_PRINCIPAL = 39756032

_CLOCKS = "Compare the clocks of this machine and the KDC. They may differ by 5 minutes"
_REALM = "Check the realm and its kdc in krb5.conf (KRB5_CONFIG)"
_KINIT = "Run kinit, and name the file by ticketCache in sasl.jaas.config, or by KRB5CCNAME"

_REMEDIES: Mapping[int, str] = {
    _CLIENT_UNKNOWN: "Check principal in sasl.jaas.config",
    _SERVICE_UNKNOWN: (
        "Check sasl.kerberos.service.name, and that the KDC has a principal for the broker's host of "
        "advertised.listeners"
    ),
    _REVOKED: "Unlock the principal at the KDC",
    _KEY_EXPIRED: "Change the principal's key at the KDC, and export the keytab again",
    _WRONG_KEY: "The keytab has another key than the KDC. Export it again",
    _TICKET_EXPIRED: _KINIT,
    _NOT_YET_VALID: _CLOCKS,
    _SKEW: _CLOCKS,
    _ANSWER_SKEW: _CLOCKS,
    _NO_CACHE: _KINIT,
    _NO_FILE: _KINIT,
    _NO_KEY: "Check principal and keyTab in sasl.jaas.config: klist -k shows the principals of a keytab",
    _NO_KDC: _REALM,
    _KDC_UNRESOLVED: _REALM,
    _KDC_UNREACHABLE: f"{_REALM}, and the network",
    _BAD_CONFIG: "Correct krb5.conf",
    _NO_CONFIG: "Set KRB5_CONFIG to a readable krb5.conf",
    _NO_REALM: "Set default_realm in krb5.conf, or write the realm in principal",
    _OTHER_PRINCIPAL: "Remove principal from sasl.jaas.config, or name another cache by ticketCache",
}

#: Failures that end without a change of the configuration.
_MAY_PASS = frozenset({_KDC_UNRESOLVED, _KDC_UNREACHABLE})


def no_ticket(error: Any, wanted: str, *, by_keytab: bool = False) -> NoTicket:
    """
    Return the error for a GSSError.

    Args:
        error: The error of the package ``gssapi``.
        wanted: The login or service without a ticket, such as ``the principal alice``.
        by_keytab: Whether the ticket would come from a keytab.

    """
    code = _code(error)
    if by_keytab and code in (_NO_CACHE, _NO_FILE):
        # libkrb5 asks the KDC only if the keytab has a key of the principal.
        return NoTicket(
            f"no Kerberos ticket for {wanted}: it has no key of this principal. {_REMEDIES[_NO_KEY]}"
        )
    remedy = _REMEDIES.get(code, "Try kinit and kvno with KRB5_TRACE=/dev/stderr to find the reason")
    return NoTicket(f"no Kerberos ticket for {wanted}: {shown(error)}. {remedy}", may_pass=code in _MAY_PASS)


def shown(error: Any) -> str:
    """Return the message of libkrb5 alone, or that of GSSAPI if there is none."""
    is_minor = error.min_code not in (0, None) and error.get_all_statuses(error.min_code, False) != [
        "Success"
    ]
    statuses = error.get_all_statuses(error.min_code if is_minor else error.maj_code, not is_minor)
    return " ".join(map(str, statuses)).rstrip(". ")


def _code(error: Any) -> int:
    """Return the code as its distance from libkrb5's first one, or as it is for other codes."""
    code = error.min_code or 0
    signed = code - 2**32 if code >= 2**31 else code
    return signed - _BASE if _BASE <= signed < _BASE + 256 else signed
