"""The messages of a SASL login. Those of passwords are by kafka-python's mechanisms, without I/O."""

from __future__ import annotations

from .kerberos import by_ticket
from .login import Exchange, KerberosLogin, LoginRefused, OAuthLogin, PasswordLogin

__all__ = ["LEAST_ITERATIONS_PROPERTY", "begin_exchange", "by_password"]

#: The property for clusters whose passwords are stored with fewer iterations.
LEAST_ITERATIONS_PROPERTY = "shoal.scram.min.iterations"

#: The most digits of a number of iterations.
_MOST_DIGITS = 10


def begin_exchange(login: PasswordLogin | OAuthLogin | KerberosLogin, host: str) -> Exchange:
    """
    Return the exchange of a login; its first message may need a token or a ticket, which takes seconds.

    Args:
        login: The client's login.
        host: The broker's host, as the client connects to it.

    """
    if isinstance(login, PasswordLogin):
        return by_password(login)
    if isinstance(login, KerberosLogin):
        return by_ticket(login, host)
    # Imported here, since most clusters have passwords.
    from .tokens import by_token

    return by_token(login)


def by_password(login: PasswordLogin) -> Exchange:
    """
    Log in by PLAIN or SCRAM.

    Raises:
        ValueError: A message is malformed, requires too few SCRAM iterations, or shows that the broker does
            not know the password.

    """
    # Imported here: the import takes 0.1 s of CPU, and tasks without SASL do not need it.
    from kafka.net.sasl.plain import SaslMechanismPlain
    from kafka.net.sasl.scram import SaslMechanismScram

    is_scram = login.mechanism != "PLAIN"
    username = login.username
    if is_scram:
        # RFC 5802, 5.1: kafka-python sends the name as it is.
        username = username.replace("=", "=3D").replace(",", "=2C")
    mechanism = (SaslMechanismScram if is_scram else SaslMechanismPlain)(
        sasl_mechanism=login.mechanism, sasl_plain_username=username, sasl_plain_password=login.password
    )
    try:
        while not mechanism.is_done():
            token = yield bytes(mechanism.auth_bytes())
            if is_scram:
                _check_iterations(token, login.least_scram_iterations)
            try:
                mechanism.receive(token)
            except (ValueError, KeyError, OverflowError) as error:
                raise ValueError("its message does not fit the mechanism") from error
    except LoginRefused as refused:
        # The broker's own message is not in it: it may contain parts of the password.
        raise LoginRefused(
            f"the login of {login.username!r} by {login.mechanism} failed. "
            "Check username and password in sasl.jaas.config"
        ) from refused


def _check_iterations(token: bytes, least: int) -> None:
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
        if int(digits) < least:
            raise ValueError(
                f"it asks for {int(digits):,} iterations, which would let a false broker guess the "
                f"password, and at least {least:,} are required. Check that it is the "
                "right broker, store the password again (kafka-configs.sh --add-config), or set "
                f"{LEAST_ITERATIONS_PROPERTY}"
            )
