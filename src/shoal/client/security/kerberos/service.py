"""The principal of a broker, computed from its host as Java does."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

from .library import load_gssapi

__all__ = ["service_host", "service_name"]


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
        NoTicket: There is no package ``gssapi``.
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
