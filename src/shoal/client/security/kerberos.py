"""
Kerberos (GSSAPI): Java's properties, the package ``gssapi``, a broker's principal, and errors of libkrb5.

:mod:`.tickets` gets the tickets and logs in with them.
"""

from __future__ import annotations

import base64
import ipaddress
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from .jaas import LoginModule
from .login import KerberosLogin, Keytab, NoCredentials, TicketCache

__all__ = [
    "KERBEROS_MODULE",
    "KERBEROS_PROPERTIES",
    "load_gssapi",
    "no_ticket",
    "read_kerberos",
    "service_host",
    "service_name",
    "shown",
]


def load_gssapi() -> Any:
    """
    Return the package ``gssapi``.

    Raises:
        NoCredentials: The package is missing, or libkrb5.

    """
    # Imported here, since only the extra has it.
    try:
        import gssapi
    except ModuleNotFoundError as error:
        if error.name != "gssapi":
            raise
        raise NoCredentials(
            "GSSAPI needs the package gssapi. Install 'shoal[kerberos]' here and on the machines of Spark's "
            "executors"
        ) from error
    except (ImportError, OSError) as error:
        raise NoCredentials(
            f"GSSAPI: the package gssapi cannot be loaded ({error}). Install the Kerberos libraries of the "
            "operating system (Debian's libgssapi-krb5-2, Red Hat's krb5-libs)"
        ) from error
    return gssapi


KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"

_SERVICE = "sasl.kerberos.service.name"

#: All properties that shoal reads, or ignores because they tune Java's renewals.
KERBEROS_PROPERTIES = frozenset(
    {
        *(_SERVICE, "sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.before.relogin"),
        *("sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor"),
    }
)

#: Options of Krb5LoginModule about prompts, Java's subjects and its log, and those of a login as a broker.
_IGNORED = frozenset(
    """
    clearPass debug doNotPrompt isInitiator refreshKrb5Config renewTGT storeKey storePass tryFirstPass
    useFirstPass
    """.split()  # noqa: SIM905
)
_READ = frozenset({"keyTab", "principal", "serviceName", "ticketCache", "useKeyTab", "useTicketCache"})

#: The first bytes of a keytab: its two versions.
_KEYTAB_VERSIONS = (b"\x05\x01", b"\x05\x02")

#: A keytab has some 100 bytes for each key.
_LARGEST_KEYTAB = 1 << 20


def read_kerberos(properties: Mapping[str, str], module: LoginModule, where: str) -> KerberosLogin:
    """
    Read a login by Kerberos, and its keytab.

    Args:
        properties: All properties of a client.
        module: The login module of ``sasl.jaas.config``.
        where: The properties' source for errors.

    Raises:
        ConfigError: A property is missing, malformed or not supported, or the keytab cannot be read, or the
            extra ``kerberos`` is missing.

    """
    try:
        load_gssapi()
    except NoCredentials as error:
        raise ConfigError(f"{where}: {error.reason}") from error
    module.refuse_others(_READ | _IGNORED, where)
    by_keytab, by_cache = module.is_on("useKeyTab"), module.is_on("useTicketCache")
    if not by_keytab and not by_cache:
        raise ConfigError(
            f"{where}: sasl.jaas.config has neither useKeyTab=true nor useTicketCache=true. Set one of them"
        )
    principal = module.option("principal") or None
    return KerberosLogin(
        service=_service(properties, module, where),
        principal=principal,
        keytab=_keytab(module, principal, where) if by_keytab else None,
        ticket_cache=TicketCache(module.option("ticketCache") or None) if by_cache else None,
    )


def _service(properties: Mapping[str, str], module: LoginModule, where: str) -> str:
    service = properties.get(_SERVICE, "").strip() or module.option("serviceName")
    if not service:
        raise ConfigError(
            f"{where}: no {_SERVICE}, the first part of the brokers' principals. Set it, usually to kafka"
        )
    return service


def _keytab(module: LoginModule, principal: str | None, where: str) -> Keytab:
    where = f"{where}: sasl.jaas.config:"
    path = module.option("keyTab").removeprefix("FILE:")
    if not path or principal is None:
        raise ConfigError(f"{where} useKeyTab=true needs keyTab, a path, and principal, a name")
    try:
        with Path(path).open("rb") as file:
            content = file.read(_LARGEST_KEYTAB)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"{where} keyTab {path} cannot be read: {why}") from error
    if not content.startswith(_KEYTAB_VERSIONS):
        raise ConfigError(f"{where} keyTab {path} is not a keytab. Export one by kadmin's ktadd or ktpass")
    return Keytab(path, base64.b64encode(content).decode())


def service_host(host: str) -> str:
    """
    Return the host in a broker's principal.

    Java takes the host that the client connects to. If that is an address, it takes its name by a reverse
    lookup. If the canonical name is a longer form of the name (``kafka1`` and ``kafka1.example``), it takes
    the longer one. libkrb5 takes the name of a reverse lookup in any case, if krb5.conf does not forbid it.
    """
    name = _name_of_address(host) if _is_address(host) else host
    name = name.rstrip(".").lower()
    canonical = _canonical(name)
    return canonical if canonical.startswith(f"{name}.") else name


def service_name(service: str, host: str) -> Any:
    """
    Return the principal of a broker, as a name of the package ``gssapi``.

    The realm is that of ``domain_realm`` in krb5.conf. If there is none, the KDC finds it.

    Raises:
        NoCredentials: There is no package ``gssapi``.
        GSSError: The name is malformed, or krb5.conf cannot be read.

    """
    gssapi = load_gssapi()
    by_host = gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service)
    realm = str(by_host.canonicalize(gssapi.MechType.kerberos)).rpartition("@")[2]
    # By its principal: libkrb5 looks up no other name for it.
    return gssapi.Name(f"{service}/{host}@{realm}", gssapi.NameType.kerberos_principal)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _name_of_address(address: str) -> str:
    """Return the name of an address if the name has this address, too; else the address, as Java does."""
    try:
        name = socket.getnameinfo((address, 0), socket.NI_NAMEREQD)[0]
        known = {found[4][0] for found in socket.getaddrinfo(name, None)}
    except (OSError, UnicodeError):
        return address
    return name if address in known else address


def _canonical(host: str) -> str:
    try:
        address = str(socket.getaddrinfo(host, None)[0][4][0])
        return socket.getnameinfo((address, 0), socket.NI_NAMEREQD)[0].rstrip(".").lower()
    except (OSError, UnicodeError):
        return host


#: KRB5_KDC_UNREACH and KRB5_REALM_CANT_RESOLVE: failures that end without a change of the configuration.
_MAY_PASS = frozenset({-1765328228, -1765328164})

_REMEDY = (
    "Check principal, keyTab and ticketCache in sasl.jaas.config (klist -k, kinit), "
    "sasl.kerberos.service.name, the clocks of this machine and the KDC, and realms and default_realm in "
    "krb5.conf. KRB5_TRACE=/dev/stderr shows more"
)


def no_ticket(error: Any, wanted: str) -> NoCredentials:
    """
    Return the error for a GSSError.

    Args:
        error: The error of the package ``gssapi``.
        wanted: The login or service without a ticket, such as ``the principal alice``.

    """
    code = error.min_code or 0
    may_pass = (code - 2**32 if code >= 2**31 else code) in _MAY_PASS
    return NoCredentials(f"no Kerberos ticket for {wanted}: {shown(error)}. {_REMEDY}", may_pass=may_pass)


def shown(error: Any) -> str:
    """Return the message of libkrb5 alone, or that of GSSAPI if there is none."""
    is_minor = error.min_code not in (0, None) and error.get_all_statuses(error.min_code, False) != [
        "Success"
    ]
    statuses = error.get_all_statuses(error.min_code if is_minor else error.maj_code, not is_minor)
    return " ".join(map(str, statuses)).rstrip(". ")
