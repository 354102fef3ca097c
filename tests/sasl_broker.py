"""A broker whose clients log in by mechanisms that the embedded one does not have; it serves Metadata."""

from __future__ import annotations

import socketserver
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import decode_request, encode_response, read_request_header, response_class

__all__ = ["NODE_ID", "Answer", "Answers", "sasl_broker"]

#: The answer to a token, and whether it completes the login.
Answer = tuple[bytes, bool]

#: Returns the answer to a token; None to refuse it.
Answers = Callable[[bytes], Answer | None]

NODE_ID = 7

_VERSIONS = {
    ApiKey.METADATA: (0, 12),
    ApiKey.API_VERSIONS: (0, 3),
    ApiKey.SASL_HANDSHAKE: (0, 1),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
}


class _Connection(socketserver.StreamRequestHandler):
    server: _Server
    is_logged_in = False

    def handle(self) -> None:
        while size := self.rfile.read(4):
            frame = memoryview(self.rfile.read(struct.unpack(">i", size)[0]))
            header = read_request_header(frame)
            api = ApiKey(header.api_key)
            fields = self._answer(api, decode_request(header, frame))
            if fields is None:
                return
            answer = response_class(api)(version=header.api_version, **fields)
            self.wfile.write(encode_response(answer, header.correlation_id))

    def _answer(self, api: ApiKey, request: Any) -> dict[str, Any] | None:
        match api:
            case ApiKey.API_VERSIONS:
                entry = response_class(api).ApiVersion
                return {
                    "api_keys": [
                        entry(api_key=key, min_version=oldest, max_version=newest)
                        for key, (oldest, newest) in _VERSIONS.items()
                    ]
                }
            case ApiKey.SASL_HANDSHAKE:
                return {"error_code": 0, "mechanisms": [request.mechanism]}
            case ApiKey.SASL_AUTHENTICATE:
                return self._authenticate(bytes(request.auth_bytes))
            case ApiKey.METADATA if self.is_logged_in:
                host, port = self.server.server_address[:2]
                broker = response_class(api).MetadataResponseBroker
                return {"brokers": [broker(node_id=NODE_ID, host=str(host), port=port)], "topics": []}
        return None  # as Kafka's SaslServerAuthenticator: no answer to other requests before the login

    def _authenticate(self, token: bytes) -> dict[str, Any]:
        found = self.server.answers(token)
        if found is None:
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            return {"error_code": code, "error_message": self.server.refusal, "auth_bytes": b""}
        answer, self.is_logged_in = found
        return {
            "error_code": 0,
            "error_message": None,
            "auth_bytes": answer,
            **({"session_lifetime_ms": self.server.session_ms} if self.server.session_ms else {}),
        }


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    answers: Answers
    session_ms: int
    refusal: str


@contextmanager
def sasl_broker(answers: Answers, session_ms: int = 0, refusal: str = "no such token") -> Iterator[str]:
    """Run a broker, known to itself as :data:`NODE_ID`; yields its address.

    Args:
        answers: Returns the answers to tokens.
        session_ms: The lifetime of a login in the answers (KIP-368).
        refusal: The message to a refused token.
    """
    with _Server(("127.0.0.1", 0), _Connection) as server:
        server.answers, server.session_ms, server.refusal = answers, session_ms, refusal
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
