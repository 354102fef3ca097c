"""TLS of the gateway's listeners."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError

__all__ = ["TlsFiles", "server_context"]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """
    The files of a server with TLS, all in PEM.

    Attributes:
        certificates: The server's certificate, and the chain from it to an authority.
        private_key: The key of the certificate, not encrypted.
        client_authorities: The authorities of client certificates; if None, clients need no certificate.

    """

    certificates: Path
    private_key: Path
    client_authorities: Path | None = None


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """
    Read the files into a context. The oldest accepted version is TLS 1.2, Python's default for servers.

    Raises:
        ConfigError: A file is missing or malformed, or the files do not belong together.

    """
    certificate, key, authorities = "--tls-certificate", "--tls-key", "--tls-client-authorities"

    def no_password() -> str:
        raise ConfigError(f"{key} {files.private_key}: the key is encrypted. Use one without a passphrase")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for option, file in (
        (certificate, files.certificates),
        (key, files.private_key),
        (authorities, files.client_authorities),
    ):
        if file is not None and not file.is_file():
            raise ConfigError(f"{option} {file}: there is no such file")
    try:
        context.load_cert_chain(files.certificates, files.private_key, no_password)
    except OSError as error:
        cause = getattr(error, "reason", None) or error.strerror or error
        raise ConfigError(
            f"{certificate} {files.certificates} and {key} {files.private_key}: they cannot be read, or do "
            f"not belong together ({cause})"
        ) from error
    if files.client_authorities is not None:
        try:
            context.load_verify_locations(files.client_authorities)
        except OSError as error:
            raise ConfigError(f"{authorities} {files.client_authorities}: no certificates in PEM") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context
