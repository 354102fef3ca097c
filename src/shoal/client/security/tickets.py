"""
The Kerberos tickets of this process, and logins with them (GSSAPI: RFC 4752).

Those of a keytab are in libkrb5's memory: no other process sees them, and none is written to a file. The
tickets of a ticket cache belong to another program, so each login reads them again.
"""

from __future__ import annotations

import base64
import itertools
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ...secret_file import as_file
from .held import Keeper
from .kerberos import load_gssapi, no_ticket, service_host, service_name, shown
from .login import Exchange, KerberosLogin, Keytab, LoginRefused, NoCredentials, TicketCache

__all__ = ["HeldTickets", "by_ticket", "held_tickets"]

#: A broker that refuses a ticket may have a new key, and the cache a ticket for the old one. New tickets need
#: a new cache, and libkrb5 keeps the old one until the process ends. So this is the shortest pause.
_YOUNGEST_DISCARDED_S = 300.0

_caches = itertools.count(1)


class HeldTickets(Keeper[KerberosLogin, Any]):
    """The tickets of one process: credentials of the package ``gssapi``."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without tickets; ``clock`` returns the seconds of a monotonic clock."""
        super().__init__(_of_keytab, clock)

    def credentials(self, login: KerberosLogin) -> Any:
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
        return self.current(login)

    def principal(self, login: KerberosLogin) -> str:
        """Return the principal of the ticket of a login by a ticket cache; empty if there is none."""
        try:
            return str(self.credentials(login).name)
        except NoCredentials:
            return ""


def _of_cache(login: KerberosLogin, cache: TicketCache) -> Any:
    gssapi = load_gssapi()
    store = {"ccache": cache.name} if cache.name else {}
    try:
        found = gssapi.Credentials(name=_name(login), usage="initiate", store=store)
        found.lifetime  # noqa: B018 (raises if they have expired)
    except gssapi.exceptions.ExpiredCredentialsError as error:
        raise NoCredentials(f"no Kerberos ticket: the one in {cache} has expired. Run kinit") from error
    except gssapi.exceptions.GSSError as error:
        raise no_ticket(error, f"a login by {cache}") from error
    return found


def _of_keytab(login: KerberosLogin) -> tuple[Any, float]:
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
        raise no_ticket(error, f"{login.user} by the keytab {keytab.path!r}") from error


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


#: The tickets of this process.
held_tickets = HeldTickets()


#: RFC 4752, 3.1: the security layers of a message, a bit for each, and the largest message (3 bytes).
_LAYERS_BYTES = 4
_NO_LAYER = 1


def by_ticket(login: KerberosLogin, host: str, tickets: HeldTickets = held_tickets) -> Exchange:
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
    credentials = tickets.credentials(login)
    host = service_host(host)
    service = f"{login.service}/{host}"
    try:
        principal = str(credentials.name)
        context = gssapi.SecurityContext(
            name=service_name(login.service, host),
            creds=credentials,
            mech=gssapi.MechType.kerberos,
            flags=[gssapi.RequirementFlag.mutual_authentication],
            usage="initiate",
        )
        token = context.step() or b""
    except gssapi.exceptions.GSSError as error:
        raise no_ticket(error, f"the service {service}") from error
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
            f"it did not prove that it is {service!r} ({shown(error)}). Check that it is the right broker"
        ) from error


def _check_layers(context: Any, token: bytes) -> None:
    try:
        message = bytes(context.unwrap(token).message)
    except load_gssapi().exceptions.GSSError as error:
        raise ValueError(f"its message does not fit the mechanism ({shown(error)})") from error
    if len(message) != _LAYERS_BYTES:
        raise ValueError("its message does not fit the mechanism")
    if not message[0] & _NO_LAYER:
        raise ValueError(
            "it requires a security layer of SASL, which Kafka's protocol does not have. Remove "
            "javax.security.sasl.qop from the broker's settings, and use SASL_SSL to encrypt"
        )
