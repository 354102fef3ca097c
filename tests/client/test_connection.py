"""A peer that does not answer as a broker would costs one sentence, and no memory."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from shoal.broker import Broker
from shoal.client.connection import Address, Connection, ReceiveBuffer, parse_bootstrap
from shoal.errors import Disconnected, ProtocolError
from shoal.protocol.apis import ApiKey

MIB = 1024 * 1024


class Relay:
    """Passes the handshake on to a broker; the next answer is only a size, and then the connection ends."""

    def __init__(self, broker: Broker, size: int) -> None:
        self._broker = parse_bootstrap(broker.bootstrap)[0]
        self._size = size
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*self._listener.getsockname())
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError), self._listener.accept()[0] as client:
            with socket.create_connection(self._broker) as broker:
                broker.sendall(client.recv(MIB))
                client.sendall(broker.recv(MIB))
            client.recv(MIB)
            client.sendall(struct.pack(">i", self._size))

    def close(self) -> None:
        self._listener.close()
        self._thread.join()


@contextlib.contextmanager
def answering(size: int) -> Iterator[Connection]:
    with (
        Broker() as broker,
        contextlib.closing(Relay(broker, size)) as relay,
        Connection(relay.address, client_id="test", timeout_s=10) as connection,
    ):
        yield connection


@pytest.mark.parametrize("size", [64 * MIB + 1, 1024 * MIB, 3, -1])
def test_an_answer_without_batches_is_at_most_64_mib(size: int) -> None:
    with answering(size) as connection:
        with pytest.raises(ProtocolError, match=f"does not answer as a Kafka broker .* {size} bytes"):
            connection.request(ApiKey.METADATA, topics=[])
        assert connection.closed


def test_64_mib_are_waited_for() -> None:
    with answering(64 * MIB) as connection, pytest.raises(Disconnected):
        connection.request(ApiKey.METADATA, topics=[])


def test_an_answer_into_a_buffer_may_be_larger_but_not_any_size() -> None:
    buffer = ReceiveBuffer(1)
    for size, error in ((64 * MIB + 1, Disconnected), (1024 * MIB, ProtocolError)):
        with answering(size) as connection:
            connection.send(ApiKey.METADATA, topics=[])
            with pytest.raises(error):
                connection.receive(buffer)
