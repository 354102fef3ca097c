"""A user's SCRAM credential, which the gateway stores instead of the password and also checks PLAIN with."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["HASHES", "ITERATIONS", "SALT_BYTES", "Credential", "salted"]

#: The name of each SCRAM mechanism's hash function in hashlib.
HASHES: Mapping[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

#: Iterations of new entries, as in the examples of Kafka's documentation.
ITERATIONS = 8192

SALT_BYTES = 32


@dataclass(frozen=True, slots=True)
class Credential:
    """
    The salted form of a password (RFC 5802, section 3).

    Attributes:
        salt: The salt of the password.
        iterations: Iterations of PBKDF2.
        stored_key: Compared with a client's proof.
        server_key: Proves to the client that the server knows it.

    """

    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    def matches(self, mechanism: str, password: bytes) -> bool:
        """Return whether this is the credential of a password, in constant time."""
        other = salted(mechanism, password, self.salt, self.iterations)
        return hmac.compare_digest(self.stored_key, other.stored_key)

    def __str__(self) -> str:
        salt, stored, server = (
            base64.b64encode(each).decode() for each in (self.salt, self.stored_key, self.server_key)
        )
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"


def salted(mechanism: str, password: bytes, salt: bytes, iterations: int) -> Credential:
    """Return the credential of a password."""
    name = HASHES[mechanism]
    key = hashlib.pbkdf2_hmac(name, password, salt, iterations)
    client_key = hmac.digest(key, b"Client Key", name)
    return Credential(
        salt, iterations, hashlib.new(name, client_key).digest(), hmac.digest(key, b"Server Key", name)
    )
