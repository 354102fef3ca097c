"""The server's side of PLAIN (RFC 4616) and SCRAM (RFC 5802): tokens in, tokens out, no I/O."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from typing import Protocol

from ...net.converting import client_of_thread
from ...net.turns import Turns
from .credential import HASHES
from .users import UserFile

__all__ = [
    "MECHANISMS",
    "TURNS",
    "LoginExchange",
    "LoginFailed",
    "begin_exchange",
    "is_checked",
    "wake_login",
]

#: All mechanisms that the gateway supports.
MECHANISMS = ("PLAIN", *HASHES)

#: PLAIN costs the gateway thousands of hashes for a login. SCRAM costs the client that.
TURNS = Turns(os.cpu_count() or 1)


class LoginFailed(Exception):
    """
    The client's credentials are wrong, or malformed.

    The text is the sentence for the client: Kafka's own, and the same one for an unknown user.

    """


class LoginExchange(Protocol):
    """One login under way."""

    #: The name of the user; None until the login is complete.
    user: str | None

    def receive(self, token: bytes) -> bytes:
        """
        Process the client's token, and return the answer.

        Raises:
            LoginFailed: The token is refused, which ends the login.

        """
        ...


def wake_login(connection: Hashable) -> None:
    """Make a login that waits for its turn check at once if its connection is still open."""
    TURNS.look(connection)


def is_checked(connection: Hashable) -> bool:
    """Return whether the password of a connection is being checked, which nothing can interrupt."""
    return TURNS.works(connection)


def begin_exchange(mechanism: str, users: UserFile, check: Callable[[], object]) -> LoginExchange:
    """
    Begin a login by one of :data:`MECHANISMS`.

    Args:
        mechanism: The name of the mechanism.
        users: The users that may log in.
        check: Raises an error if the client hung up or took too long, which ends a wait for a turn.

    """
    return _Plain(users, check) if mechanism == "PLAIN" else _Scram(mechanism, users)


class _Plain:
    """``[authzid] NUL authcid NUL passwd``, and an empty answer (Kafka's ``PlainSaslServer``)."""

    def __init__(self, users: UserFile, check: Callable[[], object]) -> None:
        self.user: str | None = None
        self._users = users
        self._check = check

    def receive(self, token: bytes) -> bytes:
        parts = _text(token).split("\0")
        if len(parts) != 3 or not parts[1] or not parts[2]:
            raise LoginFailed("Invalid SASL/PLAIN response: expected a username and a password")
        other, name, password = parts
        with TURNS.turn(*client_of_thread(), check=self._check):
            is_right = self._users.check_password(name, password)
        if not is_right:
            raise LoginFailed("Authentication failed: Invalid username or password")
        if other and other != name:
            raise LoginFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user = name
        return b""


class _Scram:
    """Two tokens each way; scramp reads and checks them."""

    def __init__(self, mechanism: str, users: UserFile) -> None:
        # Imported here because only a gateway with users needs it.
        from scramp import ScramMechanism

        self.user: str | None = None
        self._mechanism = mechanism
        self._users = users
        self._name: str | None = None
        self._server = ScramMechanism(mechanism).make_server(self._find)

    def _find(self, name: str) -> tuple[bytes, bytes, bytes, int]:
        self._name = name
        found = self._users.credential(name, self._mechanism)
        return found.salt, found.stored_key, found.server_key, found.iterations

    def receive(self, token: bytes) -> bytes:
        from scramp import ScramException

        try:
            if self._name is None:
                self._server.set_client_first(_text(token))
                return str(self._server.get_server_first()).encode()
            self._server.set_client_final(_text(token))
            answer = str(self._server.get_server_final()).encode()
        except ScramException as error:
            raise LoginFailed(
                "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                f"{self._mechanism}"
            ) from error
        self.user = self._name
        return answer


def _text(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError as error:
        raise LoginFailed("Authentication failed: the token is not in UTF-8") from error
