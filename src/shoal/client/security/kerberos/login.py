"""A login by Kerberos: values without I/O, which travel to tasks with the keys of the keytab."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["DEFAULT_KINIT", "KerberosLogin", "Keytab", "TicketCache"]

#: Kafka's default of sasl.kerberos.kinit.cmd.
DEFAULT_KINIT = "/usr/bin/kinit"


@dataclass(frozen=True, slots=True)
class Keytab:
    """
    The keys of a principal.

    Attributes:
        path: The file, which is read at each request for a ticket if it is there: its keys may change.
        content: The file's content at the start, in Base64, for machines without the file.

    """

    path: str
    content: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TicketCache:
    """
    Tickets that another program has got, such as ``kinit``.

    Attributes:
        name: The path, or the name with its type; None for the default of libkrb5.
        kinit: The program that renews the tickets, by its option ``-R``.

    """

    name: str | None = None
    kinit: str = DEFAULT_KINIT

    def __str__(self) -> str:
        return f"the ticket cache {self.name!r}" if self.name else "the default ticket cache"


@dataclass(frozen=True, slots=True)
class KerberosLogin:
    """
    A login by GSSAPI. It has a keytab, a ticket cache, or both; then the cache comes first, as in Java.

    Attributes:
        service: The first part of the brokers' principals: ``kafka`` in ``kafka/broker1.example@REALM``.
        principal: The client's principal; None for that of the ticket cache.

    """

    service: str
    principal: str | None = None
    keytab: Keytab | None = None
    ticket_cache: TicketCache | None = None

    @property
    def mechanism(self) -> str:
        """The name of the SASL mechanism."""
        return "GSSAPI"

    @property
    def user(self) -> str:
        """The client's principal; brokers map it to a user by ``sasl.kerberos.principal.to.local.rules``."""
        return f"the principal {self.principal}" if self.principal else "the principal of its ticket cache"
