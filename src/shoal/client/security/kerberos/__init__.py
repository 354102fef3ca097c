"""
GSSAPI (RFC 4752), with Kerberos tickets from a keytab or a ticket cache.

``properties`` reads Java's properties into a :class:`KerberosLogin`. ``tickets`` gets and keeps the tickets
of this process, and ``renewal`` renews those of a ticket cache. ``library`` is the package ``gssapi`` with
the operating system's libkrb5. ``service`` computes the broker's principal as Java does. ``exchange`` is the
exchange with the broker, and ``failures`` explains the errors of libkrb5.
"""

from .login import KerberosLogin, Keytab, TicketCache

__all__ = ["KerberosLogin", "Keytab", "TicketCache"]
