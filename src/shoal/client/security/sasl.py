"""The tokens of a SASL exchange: kafka-python's mechanisms, without I/O."""

from __future__ import annotations

from .access import Security

__all__ = ["SaslExchange"]


class SaslExchange:
    """
    What the client says, and what it makes of the answers.

    Not for a second login: each has a nonce of its own.

    """

    def __init__(self, security: Security) -> None:
        # Here, since it takes 0.1 s of CPU, which the tasks of open clusters need not pay.
        from kafka.net.sasl.plain import SaslMechanismPlain
        from kafka.net.sasl.scram import SaslMechanismScram

        username = security.username
        if security.mechanism == "PLAIN":
            mechanism = SaslMechanismPlain
        else:
            mechanism = SaslMechanismScram
            # RFC 5802, 5.1: kafka-python sends the name as it is.
            username = username.replace("=", "=3D").replace(",", "=2C")
        self._mechanism = mechanism(
            sasl_mechanism=security.mechanism,
            sasl_plain_username=username,
            sasl_plain_password=security.password,
        )

    @property
    def is_done(self) -> bool:
        return bool(self._mechanism.is_done())

    def next_token(self) -> bytes:
        """Return what is to be sent next."""
        return bytes(self._mechanism.auth_bytes())

    def receive(self, token: bytes) -> None:
        """
        Take the broker's answer.

        Raises:
            ValueError: It makes no sense, or the broker does not know the password itself.

        """
        try:
            self._mechanism.receive(token)
        except (ValueError, KeyError, OverflowError) as error:
            raise ValueError("its part of the exchange is not what the mechanism asks for") from error
