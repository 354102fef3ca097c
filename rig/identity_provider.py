"""An OAuth service on loopback: a token endpoint for client credentials, and its public keys (JWKS)."""

import base64
import json
import ssl
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

__all__ = ["IdentityProvider", "TokenRequest", "encoded"]

ISSUER, AUDIENCE = "https://rig.example/issuer", "kafka"

#: The answer to a request for a token: status, headers and body.
Answer = tuple[int, dict[str, str], bytes]


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A request to the token endpoint: headers by lower-case names, and the fields of its form."""

    headers: dict[str, str]
    form: dict[str, str]

    @property
    def credentials(self) -> str:
        """The user and password of the Authorization header, with a colon between them."""
        kind, _, value = self.headers["authorization"].partition(" ")
        assert kind == "Basic"
        return base64.b64decode(value).decode()


@dataclass
class IdentityProvider:
    """An OAuth service, running inside a ``with`` block.

    Attributes:
        clients: The secrets of the clients; each client's tokens have its id as their subject.
        lives_s: The lifetime of new tokens.
        answer: Returns the answer to the next requests instead of a token.
        requests: All requests to the token endpoint.
        is_up: Whether it answers; otherwise it disconnects its clients.
        identity: A PEM file with key and certificate, to serve HTTPS.
    """

    clients: dict[str, str]
    lives_s: float = 3600
    answer: Callable[[], Answer] | None = None
    identity: Path | None = None
    requests: list[TokenRequest] = field(default_factory=list)
    is_up: bool = True

    def __post_init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.provider = self
        if self.identity is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.identity)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        scheme = "http" if self.identity is None else "https"
        return f"{scheme}://127.0.0.1:{self._server.server_address[1]}"

    @property
    def token_url(self) -> str:
        return f"{self.url}/token"

    @property
    def jwks_url(self) -> str:
        return f"{self.url}/jwks"

    def token(self, subject: str, **claims: Any) -> str:
        """Return a signed token; ``claims`` replace those of the provider."""
        now = time.time()
        default: dict[str, Any] = {"sub": subject, "iss": ISSUER, "aud": AUDIENCE, "jti": uuid.uuid4().hex}
        # Whole seconds, as services have them: a token may live a part of a second less than it says.
        default |= {"iat": int(now), "exp": int(now + self.lives_s)}
        signed = f"{encoded({'alg': 'RS256', 'kid': 'rig'})}.{encoded({**default, **claims})}"
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_base64(signature)}"

    def jwks(self) -> dict[str, Any]:
        """Return the public keys (RFC 7517)."""
        numbers = self._key.public_key().public_numbers()
        n, e = (_base64(each.to_bytes((each.bit_length() + 7) // 8)) for each in (numbers.n, numbers.e))
        return {"keys": [{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "rig", "n": n, "e": e}]}

    def answer_to(self, request: TokenRequest) -> Answer:
        """Answer a request for a token."""
        self.requests.append(request)
        if self.answer is not None:
            return self.answer()
        client, _, secret = request.credentials.partition(":")
        if self.clients.get(client) != secret:
            return _json(
                401, {"error": "invalid_client", "error_description": f"no client {client} with {secret}"}
            )
        if request.form.get("grant_type") != "client_credentials":
            return _json(400, {"error": "unsupported_grant_type"})
        token = self.token(client, **({"scope": request.form["scope"]} if "scope" in request.form else {}))
        return _json(200, {"access_token": token, "token_type": "Bearer", "expires_in": self.lives_s})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    provider: IdentityProvider

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: tests cut connections on purpose."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._send(*self.server.provider.answer_to(TokenRequest(headers, form)))

    def do_GET(self) -> None:
        self._send(*_json(200, self.server.provider.jwks()))

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        if not self.server.provider.is_up:
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


def encoded(part: dict[str, Any]) -> str:
    """Return a part of a JWT."""
    return _base64(json.dumps(part).encode())


def _json(status: int, body: dict[str, Any]) -> Answer:
    return status, {"Content-Type": "application/json"}, json.dumps(body).encode()


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
