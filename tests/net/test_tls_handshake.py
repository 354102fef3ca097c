"""A peer that resets a connection before TLS begins."""

from __future__ import annotations

import gc
import socket
import ssl
import struct
from collections.abc import Iterator

import pytest

from rig.wait import wait_until
from shoal.client.security.tls import TlsSettings, connect_tls
from shoal.gateway.client_connection import Client, ClientGone
from shoal.net.budget import Budget


@pytest.fixture
def reset() -> Iterator[socket.socket]:
    """A connected socket whose peer sent a RST."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connected = socket.create_connection(server.getsockname(), 10)
        accepted, _ = server.accept()
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("@ii", 1, 0))
    accepted.close()

    def is_reset() -> bool:
        try:
            connected.getpeername()
        except OSError:
            return True
        return False

    wait_until(is_reset, "the reset is here")
    with connected:
        yield connected


@pytest.mark.filterwarnings("error::ResourceWarning")
def test_tls_to_a_peer_that_reset_the_connection_fails_and_leaves_no_socket(reset: socket.socket) -> None:
    with pytest.raises(OSError, match=r"."):
        connect_tls(reset, "127.0.0.1", TlsSettings(), 5.0)
    assert reset.fileno() == -1
    gc.collect()


@pytest.mark.filterwarnings("error::ResourceWarning")
def test_tls_of_a_client_that_reset_the_connection_fails_and_leaves_no_socket(reset: socket.socket) -> None:
    client = Client(reset, 10.0, "127.0.0.1", Budget(1), print)
    with pytest.raises(ClientGone):
        client.begin_tls(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    gc.collect()
