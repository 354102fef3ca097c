"""Read the properties and the JAAS options of GSSAPI into a :class:`KerberosLogin`."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

from ....errors import ConfigError
from ..jaas import LoginModule
from .library import NoTicket, load_gssapi
from .login import DEFAULT_KINIT, KerberosLogin, Keytab, TicketCache

__all__ = ["KERBEROS_MODULE", "KERBEROS_PROPERTIES", "read_kerberos"]

KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"

_SERVICE = "sasl.kerberos.service.name"
_KINIT = "sasl.kerberos.kinit.cmd"

#: All properties that shoal reads, or ignores because they tune the time of Java's renewals.
KERBEROS_PROPERTIES = frozenset(
    {
        *(_SERVICE, _KINIT, "sasl.kerberos.min.time.before.relogin"),
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
    except NoTicket as error:
        raise ConfigError(f"{where}: {error.reason}") from error
    options = module.options
    unknown = sorted(options.keys() - _READ - _IGNORED)
    if unknown:
        raise ConfigError(f"{where}: sasl.jaas.config has the unknown option {unknown[0]}. Remove it")
    _check_switches(options, where)
    if not _is_on(options, "useKeyTab") and not _is_on(options, "useTicketCache"):
        raise ConfigError(
            f"{where}: sasl.jaas.config has neither useKeyTab=true nor useTicketCache=true. Set one of them: "
            "shoal asks for no password"
        )
    principal = options.get("principal", "").strip() or None
    return KerberosLogin(
        service=_service(properties, options, where),
        principal=principal,
        keytab=_keytab(options, principal, where) if _is_on(options, "useKeyTab") else None,
        ticket_cache=_ticket_cache(properties, options) if _is_on(options, "useTicketCache") else None,
    )


def _check_switches(options: Mapping[str, str], where: str) -> None:
    """Check the options that have an effect only with another one, as Java does."""
    for option, switch in (
        ("keyTab", "useKeyTab"),
        ("ticketCache", "useTicketCache"),
        ("renewTGT", "useTicketCache"),
    ):
        is_set = _is_on(options, option) if option == "renewTGT" else option in options
        if is_set and not _is_on(options, switch):
            raise ConfigError(f"{where}: sasl.jaas.config has {option} without {switch}=true. Set it")
    if options.get("isInitiator", "true").lower() != "true":
        raise ConfigError(f"{where}: sasl.jaas.config: isInitiator must be true for a client. Remove it")


def _service(properties: Mapping[str, str], options: Mapping[str, str], where: str) -> str:
    by_property = properties.get(_SERVICE, "").strip()
    by_option = options.get("serviceName", "").strip()
    if by_property and by_option and by_property != by_option:
        raise ConfigError(
            f"{where}: {_SERVICE}={by_property} and serviceName={by_option} of sasl.jaas.config differ. "
            "Remove one of them"
        )
    service = by_property or by_option
    if not service:
        raise ConfigError(
            f"{where}: no {_SERVICE}, the first part of the brokers' principals. Set it, usually to kafka"
        )
    if "/" in service or "@" in service:
        raise ConfigError(
            f"{where}: {_SERVICE}={service} has a host or a realm. Set it to the part before them"
        )
    return service


def _keytab(options: Mapping[str, str], principal: str | None, where: str) -> Keytab:
    where = f"{where}: sasl.jaas.config:"
    path = options.get("keyTab", "").strip().removeprefix("FILE:")
    if not path:
        raise ConfigError(f"{where} useKeyTab=true needs keyTab, the path of the keytab")
    if principal is None or principal == "*":
        raise ConfigError(f"{where} useKeyTab=true needs principal, such as mirror@EXAMPLE.COM")
    try:
        with Path(path).open("rb") as file:
            content = file.read(_LARGEST_KEYTAB)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"{where} keyTab {path} cannot be read: {why}") from error
    if not content.startswith(_KEYTAB_VERSIONS):
        raise ConfigError(f"{where} keyTab {path} is not a keytab. Export one by kadmin's ktadd or ktpass")
    return Keytab(path, base64.b64encode(content).decode())


def _ticket_cache(properties: Mapping[str, str], options: Mapping[str, str]) -> TicketCache:
    return TicketCache(
        options.get("ticketCache", "").strip() or None,
        properties.get(_KINIT, "").strip() or DEFAULT_KINIT,
    )


def _is_on(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "").strip().lower() == "true"
