"""
A client's own login, forwarded to the broker; the gateway does not interpret the tokens.

After SaslHandshake v1 the gateway forwards the client's requests unchanged, also those of a second login
(KIP-368). After v0 tokens have no headers, and only the mechanism determines the last one. The gateway then
uses v1 with the broker, whose answers have an error code for each token (Kafka 4 supports both: KIP-896).

An answer without an error does not end the login: OAUTHBEARER answers a bad token with a challenge that has
the reason (RFC 7628, section 3.2.2; ``OAuthBearerSaslServer``), GSSAPI needs several tokens, and AWS_MSK_IAM
ends with bytes. A broker answers a Metadata request only after a login. So the gateway sends one when the
login seems complete, and at the latest before the first request that belongs to none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..broker_message import without_objects
from ..error_codes import ErrorCode
from ..errors import Disconnected, ProtocolError
from ..net.address import Address
from ..protocol import codec
from ..protocol.apis import ApiKey
from ..protocol.codec import RequestHeader
from ..protocol.primitives import INT32
from .client_connection import Client, ClientGone, ClientRequest
from .upstream import Upstream

__all__ = ["LoginFailed", "PassThroughLogin"]

#: Kafka's default of ``sasl.server.max.receive.size``.
_LARGEST_TOKEN = 512 * 1024

#: The number of tokens that a client sends. GSSAPI is absent: a client of SaslHandshake v0 may need any
#: number, and its tickets are for the host that it connects to.
_TOKENS: Mapping[str, int] = {"PLAIN": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2}

#: The version before KIP-368, as a client of SaslHandshake v0 expects it.
_AUTHENTICATE_VERSION = 0

_HANDSHAKE = codec.response_class(ApiKey.SASL_HANDSHAKE)


class LoginFailed(Exception):
    """The broker refused a client's login; the text has its message."""


class PassThroughLogin:
    """The logins of one client connection."""

    def __init__(self, client: Client, broker: Callable[[], Upstream]) -> None:
        """
        Begin without a login.

        Args:
            broker: Returns the connection to the broker, before any login on it.

        """
        self._client = client
        self._broker = broker

    def serve(self, request: ClientRequest) -> bool:
        """
        Serve a SaslHandshake request, and the tokens behind one of v0, or a SaslAuthenticate request.

        Returns:
            Whether the login is complete for certain. If not, it may be all the same.

        Raises:
            ClientGone: The login cannot be passed on.
            LoginFailed: The broker refused the login, and the client has its answer.

        """
        if request.header.api_key == ApiKey.SASL_HANDSHAKE:
            return self._shake_hands(request)
        return self._authenticate(request)

    def brokers(self, request: ClientRequest) -> dict[int, Address]:
        """
        Ask the broker for the cluster's brokers, and so whether a login is complete.

        Args:
            request: The client's first request that belongs to no login.

        Raises:
            LoginFailed: The broker hung up.

        """
        upstream = self._broker()
        version = upstream.oldest(ApiKey.METADATA)
        try:
            answer = upstream.ask(request.header, ApiKey.METADATA, version, topics=[])
        except Disconnected as error:
            raise LoginFailed(f"API {request.header.api_key} before the end of the login") from error
        return {each.node_id: Address(each.host, each.port) for each in answer.brokers}

    def _shake_hands(self, request: ClientRequest) -> bool:
        header = request.header
        if not 0 <= header.api_version <= 1:
            raise ClientGone(f"SaslHandshake v{header.api_version} is not served")
        try:
            mechanism = codec.decode_request(header, request.whole(_LARGEST_TOKEN)).mechanism
        except ProtocolError as error:
            raise ClientGone(str(error)) from error
        answer = self._broker().ask(header, ApiKey.SASL_HANDSHAKE, 1, mechanism=mechanism)
        code, mechanisms = answer.error_code, answer.mechanisms
        if header.api_version == 0:
            mechanisms = [each for each in mechanisms if each in _TOKENS]
            if mechanism not in _TOKENS:
                code = code or ErrorCode.UNSUPPORTED_SASL_MECHANISM
        response = _HANDSHAKE(version=header.api_version, error_code=code, mechanisms=mechanisms)
        self._client.send(codec.encode_response(response, header.correlation_id))
        if code != ErrorCode.NONE:
            raise ClientGone(f"no login by {mechanism!r}: error {code}")
        for _ in range(_TOKENS[mechanism] if header.api_version == 0 else 0):
            self._pass_token(header)
        return header.api_version == 0

    def _pass_token(self, header: RequestHeader) -> None:
        token = self._client.receive_token(_LARGEST_TOKEN)
        api_key = ApiKey.SASL_AUTHENTICATE
        answer = self._broker().ask(header, api_key, _AUTHENTICATE_VERSION, auth_bytes=token)
        _check(answer)
        accepted = bytes(answer.auth_bytes or b"")
        self._client.send(INT32.pack(len(accepted)) + accepted)

    def _authenticate(self, request: ClientRequest) -> bool:
        header = request.header
        upstream = self._broker()
        if not upstream.supports(header.api_key, header.api_version):
            raise ClientGone(f"SaslAuthenticate v{header.api_version} is not served")
        request.check_size(_LARGEST_TOKEN)
        upstream.forward(request)
        frame = upstream.receive_whole()
        answer = codec.decode_response(ApiKey.SASL_AUTHENTICATE, header.api_version, frame)
        self._client.send(INT32.pack(len(frame)) + bytes(frame))
        _check(answer)
        return not answer.auth_bytes


def _check(answer: Any) -> None:
    """Raise if the broker refuses a token."""
    if answer.error_code != ErrorCode.NONE:
        raise LoginFailed(without_objects(answer.error_message or "") or f"error {answer.error_code}")
