"""The package ``gssapi`` of the extra ``kerberos``, and the libkrb5 that it needs."""

from __future__ import annotations

from typing import Any

from ..no_credentials import NoCredentials

__all__ = ["NoTicket", "load_gssapi"]


class NoTicket(NoCredentials):
    """There is no Kerberos ticket for a login."""


def load_gssapi() -> Any:
    """
    Return the package ``gssapi``.

    Raises:
        NoTicket: The package is missing, or libkrb5.

    """
    # Imported here, since only the extra has it.
    try:
        import gssapi
    except ModuleNotFoundError as error:
        if error.name != "gssapi":
            raise
        raise NoTicket(
            "GSSAPI needs the package gssapi. Install 'shoal[kerberos]' here and on the machines of Spark's "
            "executors"
        ) from error
    except (ImportError, OSError) as error:
        raise NoTicket(
            f"GSSAPI: the package gssapi cannot be loaded ({error}). Install the Kerberos libraries of the "
            "operating system (Debian's libgssapi-krb5-2, Red Hat's krb5-libs)"
        ) from error
    return gssapi
