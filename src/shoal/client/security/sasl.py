"""The tokens of a SASL login, by kafka-python's mechanisms, without I/O."""

from __future__ import annotations

from .access import Security

__all__ = ["LEAST_ITERATIONS_PROPERTY", "SaslExchange"]

#: The property for clusters whose passwords are stored with fewer iterations.
LEAST_ITERATIONS_PROPERTY = "shoal.scram.min.iterations"

#: The most digits of a number of iterations.
_MOST_DIGITS = 10


class SaslExchange:
    """The client's side of one login. Each login needs its own object, since each has its own nonce."""

    def __init__(self, security: Security) -> None:
        # Imported here: the import takes 0.1 s of CPU, and tasks without SASL do not need it.
        from kafka.net.sasl.plain import SaslMechanismPlain
        from kafka.net.sasl.scram import SaslMechanismScram

        username = security.username
        if security.mechanism == "PLAIN":
            mechanism = SaslMechanismPlain
        else:
            mechanism = SaslMechanismScram
            # RFC 5802, 5.1: kafka-python sends the name as it is.
            username = username.replace("=", "=3D").replace(",", "=2C")
        self._is_scram = security.mechanism != "PLAIN"
        self._least_iterations = security.least_scram_iterations
        self._mechanism = mechanism(
            sasl_mechanism=security.mechanism,
            sasl_plain_username=username,
            sasl_plain_password=security.password,
        )

    @property
    def is_done(self) -> bool:
        """Whether the login is complete."""
        return bool(self._mechanism.is_done())

    def next_token(self) -> bytes:
        """Return the client's next token."""
        return bytes(self._mechanism.auth_bytes())

    def receive(self, token: bytes) -> None:
        """
        Process the broker's token.

        Raises:
            ValueError: The token is malformed, requires too few SCRAM iterations, or shows that the broker
                does not know the password.

        """
        if self._is_scram:
            self._check_iterations(token)
        try:
            self._mechanism.receive(token)
        except (ValueError, KeyError, OverflowError) as error:
            raise ValueError("its message does not fit the mechanism") from error

    def _check_iterations(self, token: bytes) -> None:
        """
        Check the broker's number of iterations before it receives the proof of the password.

        If a false broker requires one iteration, it can guess the password 4,096 times faster.
        """
        for part in token.split(b","):
            digits = part.removeprefix(b"i=")
            if digits == part:
                continue
            if not digits.isdigit() or len(digits) > _MOST_DIGITS:
                raise ValueError("its number of iterations is not a number")
            if int(digits) < self._least_iterations:
                raise ValueError(
                    f"it asks for {int(digits):,} iterations, which would let a false broker guess the "
                    f"password, and at least {self._least_iterations:,} are required; check that it is the "
                    "right broker, store the password again (kafka-configs.sh --add-config), or set "
                    f"{LEAST_ITERATIONS_PROPERTY}"
                )
