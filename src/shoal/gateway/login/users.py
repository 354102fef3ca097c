"""
The gateway's own users: a TOML file with a table of SCRAM credentials for each.

::

    [alice]
    SCRAM-SHA-256 = "salt=…,stored_key=…,server_key=…,iterations=8192"
    SCRAM-SHA-512 = "salt=…,stored_key=…,server_key=…,iterations=8192"

Each value has the form in which Kafka stores it (``ScramCredentialUtils.credentialToString``). The file has
no passwords: the gateway salts the password of a PLAIN login and compares the result. So a copy of the file
is no login.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import secrets
import stat
import threading
import tomllib
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...nearest import did_you_mean
from .credential import HASHES, ITERATIONS, SALT_BYTES, Credential, salted
from .unknown_users import UnknownUsers

__all__ = ["UserFile", "make_entry"]

#: RFC 7677, section 4, and Kafka's ``ScramMechanism.minIterations``. Clients of Kafka refuse fewer.
_LEAST_ITERATIONS = 4096

#: Kafka's limit for stored credentials (``ScramMechanism.maxIterations``), times 100. A login by PLAIN costs
#: the gateway this number of iterations.
_MOST_ITERATIONS = 1_638_400

_LEAST_SALT_BYTES = 12

_CREDENTIAL = re.compile(
    r"salt=(?P<salt>[^,]+),stored_key=(?P<stored>[^,]+),server_key=(?P<server>[^,]+),iterations=(?P<count>\d{1,8})"
)

#: A table's name that TOML takes without quotes.
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def make_entry(name: str, password: str) -> str:
    """
    Return a new user's table for the file.

    Raises:
        ConfigError: The name is invalid, or the password is empty.

    """
    problem = _problem_of_name(name)
    if problem:
        raise ConfigError(f"the name {name!r} {problem}")
    if not password:
        raise ConfigError("the password is empty")
    # Not normalized: Kafka's clients send and hash a password unchanged (ScramFormatter).
    encoded = password.encode()
    lines = [
        f'{mechanism} = "{salted(mechanism, encoded, secrets.token_bytes(SALT_BYTES), ITERATIONS)}"'
        for mechanism in HASHES
    ]
    table = name if _BARE.fullmatch(name) else '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return "\n".join([f"[{table}]", *lines, ""])


class _Users:
    """The users of one version of the file."""

    def __init__(self, by_name: Mapping[str, Mapping[str, Credential]], secret: bytes) -> None:
        self._by_name = by_name
        self._unknown = UnknownUsers(secret, by_name)
        #: The most iterations of any user, by mechanism. Each check has as many, so its time reveals no name.
        self._dearest: dict[str, int] = {}
        for table in by_name.values():
            mechanism, credential = _for_password(table)
            self._dearest[mechanism] = max(self._dearest.get(mechanism, 0), credential.iterations)

    def credential(self, name: str, mechanism: str) -> Credential:
        unknown = self._unknown.credential(
            name, mechanism
        )  # computed for users too, which takes the same time
        return self._by_name.get(name, {}).get(mechanism, unknown)

    def check_password(self, name: str, password: bytes) -> bool:
        common = next(iter(self._dearest))
        unknown = {common: self._unknown.credential(name, common)}
        own, credential = _for_password(self._by_name.get(name, unknown))
        matches = credential.matches(own, password)
        for mechanism, dearest in self._dearest.items():
            left = dearest - (credential.iterations if mechanism == own else 0)
            if left > 0:
                salted(mechanism, password, credential.salt, left)
        return matches

    def __len__(self) -> int:
        return len(self._by_name)


def _for_password(table: Mapping[str, Credential]) -> tuple[str, Credential]:
    """Return the credential that a plain password is compared with, and its mechanism."""
    return next((mechanism, table[mechanism]) for mechanism in HASHES if mechanism in table)


class UserFile:
    """The file, read again if it has changed. For all threads."""

    def __init__(self, path: Path, warn: Callable[[str], object] = lambda sentence: None) -> None:
        """
        Read the file.

        Args:
            warn: Receives a warning if a changed file is unusable; the users of the former one stay.

        Raises:
            ConfigError: The file is unreadable or malformed, or other users may access it.

        """
        self.path = path
        self.warn = warn
        self._lock = threading.Lock()
        self._secret = secrets.token_bytes(32)
        self._seen = self._look()
        self._users = self._read()

    def __len__(self) -> int:
        return len(self._current())

    def credential(self, name: str, mechanism: str) -> Credential:
        """
        Return a user's credential for a mechanism of SCRAM.

        For an unknown user no password has this credential (:mod:`.unknown_users`). The exchange continues,
        and ends as with a wrong password.
        """
        return self._current().credential(name, mechanism)

    def check_password(self, name: str, password: str) -> bool:
        """Return whether a password is a user's. The number of hashes is the same for an unknown user."""
        return self._current().check_password(name, password.encode())

    def _current(self) -> _Users:
        with self._lock:
            seen = self._look()
            if seen != self._seen:
                self._seen = seen
                try:
                    self._users = self._read()
                except ConfigError as error:
                    self.warn(f"{error}. The gateway keeps the users of the former file")
            return self._users

    def _look(self) -> tuple[int, ...]:
        try:
            found = self.path.stat()
        except OSError:
            return ()
        return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode)

    def _read(self) -> _Users:
        try:
            with self.path.open("rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                if mode & 0o077:
                    raise ConfigError(
                        f"--users {self.path}: mode {mode:04o} lets other users access the file. "
                        f"Run chmod 600 {self.path}"
                    )
                return _Users(_parse(tomllib.load(file)), self._secret)
        except OSError as error:
            raise ConfigError(f"--users {self.path}: {error.strerror or error}") from error
        except ValueError as error:  # of TOML or of UTF-8, or ours
            raise ConfigError(f"--users {self.path}: {error}") from error


def _parse(tables: Mapping[str, Any]) -> dict[str, dict[str, Credential]]:
    """
    Check the tables of the file.

    Raises:
        ValueError: The text is a sentence without any credential.
    """
    users = {}
    for name, table in tables.items():
        problem = _problem_of_name(name)
        if problem:
            raise ValueError(f"the name {name!r} {problem}")
        if not isinstance(table, dict) or not table:
            raise ValueError(f"{name!r} is not a table of credentials. 'shoal gateway-user NAME' prints one")
        users[name] = {mechanism: _credential(name, mechanism, text) for mechanism, text in table.items()}
    if not users:
        raise ValueError("the file has no users. 'shoal gateway-user NAME' prints an entry")
    return users


def _credential(name: str, mechanism: str, text: object) -> Credential:
    where = f"{mechanism} of {name!r}"
    if mechanism not in HASHES:
        raise ValueError(f"{where} is not a SCRAM mechanism{did_you_mean(mechanism, list(HASHES))}")
    found = _CREDENTIAL.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError(f"{where} does not have the form salt=…,stored_key=…,server_key=…,iterations=…")
    try:
        salt, stored, server = (
            base64.b64decode(found[each], validate=True) for each in ("salt", "stored", "server")
        )
    except binascii.Error:
        raise ValueError(f"{where} is not valid base64") from None
    size = hashlib.new(HASHES[mechanism]).digest_size
    if len(stored) != size or len(server) != size or len(salt) < _LEAST_SALT_BYTES:
        raise ValueError(
            f"{where} is too short: a key has {size} bytes, and the salt at least {_LEAST_SALT_BYTES}"
        )
    iterations = int(found["count"])
    if not _LEAST_ITERATIONS <= iterations <= _MOST_ITERATIONS:
        raise ValueError(
            f"{where} has {iterations} iterations. Choose from {_LEAST_ITERATIONS} to {_MOST_ITERATIONS}"
        )
    return Credential(salt, iterations, stored, server)


def _problem_of_name(name: str) -> str | None:
    """Return the problem of an invalid name. SCRAM normalizes names (RFC 4013), so the file has them so."""
    if not name or not name.isprintable():
        return "is empty, or has unprintable characters"
    if unicodedata.normalize("NFKC", name) != name:
        return "is not in Unicode's normal form NFKC, which SCRAM requires"
    return None
