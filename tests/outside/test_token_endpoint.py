"""A token endpoint that answers byte by byte: a login waits for its deadline, and not for the last byte."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rig.shoal import run_shoal
from shoal_broker import Broker

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"


@pytest.fixture(params=[_HEAD, b"HTTP/1.1 200 OK\r\nX-Slow: "], ids=["body", "header"])
def dripping(request: pytest.FixtureRequest) -> Iterator[str]:
    """An endpoint that never ends its answer, and is never silent for as long as a timeout."""
    over = threading.Event()

    def answer(client: socket.socket) -> None:
        with client, suppress(OSError):
            client.recv(65536)
            client.sendall(request.param)
            while not over.wait(0.2):
                client.sendall(b" ")

    def serve() -> None:
        while not over.is_set():
            with suppress(OSError):
                threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/token"
        over.set()


def test_login_ends_at_the_deadline_if_the_endpoint_never_ends_its_answer(
    dripping: str, tmp_path: Path
) -> None:
    with Broker() as broker:
        config = tmp_path / "source.properties"
        config.write_text(
            f"bootstrap.servers={broker.bootstrap}\nsecurity.protocol=SASL_PLAINTEXT\n"
            f"sasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.token.endpoint.url={dripping}\n"
            "sasl.oauthbearer.client.credentials.client.id=mirror\n"
            "sasl.oauthbearer.client.credentials.client.secret=secret\n"
            "sasl.login.connect.timeout.ms=1000\nsasl.login.read.timeout.ms=1000\n"
            "sasl.login.callback.handler.class="
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler\n"
            "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;\n"
        )
        config.chmod(0o600)
        # Without a deadline, the login waits for as long as the endpoint sends: the time limit is no bound.
        done = run_shoal("inspect", "--from-config", str(config), "--topics", "orders", timeout_s=90)
    assert done.returncode in (1, 2), done.stderr
    assert all(each in done.stderr for each in ("endpoint", str(dripping), "1"))
    assert "Traceback" not in done.stderr
