"""
Which requests are answered: by the Host header, and by a token.

Users cannot give a bearer token to a browser. So the server also accepts the token as the password of Basic
(RFC 7617), with any user name. The browser asks for it, keeps it until it is closed, and sends it to this
server alone.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import ipaddress
import os
import re
import socket
from pathlib import Path
from urllib.parse import urlsplit

from ....errors import ConfigError
from ....secret_file import open_mode

__all__ = ["CHALLENGES", "Guard"]

#: The values of WWW-Authenticate with status 401 (RFC 9110, 11.6.1). Browsers know Basic alone.
CHALLENGES = ('Bearer realm="shoal"', 'Basic realm="shoal", charset="UTF-8"')

#: The characters that the header can have (``b64token``, RFC 6750, 2.1).
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")

#: Sixteen random characters of base64 are 96 bits, too many to guess over a network.
_SHORTEST_TOKEN = 16

_MAKE_ONE = "Make one with: (umask 077 && openssl rand -hex 32 > FILE)"


class Guard:
    """The access rules of one address. The file is read at the start."""

    def __init__(self, token_file: str | Path | None, listens_on: str) -> None:
        """
        Read the file of the token.

        Args:
            token_file: The file; None for no token.
            listens_on: The host of the address that is listened on; the Host header may name it.

        Raises:
            ConfigError: The file is missing, can be read by others, or has no usable content.

        """
        self._token = None if token_file is None else _digest(_read_token(Path(token_file)))
        self._hosts = {each.lower() for each in ("localhost", listens_on, socket.gethostname())}

    @property
    def needs_token(self) -> bool:
        """Whether a request must have the token."""
        return self._token is not None

    def names_us(self, host: str | None) -> bool:
        """
        Return whether a Host header names this server; one without the header comes from no browser.

        An attacker's page can make its own name resolve to this machine (DNS rebinding), and then read what
        this server answers. It cannot do so with an address.
        """
        if host is None:
            return True
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower().rstrip(".")
            if name in self._hosts:
                return True
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def has_token(self, authorization: str | None) -> bool:
        """Return whether an Authorization header has the token; False if no token is needed."""
        if self._token is None:
            return False
        # The digests have one length, so the time of the comparison does not reveal the token's.
        return hmac.compare_digest(_digest(_token_in(authorization or "")), self._token)


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _token_in(authorization: str) -> bytes:
    """Return the token in a header's value; nothing if there is none."""
    scheme, _, credentials = authorization.partition(" ")
    credentials = credentials.strip()
    match scheme.lower():
        case "bearer":
            return credentials.encode("utf-8", "replace")
        case "basic":
            with contextlib.suppress(binascii.Error, ValueError):
                _, _, password = base64.b64decode(credentials, validate=True).partition(b":")
                return password
    return b""


def _read_token(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            _check_mode(file, os.fstat(stream.fileno()))
            token = stream.read(4096).strip().decode("ascii", "replace")
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"--http-token-file {file}: {reason}") from error
    if not _TOKEN.fullmatch(token) or len(token) < _SHORTEST_TOKEN:
        raise ConfigError(
            f"--http-token-file {file}: the token must be one line of at least {_SHORTEST_TOKEN} letters, "
            f"digits and -._~+/. {_MAKE_ONE}"
        )
    return token.encode()


def _check_mode(file: Path, status: os.stat_result) -> None:
    """Refuse a file that others can read."""
    if mode := open_mode(status):
        raise ConfigError(
            f"--http-token-file {file}: mode {mode} allows other users to read the token, or to replace it. "
            f"Run: chmod 600 {file}"
        )
