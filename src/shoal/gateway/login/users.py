"""
The gateway's own users: a TOML file with a table of SCRAM credentials for each.

::

    [alice]
    SCRAM-SHA-256 = "salt=…,stored_key=…,server_key=…,iterations=8192"
    SCRAM-SHA-512 = "salt=…,stored_key=…,server_key=…,iterations=8192"

Each value has the form in which Kafka stores it (``ScramCredentialUtils.credentialToString``). No password
is in the file, for PLAIN neither: the gateway salts the password of a PLAIN login and compares the result.
So a copy of the file lets nobody log in.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import secrets
import stat
import threading
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...nearest import did_you_mean

__all__ = ["HASHES", "Credential", "UserFile", "make_entry"]

#: The name of each SCRAM mechanism's hash function in hashlib.
HASHES: Mapping[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

#: RFC 7677, section 4, and Kafka's ``ScramMechanism.minIterations``. Clients of Kafka refuse fewer.
_LEAST_ITERATIONS = 4096

#: Kafka's limit for stored credentials (``ScramMechanism.maxIterations``), times 100: a login by PLAIN costs
#: the gateway as many.
_MOST_ITERATIONS = 1_638_400

#: Of new entries: as in the examples of Kafka's documentation.
_ITERATIONS = 8192

_SALT_BYTES = 32
_LEAST_SALT_BYTES = 12

_CREDENTIAL = re.compile(
    r"salt=(?P<salt>[^,]+),stored_key=(?P<stored>[^,]+),server_key=(?P<server>[^,]+),iterations=(?P<count>\d{1,8})"
)

#: A table's name that TOML takes without quotes.
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Credential:
    """
    What a password is compared with (RFC 5802, section 3).

    Attributes:
        salt: Of the password.
        iterations: Of PBKDF2.
        stored_key: Compared with a client's proof.
        server_key: Proves to the client that the server knows it.

    """

    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    def matches(self, mechanism: str, password: bytes) -> bool:
        """Return whether this is the credential of a password; takes as long whatever the answer is."""
        other = _salted(mechanism, password, self.salt, self.iterations)
        return hmac.compare_digest(self.stored_key, other.stored_key)

    def __str__(self) -> str:
        salt, stored, server = (
            base64.b64encode(each).decode() for each in (self.salt, self.stored_key, self.server_key)
        )
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"


def make_entry(name: str, password: str) -> str:
    """
    Return a new user's table for the file.

    Raises:
        ConfigError: The name cannot be one, or the password is empty.

    """
    problem = _problem_of_name(name)
    if problem:
        raise ConfigError(f"the name {name!r} {problem}")
    if not password:
        raise ConfigError("the password is empty")
    # Not normalized: Kafka's clients send and hash a password as it is (ScramFormatter).
    encoded = password.encode()
    lines = [
        f'{mechanism} = "{_salted(mechanism, encoded, secrets.token_bytes(_SALT_BYTES), _ITERATIONS)}"'
        for mechanism in HASHES
    ]
    table = name if _BARE.fullmatch(name) else '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return "\n".join([f"[{table}]", *lines, ""])


def _salted(mechanism: str, password: bytes, salt: bytes, iterations: int) -> Credential:
    name = HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(name, password, salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", name)
    return Credential(
        salt, iterations, hashlib.new(name, client_key).digest(), hmac.digest(salted, b"Server Key", name)
    )


class _Users:
    """The users of one version of the file."""

    def __init__(self, by_name: Mapping[str, Mapping[str, Credential]]) -> None:
        self._by_name = by_name
        #: An unknown user gets iterations like most, so that they give nothing away.
        self._common = {
            mechanism: Counter(
                each[mechanism].iterations for each in by_name.values() if mechanism in each
            ).most_common(1)
            for mechanism in HASHES
        }

    def find(self, name: str, mechanism: str) -> Credential | None:
        return self._by_name.get(name, {}).get(mechanism)

    def for_password(self, name: str) -> tuple[str, Credential] | None:
        """Return the credential that a plain password is compared with, and its mechanism."""
        return next(iter(self._by_name.get(name, {}).items()), None)

    def iterations(self, mechanism: str) -> int:
        common = self._common[mechanism]
        return common[0][0] if common else _ITERATIONS

    def __len__(self) -> int:
        return len(self._by_name)


class UserFile:
    """The file, read again when it has changed. For all threads."""

    def __init__(self, path: Path, tell: Callable[[str], object] = lambda sentence: None) -> None:
        """
        Read the file.

        Args:
            path: Where it is.
            tell: Takes a sentence if a changed file cannot be read; the users of the former one stay.

        Raises:
            ConfigError: It cannot be read, others may read it, or it makes no sense.

        """
        self.path = path
        self.tell = tell
        self._lock = threading.Lock()
        self._secret = secrets.token_bytes(32)
        self._seen = self._look()
        self._users = self._read()

    def __len__(self) -> int:
        return len(self._current())

    def credential(self, name: str, mechanism: str) -> Credential:
        """
        Return a user's credential for a mechanism of SCRAM.

        For an unknown user it is one that no password has, and the same each time: an exchange takes its
        course, and ends as with a wrong password (RFC 5802 leaves that to servers; PostgreSQL does the same
        in ``mock_scram_secret``).
        """
        users = self._current()
        return users.find(name, mechanism) or self._mock(name, mechanism, users)

    def check_password(self, name: str, password: str) -> bool:
        """Return whether a password is a user's; takes as long for an unknown user."""
        users = self._current()
        mechanism = next(iter(HASHES))
        found = users.for_password(name) or (mechanism, self._mock(name, mechanism, users))
        return found[1].matches(found[0], password.encode())

    def _mock(self, name: str, mechanism: str, users: _Users) -> Credential:
        def derived(purpose: str) -> bytes:
            return hmac.digest(self._secret, f"{purpose} {mechanism} {name}".encode(), HASHES[mechanism])

        return Credential(
            derived("salt")[:_SALT_BYTES],
            users.iterations(mechanism),
            derived("stored key"),
            derived("server key"),
        )

    def _current(self) -> _Users:
        with self._lock:
            seen = self._look()
            if seen != self._seen:
                self._seen = seen
                try:
                    self._users = self._read()
                except ConfigError as error:
                    self.tell(f"{error}; the users of before the change stay")
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
                        f"--users {self.path}: others than its owner may access the file (mode {mode:04o}). "
                        f"Run chmod 600 {self.path}"
                    )
                return _Users(_parse(tomllib.load(file)))
        except OSError as error:
            raise ConfigError(f"--users {self.path}: {error.strerror or error}") from error
        except ValueError as error:  # of TOML or of UTF-8, or ours
            raise ConfigError(f"--users {self.path}: {error}") from error


def _parse(tables: Mapping[str, Any]) -> dict[str, dict[str, Credential]]:
    """
    Raises:
        ValueError: With a sentence that shows no credential.
    """
    users = {}
    for name, table in tables.items():
        problem = _problem_of_name(name)
        if problem:
            raise ValueError(f"the name {name!r} {problem}")
        if not isinstance(table, dict) or not table:
            raise ValueError(f"{name!r} is no table of credentials, such as 'shoal gateway-user' prints")
        users[name] = {mechanism: _credential(name, mechanism, text) for mechanism, text in table.items()}
    if not users:
        raise ValueError("there is no user in it; 'shoal gateway-user NAME' prints an entry")
    return users


def _credential(name: str, mechanism: str, text: object) -> Credential:
    where = f"{mechanism} of {name!r}"
    if mechanism not in HASHES:
        raise ValueError(f"{where} is no mechanism of SCRAM{did_you_mean(mechanism, list(HASHES))}")
    found = _CREDENTIAL.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError(f"{where} is not of the form salt=…,stored_key=…,server_key=…,iterations=…")
    try:
        salt, stored, server = (
            base64.b64decode(found[each], validate=True) for each in ("salt", "stored", "server")
        )
    except binascii.Error:
        raise ValueError(f"{where} is not in base64") from None
    size = hashlib.new(HASHES[mechanism]).digest_size
    if len(stored) != size or len(server) != size or len(salt) < _LEAST_SALT_BYTES:
        raise ValueError(
            f"{where} is cut short: a key has {size} bytes, and the salt {_LEAST_SALT_BYTES} at least"
        )
    iterations = int(found["count"])
    if not _LEAST_ITERATIONS <= iterations <= _MOST_ITERATIONS:
        raise ValueError(
            f"{where} has {iterations} iterations; choose from {_LEAST_ITERATIONS} to {_MOST_ITERATIONS}"
        )
    return Credential(salt, iterations, stored, server)


def _problem_of_name(name: str) -> str | None:
    """Return why a name cannot be a user's; SCRAM sends names prepared (RFC 4013), so they must be so."""
    if not name or not name.isprintable():
        return "is empty, or has characters that cannot be printed"
    if unicodedata.normalize("NFKC", name) != name:
        return "is not in Unicode's normal form KC, which SCRAM asks for"
    return None
