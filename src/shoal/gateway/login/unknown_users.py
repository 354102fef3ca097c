"""
Credentials for names that are not in the file, so that their logins fail like those with a wrong password.

RFC 5802 leaves this to servers; PostgreSQL does the same in ``mock_scram_secret``. SCRAM shows a user's salt
and iterations to every client. So an unknown name has those of a real user as its model, chosen by a hash of
the name. Each kind of salt is as frequent among unknown names as among users, and does not reveal users.
"""

from __future__ import annotations

import bisect
import hashlib
import hmac
import re
from collections.abc import Mapping

from .credential import HASHES, ITERATIONS, SALT_BYTES, Credential

__all__ = ["UnknownUsers"]

#: Kafka salts with 130 random bits in base 36 (``ScramFormatter.secureRandomString``).
_KAFKA_SALT = re.compile(rb"1[0-9a-z]{25}|[0-9a-z]{20,25}")
_KAFKA_SALT_BITS = 130
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class UnknownUsers:
    """Makes credentials that no password has, for one version of the file."""

    def __init__(self, secret: bytes, users: Mapping[str, Mapping[str, Credential]]) -> None:
        """
        Prepare credentials that look like those of the users.

        Args:
            secret: The key of all credentials; with the same key a name's salt and keys stay the same.
            users: The credentials of each user, by mechanism.

        """
        self._secret = secret
        #: A ring of users by hashes of their names (consistent hashing): a new user becomes the model only of
        #: the names before it.
        self._rings = {
            mechanism: sorted(
                (
                    (self._derived("place", mechanism, name), each[mechanism])
                    for name, each in users.items()
                    if mechanism in each
                ),
                key=lambda placed: placed[0],
            )
            for mechanism in HASHES
        }

    def credential(self, name: str, mechanism: str) -> Credential:
        """Return a credential that is the same each time, and looks like a user's."""
        seed = self._derived("salt", mechanism, name)
        iterations, salt = ITERATIONS, seed[:SALT_BYTES]
        ring = self._rings[mechanism]
        if ring:
            place = bisect.bisect(ring, self._derived("place", mechanism, name), key=lambda placed: placed[0])
            model = ring[place % len(ring)][1]
            iterations, salt = model.iterations, _salt_like(model.salt, seed)
        return Credential(
            salt,
            iterations,
            self._derived("stored key", mechanism, name),
            self._derived("server key", mechanism, name),
        )

    def _derived(self, purpose: str, mechanism: str, name: str) -> bytes:
        return hmac.digest(self._secret, f"{purpose} {mechanism} {name}".encode(), HASHES[mechanism])


def _salt_like(model: bytes, seed: bytes) -> bytes:
    """Return a salt made of a seed, of the model's length and alphabet."""
    if _KAFKA_SALT.fullmatch(model) is None:
        return hashlib.shake_256(seed).digest(len(model))
    left = int.from_bytes(seed[:32]) >> (256 - _KAFKA_SALT_BITS)
    digits = []
    while left:
        left, digit = divmod(left, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits)).encode()
