"""The messages of a SASL login. Those of passwords are by kafka-python's mechanisms, without I/O."""

from __future__ import annotations

from typing import Protocol

from .login import KerberosLogin, OAuthLogin, PasswordLogin

__all__ = ["LEAST_ITERATIONS_PROPERTY", "Exchange", "PasswordExchange", "begin_exchange"]

#: The property for clusters whose passwords are stored with fewer iterations.
LEAST_ITERATIONS_PROPERTY = "shoal.scram.min.iterations"

#: The most digits of a number of iterations.
_MOST_DIGITS = 10


class Exchange(Protocol):
    """The client's side of one login. Each login needs its own object."""

    @property
    def is_done(self) -> bool:
        """Whether the login is complete."""

    @property
    def refusal(self) -> str:
        """The sentence if the broker refuses the login, without secrets."""

    def next_token(self) -> bytes:
        """Return the client's next token."""

    def receive(self, token: bytes) -> None:
        """Process the broker's token; raise ValueError with a phrase about the problem."""

    def refused(self) -> None:
        """Note that the broker refused the login."""


def begin_exchange(login: PasswordLogin | OAuthLogin | KerberosLogin, host: str) -> Exchange:
    """
    Begin a login. This may request an access token or a Kerberos ticket, which takes seconds.

    Args:
        login: The client's login.
        host: The broker's host, as the client connects to it.

    Raises:
        NoCredentials: There is no access token or ticket to log in with.

    """
    if isinstance(login, PasswordLogin):
        return PasswordExchange(login)
    # Imported here, since most clusters have passwords.
    if isinstance(login, KerberosLogin):
        from .tickets import TicketExchange

        return TicketExchange(login, host)
    from .tokens import BearerExchange

    return BearerExchange(login)


class PasswordExchange:
    """The exchange of PLAIN and SCRAM; each has its own nonce."""

    def __init__(self, login: PasswordLogin) -> None:
        # Imported here: the import takes 0.1 s of CPU, and tasks without SASL do not need it.
        from kafka.net.sasl.plain import SaslMechanismPlain
        from kafka.net.sasl.scram import SaslMechanismScram

        username = login.username
        if login.mechanism == "PLAIN":
            mechanism = SaslMechanismPlain
        else:
            mechanism = SaslMechanismScram
            # RFC 5802, 5.1: kafka-python sends the name as it is.
            username = username.replace("=", "=3D").replace(",", "=2C")
        self._login = login
        self._is_scram = login.mechanism != "PLAIN"
        self._least_iterations = login.least_scram_iterations
        self._mechanism = mechanism(
            sasl_mechanism=login.mechanism,
            sasl_plain_username=username,
            sasl_plain_password=login.password,
        )

    @property
    def is_done(self) -> bool:
        """Whether the login is complete."""
        return bool(self._mechanism.is_done())

    @property
    def refusal(self) -> str:
        """The sentence if the broker refuses the login."""
        # The broker's own message is not in it: it may contain parts of the password.
        return (
            f"the login of {self._login.username!r} by {self._login.mechanism} failed. "
            "Check username and password in sasl.jaas.config"
        )

    def refused(self) -> None:
        """Do nothing: the user has to change the password."""

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
                    f"password, and at least {self._least_iterations:,} are required. Check that it is the "
                    "right broker, store the password again (kafka-configs.sh --add-config), or set "
                    f"{LEAST_ITERATIONS_PROPERTY}"
                )
