"""The options for access to metrics and page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...net.server_tls import TlsFiles
from ...timing import DEFAULT_TIMING, Timing

__all__ = ["OPEN", "HttpAccess"]


@dataclass(frozen=True, slots=True)
class HttpAccess:
    """
    The options for access to metrics and page.

    Attributes:
        hosts: Accepted names in the Host header besides this machine's: names of proxies, and in DNS.
        token_file: The file with the token that every request must have; None for none.
        tls: The server's certificate and key; None for plain HTTP.
        timing: How long the server waits for clients.

    """

    hosts: tuple[str, ...] = ()
    token_file: Path | None = None
    tls: TlsFiles | None = None
    timing: Timing = DEFAULT_TIMING

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> HttpAccess:
        """
        Return the access that the options ``http_…`` describe, as a user gave them.

        Raises:
            ConfigError: Only one of certificate and key is there.

        """
        certificate, key = given.get("http_tls_certificate"), given.get("http_tls_key")
        authorities = given.get("http_tls_client_authorities")
        if bool(certificate) != bool(key) or (authorities and not certificate):
            raise ConfigError("TLS of metrics and page needs both --http-tls-certificate and --http-tls-key")
        hosts, token_file = given.get("http_hosts") or (), given.get("http_token_file")
        return cls(
            tuple(hosts.split(",") if isinstance(hosts, str) else hosts),
            Path(token_file) if token_file else None,
            TlsFiles(Path(certificate), Path(key), Path(authorities) if authorities else None)
            if certificate and key
            else None,
        )


#: All clients that reach the address, by plain HTTP.
OPEN = HttpAccess()
