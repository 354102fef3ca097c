"""The credentials of a client, and its requirements for a broker, with stores and JAAS lines read."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["LEAST_SCRAM_ITERATIONS", "Security"]

#: The minimum of RFC 7677 and of Kafka's own clients.
LEAST_SCRAM_ITERATIONS = 4096


@dataclass(frozen=True, slots=True)
class Security:
    """
    TLS and SASL settings of a listener that is not PLAINTEXT. The ``repr()`` contains no secret.

    Attributes:
        tls: Whether the connection is encrypted.
        mechanism: The SASL mechanism: ``PLAIN``, ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``; None without SASL.
        username: The user of a SASL login.
        password: The user's password.
        trusted: The trusted certificates in PEM; if None, those of the operating system.
        certificates: The client's certificate in PEM, and the chain from it to an authority.
        private_key: The key of that certificate in PEM, not encrypted.
        check_hostname: Whether the broker's certificate must name the host that we connect to.
        versions: ``TLSv1.2`` and ``TLSv1.3``, or one of them.
        has_worked: Whether the cluster accepted the login in another process. If so, a refusal is retried.
        least_scram_iterations: The smallest accepted number of SCRAM iterations.

    """

    tls: bool
    mechanism: str | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    trusted: str | None = field(default=None, repr=False)
    certificates: str | None = field(default=None, repr=False)
    private_key: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    least_scram_iterations: int = LEAST_SCRAM_ITERATIONS
    has_worked: bool = False

    @property
    def protocol(self) -> str:
        """The value of Java's ``security.protocol``."""
        return ("SASL_" if self.mechanism else "") + ("SSL" if self.tls else "PLAINTEXT")

    def to_json(self) -> dict[str, Any]:
        """Return the fields for :meth:`from_json`, with the secrets."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Security:
        """Return the object that :meth:`to_json` was called on."""
        return cls(**{**fields, "versions": tuple(fields["versions"])})
