"""The TLS settings of a client, with its stores read."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["TLS_VERSIONS", "TlsSettings"]

TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """
    The certificates of a client, and its requirements for a server. The ``repr()`` contains no secret.

    Attributes:
        trusted: The trusted certificates in PEM; if None, those of the operating system.
        certificates: The client's certificate in PEM, and the chain from it to an authority.
        private_key: The key of that certificate in PEM, not encrypted.
        check_hostname: Whether the server's certificate must name the host that we connect to.
        versions: Both of :data:`TLS_VERSIONS`, or one of them.

    """

    trusted: str | None = field(default=None, repr=False)
    certificates: str | None = field(default=None, repr=False)
    private_key: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    versions: tuple[str, ...] = TLS_VERSIONS
