"""The options for who may read metrics and page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ...errors import ConfigError
from ...net.server_tls import TlsFiles

__all__ = ["OPEN", "HttpAccess"]


@dataclass(frozen=True, slots=True)
class HttpAccess:
    """
    The options for who may read metrics and page.

    Attributes:
        hosts: Names in the Host header that are answered besides this machine's: those of proxies and in DNS.
        token_file: The file with the token that every request must have; None for none.
        tls: The server's certificate and key; None for plain HTTP.

    """

    hosts: tuple[str, ...] = ()
    token_file: Path | None = None
    tls: TlsFiles | None = None

    @classmethod
    def parse(
        cls,
        hosts: Iterable[str],
        token_file: str | None,
        tls_certificate: str | None,
        tls_key: str | None,
        tls_client_authorities: str | None,
    ) -> HttpAccess:
        """
        Return the access that options describe, each as the user gave it.

        Raises:
            ConfigError: Only a part of what TLS needs is there.

        """
        tls = None
        if tls_certificate and tls_key:
            authorities = Path(tls_client_authorities) if tls_client_authorities else None
            tls = TlsFiles(Path(tls_certificate), Path(tls_key), authorities)
        elif tls_certificate or tls_key or tls_client_authorities:
            raise ConfigError("TLS of metrics and page needs both --http-tls-certificate and --http-tls-key")
        return cls(tuple(hosts), Path(token_file) if token_file else None, tls)


#: All clients that reach the address, by plain HTTP.
OPEN = HttpAccess()
