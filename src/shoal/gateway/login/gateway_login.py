"""
A client's login by the gateway's own users, before its first request.

The client sends ApiVersions, SaslHandshake, and then tokens. After SaslHandshake v1 each token is in a
SaslAuthenticate request (KIP-152); after v0 only its size precedes it, in both directions. Any other request
closes the connection, and so does a refused token (Kafka's ``SaslServerAuthenticator``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...error_codes import ErrorCode
from ...errors import ProtocolError
from ...protocol import codec
from ...protocol.apis import ApiKey
from ...protocol.codec import RequestHeader
from ...protocol.primitives import INT32
from ..client_connection import Client, ClientGone, ClientRequest
from .exchange import LoginExchange, LoginFailed, begin_exchange
from .users import UserFile

__all__ = ["LARGEST_TOKEN", "GatewayLogin", "decoded"]

#: Kafka's default of ``sasl.server.max.receive.size``.
LARGEST_TOKEN = 512 * 1024

#: Kafka's default of ``connection.failed.authentication.delay.ms``: it slows clients that guess.
_FAILED_DELAY_S = 0.1

_HANDSHAKE = codec.response_class(ApiKey.SASL_HANDSHAKE)
_AUTHENTICATE = codec.response_class(ApiKey.SASL_AUTHENTICATE)


class GatewayLogin:
    """One client's login by one of the gateway's own users."""

    def __init__(
        self,
        client: Client,
        users: UserFile,
        mechanisms: Sequence[str],
        announce: Callable[[RequestHeader], Any],
    ) -> None:
        """
        Prepare a login.

        Args:
            client: A client that has sent nothing yet.
            users: The users that may log in.
            mechanisms: The SASL mechanisms to offer.
            announce: Makes the answer to an ApiVersions request.

        """
        self._client = client
        self._users = users
        self._mechanisms = tuple(mechanisms)
        self._announce = announce

    def run(self) -> str | None:
        """
        Return the name of the user that logged in; None if the client hung up first.

        Raises:
            ClientGone: The client sent another request than those of a login.
            LoginFailed: The login was refused, and the client has its answer.

        """
        request = self._next_after_versions()
        if request is None:
            return None
        exchange = self._shake_hands(request)
        step = self._take_token if request.header.api_version == 0 else self._take_request
        while exchange.user is None:
            if not step(exchange):
                return None
        return exchange.user

    def _next_after_versions(self) -> ClientRequest | None:
        """Answer ApiVersions, once if it was understood, and return the next request."""
        is_announced = False
        while (request := self._client.begin_request(LARGEST_TOKEN)) is not None:
            if request.header.api_key != ApiKey.API_VERSIONS or is_announced:
                return request
            request.whole(LARGEST_TOKEN)
            answer = self._announce(request.header)
            self._send(request, answer)
            is_announced = answer.error_code == ErrorCode.NONE
        return None

    def _shake_hands(self, request: ClientRequest) -> LoginExchange:
        header = request.header
        if header.api_key != ApiKey.SASL_HANDSHAKE or not 0 <= header.api_version <= 1:
            raise ClientGone(f"API {header.api_key} v{header.api_version} before a login")
        mechanism = decoded(request).mechanism
        is_offered = mechanism in self._mechanisms
        answer = _HANDSHAKE(
            version=header.api_version,
            error_code=ErrorCode.NONE if is_offered else ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            mechanisms=list(self._mechanisms),
        )
        if not is_offered:
            self._client.pause(_FAILED_DELAY_S)
        self._send(request, answer)
        if not is_offered:
            raise ClientGone(f"it asked for the SASL mechanism {mechanism!r}")
        return begin_exchange(mechanism, self._users, self._client.check_login)

    def _take_request(self, exchange: LoginExchange) -> bool:
        """Take a SaslAuthenticate request; False if the client left."""
        request = self._client.begin_request(LARGEST_TOKEN)
        if request is None:
            return False
        header = request.header
        if header.api_key != ApiKey.SASL_AUTHENTICATE or not 0 <= header.api_version <= 2:
            raise ClientGone(f"API {header.api_key} v{header.api_version} within a login")
        token = decoded(request).auth_bytes or b""
        code, sentence, answer = ErrorCode.NONE, None, b""
        failed: LoginFailed | None = None
        try:
            answer = exchange.receive(bytes(token))
        except LoginFailed as error:
            code, sentence, failed = ErrorCode.SASL_AUTHENTICATION_FAILED, str(error), error
            self._client.pause(_FAILED_DELAY_S)
        # The lifetime stays 0: the gateway requires no second login (KIP-368).
        self._send(
            request,
            _AUTHENTICATE(
                version=header.api_version, error_code=code, error_message=sentence, auth_bytes=answer
            ),
        )
        if failed is not None:
            raise failed
        return True

    def _take_token(self, exchange: LoginExchange) -> bool:
        """Take a token without a header; False if the client left. A failure has no answer."""
        token = self._client.begin_token(LARGEST_TOKEN)
        if token is None:
            return False
        try:
            answer = exchange.receive(token)
        except LoginFailed:
            self._client.pause(_FAILED_DELAY_S)
            raise
        self._client.send(INT32.pack(len(answer)) + answer)
        return True

    def _send(self, request: ClientRequest, answer: Any) -> None:
        self._client.send(codec.encode_response(answer, request.header.correlation_id))


def decoded(request: ClientRequest) -> Any:
    """
    Read and decode a request of a login.

    Raises:
        ClientGone: The request is malformed or too large.

    """
    try:
        return codec.decode_request(request.header, request.whole(LARGEST_TOKEN))
    except ProtocolError as error:
        raise ClientGone(str(error)) from error
