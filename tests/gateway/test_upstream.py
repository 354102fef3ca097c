"""The connection to a broker: streams in both directions, and the bound of answers that are held."""

from __future__ import annotations

import random
import re
import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from shoal.client.answer_sizes import AnswerSizes
from shoal.client.config import ClientConfig
from shoal.errors import Disconnected, ProtocolError
from shoal.gateway import GatewaySettings
from shoal.gateway.budget import Budget
from shoal.gateway.client_connection import Client
from shoal.gateway.upstream import TooLarge, Upstream
from tests.client.test_connection import Listen, after_versions, framed, read_frame
from tests.client.test_connection import listen as listen

MEGABYTE = 1 << 20

Connect = Callable[..., Upstream]


@pytest.fixture
def connect(listen: Listen) -> Iterator[Connect]:
    """Connect to a broker that runs a script, on behalf of a client that waits for its answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        other = socket.create_connection(server.getsockname())
        mine, _ = server.accept()
    opened: list[Upstream] = []

    def to(script: Callable[[socket.socket], object], sizes: AnswerSizes = AnswerSizes()) -> Upstream:  # noqa: B008 (frozen)
        address = listen(after_versions(script))
        config = ClientConfig("upstream", (address,), answer_sizes=sizes)
        client = Client(mine, 60.0, "127.0.0.1", Budget(1 << 30), lambda sentence: None)
        opened.append(Upstream(address, client, GatewaySettings("127.0.0.1", 0, config)))
        return opened[-1]

    with mine, other:
        yield to
    for each in opened:
        each.close()


# Piece by piece


def received(connection: Upstream, piece_bytes: int) -> bytes:
    """Receive the oldest answer by pieces."""
    head = connection.begin_frame()
    left = struct.unpack(">i", head[:4])[0] - 4
    whole, buffer = bytearray(head[4:]), memoryview(bytearray(piece_bytes))
    while left:
        count = connection.read_into(buffer[:left])
        whole += buffer[:count]
        left -= count
    return bytes(whole)


@pytest.mark.parametrize("piece_bytes", [1, 3, 1024, MEGABYTE])
def test_stream_parts_and_read_into_pass_pieces(connect: Connect, piece_bytes: int) -> None:
    answer = random.Random(1).randbytes(20_000)
    asked: list[bytes] = []

    def serve(sock: socket.socket) -> None:
        for _ in range(2):
            asked.append(read_frame(sock))
            sock.sendall(framed(7, answer))

    with connect(serve) as connection:
        for _ in range(2):
            connection.stream_parts([struct.pack(">i", 9), b"a request"[:4], b"uest!"], "ANY", 7)
            assert received(connection, piece_bytes) == struct.pack(">i", 7) + answer
            assert connection.in_flight == 0
    assert asked == [b"a request"[:4] + b"uest!"] * 2


def test_stream_parts_that_raise_close_connection(connect: Connect) -> None:
    def broken() -> Iterator[bytes]:
        yield struct.pack(">i", 100)
        raise KeyError("no more")

    with connect(lambda sock: sock.recv(1000)) as connection:
        with pytest.raises(KeyError):
            connection.stream_parts(broken(), "ANY", 7)
        assert connection.closed


def test_stream_parts_without_response_is_not_in_flight(connect: Connect) -> None:
    with connect(read_frame) as connection:
        connection.stream_parts([struct.pack(">i", 4) + b"only"], "ANY", 7, answered=False)
        assert connection.in_flight == 0
        with pytest.raises(ProtocolError, match="nothing was asked"):
            connection.begin_frame()


def test_begin_frame_of_other_correlation_id_closes_connection(connect: Connect) -> None:
    def serve(sock: socket.socket) -> None:
        read_frame(sock)
        sock.sendall(framed(99, b"\0" * 10))

    with connect(serve) as connection:
        connection.stream_parts([struct.pack(">i", 4) + b"asks"], "ANY", 7)
        with pytest.raises(ProtocolError, match=r"response.*ANY.*7"):
            connection.begin_frame()
        assert connection.closed


def test_read_into_after_end_of_stream_raises_disconnected(connect: Connect) -> None:
    def serve(sock: socket.socket) -> None:
        read_frame(sock)
        sock.sendall(framed(7, b"\0" * 100)[:50])

    with connect(serve) as connection:
        connection.stream_parts([struct.pack(">i", 4) + b"asks"], "ANY", 7)
        with pytest.raises(Disconnected, match=r"connection.*within"):
            received(connection, 10)


# Whole


def answering(size: int) -> Callable[[socket.socket], None]:
    def serve(sock: socket.socket) -> None:
        read_frame(sock)
        sock.sendall(struct.pack(">ii", size, 7))
        sock.sendall(bytes(size - 4))

    return serve


def received_whole(connection: Upstream, largest: int | None = None) -> int:
    with connection:
        connection.stream_parts([struct.pack(">i", 4) + b"asks"], "ANY", 7)
        return len(connection.receive_whole(largest))


def test_held_response_has_a_bound_that_a_property_raises(connect: Connect) -> None:
    assert received_whole(connect(answering(64 * MEGABYTE))) == 64 * MEGABYTE
    with pytest.raises(TooLarge) as refused:
        received_whole(connect(answering(64 * MEGABYTE + 1)))
    assert re.search(
        r"67108865.*67108864.*shoal\.max\.answer\.bytes.*--max-decompressed-bytes", str(refused.value)
    )
    larger = AnswerSizes(answer_bytes=65 * MEGABYTE)
    assert received_whole(connect(answering(65 * MEGABYTE), larger)) == 65 * MEGABYTE
    assert received_whole(connect(answering(65 * MEGABYTE)), 65 * MEGABYTE) == 65 * MEGABYTE
