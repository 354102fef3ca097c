"""What is shown to a broker, and what is asked of it, once stores and JAAS lines are read."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["LEAST_SCRAM_ITERATIONS", "Security"]

#: RFC 7677 and Kafka's own clients ask for so many.
LEAST_SCRAM_ITERATIONS = 4096


@dataclass(frozen=True, slots=True)
class Security:
    """
    How to be let in by a listener that is not PLAINTEXT. ``repr()`` of it shows no secret.

    Attributes:
        tls: Whether the connection is encrypted.
        mechanism: Of SASL: ``PLAIN``, ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``; None without SASL.
        username: With SASL.
        password: With SASL.
        trusted: PEM of the certificates that are trusted; None for those of the operating system.
        certificates: PEM of our own certificate, and those that lead from it to an authority.
        private_key: PEM of its key, not encrypted.
        check_hostname: Whether the broker's certificate must name the host that we connect to.
        versions: ``TLSv1.2`` and ``TLSv1.3``, or one of them.
        has_worked: Whether the cluster accepted it in another process; a refusal is waited for then.
        least_scram_iterations: The fewest iterations of SCRAM that a broker may ask for.

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
        """As in Java's ``security.protocol``."""
        return ("SASL_" if self.mechanism else "") + ("SSL" if self.tls else "PLAINTEXT")

    def to_json(self) -> dict[str, Any]:
        """Return what :meth:`from_json` makes the same of; it holds the secrets."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Security:
        return cls(**{**fields, "versions": tuple(fields["versions"])})
