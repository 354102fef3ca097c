"""
Kerberos (GSSAPI): Java's properties, a broker's principal, the tickets of this process, and logins with them.

The tickets of a keytab are in libkrb5's memory: no other process sees them, and none is written to a file.
The tickets of a ticket cache belong to another program, so each login reads them again. A login is that of
RFC 4752.
"""

from __future__ import annotations

import base64
import ipaddress
import itertools
import os
import socket
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...secret_file import as_file
from .held import Keeper
from .jaas import LoginModule
from .login import Exchange, KerberosLogin, Keytab, LoginRefused, NoCredentials, TicketCache

__all__ = [
    "KERBEROS_MODULE",
    "KERBEROS_PROPERTIES",
    "by_ticket",
    "load_gssapi",
    "principal_of_ticket",
    "read_kerberos",
    "service_host",
    "tickets_of_keytab",
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


def _service_name(service: str, host: str) -> Any:
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


def _no_ticket(error: Any, wanted: str) -> NoCredentials:
    """
    Return the error for a GSSError.

    Args:
        error: The error of the package ``gssapi``.
        wanted: The login or service without a ticket, such as ``the principal alice``.

    """
    code = error.min_code or 0
    may_pass = (code - 2**32 if code >= 2**31 else code) in _MAY_PASS
    return NoCredentials(f"no Kerberos ticket for {wanted}: {_shown(error)}. {_REMEDY}", may_pass=may_pass)


def _shown(error: Any) -> str:
    """Return the message of libkrb5 alone, or that of GSSAPI if there is none."""
    is_minor = error.min_code not in (0, None) and error.get_all_statuses(error.min_code, False) != [
        "Success"
    ]
    statuses = error.get_all_statuses(error.min_code if is_minor else error.maj_code, not is_minor)
    return " ".join(map(str, statuses)).rstrip(". ")


#: A broker that refuses a ticket may have a new key, and the cache a ticket for the old one. New tickets need
#: a new cache, and libkrb5 keeps the old one until the process ends. So this is the shortest pause.
_YOUNGEST_DISCARDED_S = 300.0

_caches = itertools.count(1)


def _of_cache(login: KerberosLogin, cache: TicketCache) -> Any:
    gssapi = load_gssapi()
    store = {"ccache": cache.name} if cache.name else {}
    try:
        found = gssapi.Credentials(name=_name(login), usage="initiate", store=store)
        found.lifetime  # noqa: B018 (raises if they have expired)
    except gssapi.exceptions.ExpiredCredentialsError as error:
        raise NoCredentials(f"no Kerberos ticket: the one in {cache} has expired. Run kinit") from error
    except gssapi.exceptions.GSSError as error:
        raise _no_ticket(error, f"a login by {cache}") from error
    return found


def tickets_of_keytab(login: KerberosLogin) -> tuple[Any, float]:
    """Return new credentials in a cache of their own, and the seconds that they live."""
    gssapi = load_gssapi()
    keytab = login.keytab
    assert keytab is not None
    try:
        with _file_of(keytab) as file:
            store = {"client_keytab": f"FILE:{file}", "ccache": f"MEMORY:shoal-{next(_caches)}"}
            found = gssapi.Credentials(name=_name(login), usage="initiate", store=store)
            return found, float(found.lifetime)
    except gssapi.exceptions.GSSError as error:
        raise _no_ticket(error, f"{login.user} by the keytab {keytab.path!r}") from error


def _name(login: KerberosLogin) -> Any:
    gssapi = load_gssapi()
    if login.principal is None:
        return None
    return gssapi.Name(login.principal, gssapi.NameType.kerberos_principal)


def _file_of(keytab: Keytab) -> AbstractContextManager[str]:
    """Return the keytab's file for libkrb5, which reads files alone, or one with what it had at the start."""
    if os.access(keytab.path, os.R_OK):
        return nullcontext(keytab.path)
    return as_file(base64.b64decode(keytab.content))


#: The tickets of this process: credentials of the package ``gssapi``.
held_tickets: Keeper[KerberosLogin, Any] = Keeper(tickets_of_keytab)


def principal_of_ticket(login: KerberosLogin) -> str:
    """Return the principal of the ticket of a login by a ticket cache; empty if there is none."""
    try:
        return str(_credentials(login, held_tickets).name)
    except NoCredentials:
        return ""


def _credentials(login: KerberosLogin, tickets: Keeper[KerberosLogin, Any]) -> Any:
    """
    Return the credentials of a login; this may ask the KDC, which takes seconds.

    Raises:
        NoCredentials: There is no ticket, and the KDC gives none.

    """
    if login.ticket_cache is not None:
        try:
            return _of_cache(login, login.ticket_cache)
        except NoCredentials:
            # As in Java, the keytab comes second.
            if login.keytab is None:
                raise
    return tickets.current(login)


#: RFC 4752, 3.1: the security layers of a message, a bit for each, and the largest message (3 bytes).
_LAYERS_BYTES = 4
_NO_LAYER = 1


def by_ticket(
    login: KerberosLogin, host: str, tickets: Keeper[KerberosLogin, Any] = held_tickets
) -> Exchange:
    """
    Log in by a ticket for the broker: its proof, its security layers and its outcome are the three legs.

    Args:
        login: The client's login.
        host: The broker's host, as the client connects to it.
        tickets: The tickets of this process.

    Raises:
        NoCredentials: There is none.
        ValueError: The broker did not prove that it has the service's key, or requires a security layer.

    """
    gssapi = load_gssapi()
    credentials = _credentials(login, tickets)
    host = service_host(host)
    service = f"{login.service}/{host}"
    try:
        principal = str(credentials.name)
        context = gssapi.SecurityContext(
            name=_service_name(login.service, host),
            creds=credentials,
            mech=gssapi.MechType.kerberos,
            flags=[gssapi.RequirementFlag.mutual_authentication],
            usage="initiate",
        )
        token = context.step() or b""
    except gssapi.exceptions.GSSError as error:
        raise _no_ticket(error, f"the service {service}") from error
    try:
        while True:
            token = _proven(context, (yield bytes(token)), service)
            if context.complete:
                break
        _check_layers(context, (yield token))
        # Without an authorization id: it is that of the ticket.
        yield bytes(context.wrap(bytes([_NO_LAYER, 0, 0, 0]), False).message)
    except LoginRefused as refused:
        # The broker may have a new key.
        tickets.discard(login, credentials, _YOUNGEST_DISCARDED_S)
        raise LoginRefused(
            f"it does not accept the Kerberos ticket of {principal!r} for {service!r} by GSSAPI. "
            "Compare the key in the broker's keytab with the KDC's (kvno, klist -k), and the broker's clock. "
            "The broker's log has the reason"
        ) from refused


def _proven(context: Any, token: bytes, service: str) -> bytes:
    """Return the answer to the broker's proof: nothing if the proof is complete."""
    try:
        return bytes(context.step(token) or b"")
    except load_gssapi().exceptions.GSSError as error:
        raise ValueError(
            f"it did not prove that it is {service!r} ({_shown(error)}). Check that it is the right broker"
        ) from error


def _check_layers(context: Any, token: bytes) -> None:
    try:
        message = bytes(context.unwrap(token).message)
    except load_gssapi().exceptions.GSSError as error:
        raise ValueError(f"its message does not fit the mechanism ({_shown(error)})") from error
    if len(message) != _LAYERS_BYTES:
        raise ValueError("its message does not fit the mechanism")
    if not message[0] & _NO_LAYER:
        raise ValueError(
            "it requires a security layer of SASL, which Kafka's protocol does not have. Remove "
            "javax.security.sasl.qop from the broker's settings, and use SASL_SSL to encrypt"
        )
