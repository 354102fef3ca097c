"""One connection: whole answers in order, or an error of ours and a closed socket."""

from __future__ import annotations

import contextlib
import random
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from shoal.client.answer_sizes import AnswerSizes
from shoal.client.connection import Connection
from shoal.client.receiving import ReceiveBuffer
from shoal.errors import AccessRefused, BrokerError, Disconnected, ProtocolError
from shoal.net.address import Address, parse_bootstrap
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import (
    ValueLimit,
    encode_response,
    read_request_header,
    request_class,
    response_class,
)
from shoal_broker import Broker
from tests.snapshots import Texts

MIB = 1024 * 1024

Script = Callable[[socket.socket], object]


class Peer:
    """A listener that runs a script with each connection."""

    def __init__(self, script: Script) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*self._listener.getsockname())
        self._script = script
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client, contextlib.suppress(OSError):
                self._script(client)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


Listen = Callable[[Script], Address]


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Return a function that starts a peer, and returns its address."""
    peers: list[Peer] = []

    def start(script: Script) -> Address:
        peers.append(Peer(script))
        return peers[-1].address

    yield start
    for each in peers:
        each.close()


def read_frame(sock: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
    return sock.recv(size, socket.MSG_WAITALL)


def framed(correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


def answer_versions(sock: socket.socket, *apis: tuple[int, int, int], error: int = 0) -> None:
    """Answer ApiVersions v0."""
    read_frame(sock)
    entries = b"".join(struct.pack(">hhh", *api) for api in apis)
    sock.sendall(framed(0, struct.pack(">hi", error, len(apis)) + entries))


def after_versions(script: Script) -> Script:
    def serve(sock: socket.socket) -> None:
        answer_versions(sock, (3, 0, 12), (0, 0, 12))
        script(sock)

    return serve


def connect(
    address: Address,
    timeout_s: float = 20.0,
    *,
    abort_on_close: bool = False,
    sizes: AnswerSizes | None = None,
) -> Connection:
    return Connection(
        address, client_id="me", timeout_s=timeout_s, abort_on_close=abort_on_close, sizes=sizes
    )


def impatient(address: Address, timeout_s: float, *, abort_on_close: bool = False) -> Connection:
    """Have patience for the handshake alone: a peer may need more for it on a busy machine."""
    connection = connect(address, abort_on_close=abort_on_close)
    connection.timeout_s = timeout_s
    timeval = struct.pack("ll", 0, int(timeout_s * 1e6))
    with connection.lend([0, 0]) as sock:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            sock.setsockopt(socket.SOL_SOCKET, option, timeval)
    return connection


def to(broker: Broker) -> Connection:
    return connect(Address(broker.host, broker.port))


# The handshake


def test_produce_version_announced_but_refused_is_not_used(listen: Listen) -> None:
    with connect(listen(after_versions(lambda sock: None))) as connection:
        assert connection.versions[ApiKey.PRODUCE] == (3, 12)


def test_connection_with_refused_api_versions_raises_broker_error(listen: Listen) -> None:
    address = listen(lambda sock: answer_versions(sock, error=35))
    with pytest.raises(BrokerError, match="UNSUPPORTED_VERSION"):
        connect(address)


STRANGERS: dict[str, tuple[bytes, type[Exception]]] = {
    "silence": (b"", Disconnected),
    "half-a-size": (b"\0\0", Disconnected),
    "http": (b"HTTP/1.1 400 Bad Request\r\n\r\n", ProtocolError),
    "tls-alert": (b"\x15\x03\x03\x00\x02\x02\x50", AccessRefused),
    "empty": (b"\0\0\0\0", ProtocolError),
    "three-bytes": (b"\0\0\0\3abc", ProtocolError),
    "negative": (b"\xff\xff\xff\xff", ProtocolError),
    "largest": (b"\x7f\xff\xff\xff", ProtocolError),
    "another-answer": (framed(7, b"\0\0\0\0\0\0"), ProtocolError),
    "null-array": (framed(0, b"\0\0\0\0\xff\xff"), ProtocolError),
    "cut-short": (framed(0, b"\0\0\0\0"), ProtocolError),
}


@pytest.mark.parametrize(("answer", "error"), STRANGERS.values(), ids=STRANGERS)
def test_connection_to_another_protocol_raises(listen: Listen, answer: bytes, error: type[Exception]) -> None:
    def serve(sock: socket.socket) -> None:
        read_frame(sock)
        sock.sendall(answer)

    with pytest.raises(error):
        connect(listen(serve))


def test_connection_to_silent_peer_times_out(listen: Listen) -> None:
    over = threading.Event()
    address = listen(lambda sock: over.wait(20.0))
    with pytest.raises(Disconnected, match=r"answer.*time"):
        connect(address, timeout_s=0.1)
    over.set()


def test_connection_without_listener_raises_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address(*listener.getsockname())
    with pytest.raises(Disconnected, match=f"{address.port}: .*refused"):
        connect(address)


@pytest.mark.parametrize(
    "host",
    ["no-such-host.invalid", "a..b", "x" * 70, "\N{SNOWMAN}" * 70],
    ids=["missing", "a..b", "long", "snow"],
)
def test_connection_to_invalid_host_raises_disconnected(host: str) -> None:
    with pytest.raises(Disconnected):
        connect(Address(host, 9092))


# Requests and answers


def test_receive_without_request_raises(broker: Broker) -> None:
    with to(broker) as connection, pytest.raises(ProtocolError, match="nothing was asked"):
        connection.receive()


def test_receive_of_other_correlation_id_closes_connection(listen: Listen) -> None:
    def serve(sock: socket.socket) -> None:
        read_frame(sock)
        sock.sendall(framed(99, b"\0" * 10))

    with connect(listen(after_versions(serve))) as connection:
        with pytest.raises(ProtocolError, match=r"response.*METADATA.*1"):
            connection.request(ApiKey.METADATA, topics=[])
        assert connection.closed
        with pytest.raises(Disconnected):
            connection.request(ApiKey.METADATA, topics=[])


def list_topics(connection: Connection, buffer: ReceiveBuffer) -> None:
    connection.send(ApiKey.METADATA, topics=[])
    connection.receive(buffer)


def test_receive_interrupted_in_a_frame_closes_connection(listen: Listen) -> None:
    is_interrupted = threading.Event()

    def interrupt(number: int, frame: object) -> None:
        if not is_interrupted.is_set():
            is_interrupted.set()
            raise KeyboardInterrupt

    def serve(sock: socket.socket) -> None:
        read_frame(sock)
        sock.sendall(framed(1, bytes(1000))[:500])
        while not is_interrupted.wait(0.01):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR2)

    before = signal.signal(signal.SIGUSR2, interrupt)
    try:
        with connect(listen(after_versions(serve))) as connection:
            with pytest.raises(KeyboardInterrupt):
                list_topics(connection, ReceiveBuffer(MIB))
            assert connection.closed
    finally:
        is_interrupted.set()
        signal.signal(signal.SIGUSR2, before)


def test_send_interrupted_closes_connection(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with to(broker) as connection:
        monkeypatch.setattr("shoal.client.connection.send_all", interrupted)
        with pytest.raises(KeyboardInterrupt):
            connection.send(ApiKey.METADATA, topics=[])
        assert connection.closed


def answering(size: int) -> Script:
    """Answer with a size and nothing more."""

    def serve(sock: socket.socket) -> None:
        answer_versions(sock, (3, 0, 12), (1, 4, 12), (2, 1, 7))
        read_frame(sock)
        sock.sendall(struct.pack(">i", size))

    return serve


@pytest.mark.parametrize("size", [1024 * MIB, 3, -1])
def test_receive_of_another_protocol_names_it(listen: Listen, size: int) -> None:
    with connect(listen(answering(size))) as connection:
        with pytest.raises(ProtocolError, match=rf"broker.*{size}"):
            connection.request(ApiKey.METADATA, topics=[])
        assert connection.closed


def list_offsets(connection: Connection, partitions: int = 1) -> None:
    topic = request_class(ApiKey.LIST_OFFSETS).ListOffsetsTopic
    asked = [topic.ListOffsetsPartition(partition_index=each, timestamp=-1) for each in range(partitions)]
    connection.request(
        ApiKey.LIST_OFFSETS, replica_id=-1, isolation_level=0, topics=[topic(name="t", partitions=asked)]
    )


def produce(connection: Connection, size: int) -> None:
    connection.send_parts([bytes(size)], ApiKey.PRODUCE, connection.next_correlation_id())
    connection.receive()


def fetch(connection: Connection, max_bytes: int) -> None:
    connection.send(ApiKey.FETCH, max_wait_ms=0, min_bytes=1, max_bytes=max_bytes, topics=[])
    connection.receive(ReceiveBuffer(1))


@pytest.mark.parametrize(
    ("ask", "size"),
    [
        (lambda connection: connection.request(ApiKey.METADATA, topics=None), 64 * MIB + 1),
        (lambda connection: fetch(connection, MIB), 117 * MIB),
    ],
)
def test_receive_of_size_above_the_bound_raises(
    listen: Listen, ask: Callable[[Connection], object], size: int, texts: Texts
) -> None:
    address = listen(answering(size))
    with connect(address) as connection:
        with pytest.raises(ProtocolError) as refused:
            ask(connection)
        texts(str(refused.value))
        assert connection.closed


@pytest.mark.parametrize(
    ("ask", "size"),
    [
        (lambda connection: connection.request(ApiKey.METADATA, topics=None), 64 * MIB),
        (lambda connection: list_offsets(connection, 1000), 200_000),
        (lambda connection: produce(connection, MIB), 64 * MIB),
        (lambda connection: fetch(connection, MIB), 100 * MIB + 200_000),
        (lambda connection: fetch(connection, 300 * MIB), 301 * MIB),
    ],
)
def test_receive_of_size_within_the_bound_waits(
    listen: Listen, ask: Callable[[Connection], object], size: int
) -> None:
    with connect(listen(answering(size))) as connection, pytest.raises(Disconnected):
        ask(connection)


def test_receive_bounds_grow_with_properties(listen: Listen) -> None:
    sizes = AnswerSizes(answer_bytes=80 * MIB, batch_bytes=200 * MIB)
    for ask, size in (
        (lambda connection: connection.request(ApiKey.METADATA, topics=[]), 80 * MIB),
        (list_offsets, 80 * MIB),
        (lambda connection: fetch(connection, MIB), 200 * MIB),
    ):
        with connect(listen(answering(size)), sizes=sizes) as connection, pytest.raises(Disconnected):
            ask(connection)


class FewValues(AnswerSizes):
    values = ValueLimit(1000, "ask for less")


def test_response_with_too_many_values_raises(listen: Listen) -> None:
    broker = response_class(ApiKey.METADATA).MetadataResponseBroker
    brokers = [broker(node_id=node, host=f"host-{node}", port=9092) for node in range(6000)]

    def serve(sock: socket.socket) -> None:
        header = read_request_header(memoryview(read_frame(sock)))
        answer = response_class(ApiKey.METADATA)(version=header.api_version, brokers=brokers, topics=[])
        sock.sendall(encode_response(answer, header.correlation_id))
        sock.recv(1)  # until the client hangs up

    with connect(listen(after_versions(serve)), sizes=FewValues()) as connection:
        with pytest.raises(ProtocolError, match=r"1,000.*values"):
            connection.request(ApiKey.METADATA, topics=[])
        assert connection.closed


def test_response_before_login_has_the_small_bound(listen: Listen) -> None:
    def claim_much(sock: socket.socket) -> None:
        read_frame(sock)
        sock.sendall(struct.pack(">ii", 128 * 1024 + 1, 0))
        sock.recv(1)  # until the client hangs up

    with pytest.raises(ProtocolError, match=r"response.*131073"):
        connect(listen(claim_much))


@pytest.mark.parametrize("buffered", [False, True])
def test_receive_in_pieces_of_any_size_returns_same_responses(listen: Listen, buffered: bool) -> None:
    answers = b"".join(framed(number, bytes([number]) * number * 7) for number in (1, 2, 3, 4, 5))

    def serve(sock: socket.socket) -> None:
        for _ in range(5):
            read_frame(sock)
        dice = random.Random(7)
        left = answers
        while left:
            size = dice.choice([1, 2, 3, 5, 8, 100])
            sock.sendall(left[:size])
            left = left[size:]
            time.sleep(0.0005)  # so that they are pieces at the other end, too

    buffer = ReceiveBuffer(64) if buffered else None
    with connect(listen(after_versions(serve))) as connection:
        for _ in range(5):
            connection.send(ApiKey.METADATA, topics=[])
        for number in (1, 2, 3, 4, 5):
            assert bytes(connection.receive(buffer)[4:]) == bytes([number]) * number * 7


def test_receive_from_peer_that_stops_times_out(listen: Listen) -> None:
    over = threading.Event()

    def serve(sock: socket.socket) -> None:
        read_frame(sock)
        sock.sendall(framed(1, b"\0" * 1000)[:500])
        over.wait(20.0)

    with impatient(listen(after_versions(serve)), 0.1) as connection:
        connection.send(ApiKey.METADATA, topics=[])
        with pytest.raises(Disconnected, match=r"answer.*time"):
            connection.receive(ReceiveBuffer(4096))
        assert connection.closed
    over.set()


@pytest.mark.parametrize("buffer", [None, ReceiveBuffer(MIB)], ids=["small", "buffered"])
def test_receive_of_slow_response_times_out(listen: Listen, buffer: ReceiveBuffer | None) -> None:
    sent = 0

    def serve(sock: socket.socket) -> None:
        nonlocal sent
        read_frame(sock)
        sock.sendall(struct.pack(">i", 1000))
        while True:  # until the other end hangs up
            sock.sendall(b"\0")
            sent += 1
            if select.select([sock], [], [], 0.05)[0]:
                return

    with impatient(listen(after_versions(serve)), 0.3) as connection:
        connection.send(ApiKey.METADATA, topics=[])
        with pytest.raises(Disconnected, match=r"answer.*time"):
            connection.receive(buffer)
        assert 0 < sent < 1000  # each byte restarts no timeout
        assert connection.closed


def test_send_to_peer_that_does_not_read_times_out(listen: Listen) -> None:
    over = threading.Event()
    with impatient(listen(after_versions(lambda sock: over.wait(20.0))), 0.1) as connection:
        with pytest.raises(Disconnected, match=r"answer.*time"):
            connection.send_parts([bytes(64 * MIB)], ApiKey.PRODUCE, 1)
        assert connection.closed
    over.set()


def test_send_of_many_large_parts_arrives_complete(listen: Listen) -> None:
    dice = random.Random(3)
    parts = [dice.randbytes(dice.choice([0, 1, 10, 3000])) for _ in range(3000)]
    parts += [dice.randbytes(3_000_000) for _ in range(3)]
    body = b"".join(parts)
    received: list[bytes] = []
    over = threading.Event()

    def serve(sock: socket.socket) -> None:
        while sum(map(len, received)) < len(body):
            received.append(sock.recv(100_000))
        over.set()

    with connect(listen(after_versions(serve))) as connection:
        connection.send_parts([memoryview(part) for part in parts], ApiKey.PRODUCE, 1)
        assert over.wait(20.0)
    assert b"".join(received) == body


def test_close_with_abort_discards_unsent_bytes(listen: Listen) -> None:
    seen: list[type[Exception] | None] = []
    closed = threading.Event()
    over = threading.Event()

    def serve(sock: socket.socket) -> None:
        closed.wait(20.0)
        try:
            while sock.recv(MIB):
                pass
            seen.append(None)
        except ConnectionResetError as error:
            seen.append(type(error))
        over.set()

    connection = impatient(listen(after_versions(serve)), 0.1, abort_on_close=True)
    with pytest.raises(Disconnected):
        connection.send_parts([bytes(64 * MIB)], ApiKey.PRODUCE, 1)
    closed.set()
    assert over.wait(20.0)
    assert seen == [ConnectionResetError]


# Odds and ends


def test_receive_buffer_grows_for_one_frame_only() -> None:
    buffer = ReceiveBuffer(100)
    first = buffer.reserve(100)
    assert buffer.reserve(60).obj is first.obj
    large = buffer.reserve(1000)
    assert len(large) == 1000
    assert buffer.reserve(100).obj is not large.obj


@pytest.mark.parametrize(
    ("servers", "addresses"),
    [
        ("a:1", [Address("a", 1)]),
        (" a:1 , b:65535,", [Address("a", 1), Address("b", 65535)]),
        ("[::1]:9092", [Address("::1", 9092)]),
        ("some_host-1.example:9092", [Address("some_host-1.example", 9092)]),
    ],
)
def test_parse_bootstrap_returns_addresses(servers: str, addresses: list[Address]) -> None:
    assert parse_bootstrap(servers) == addresses
    assert parse_bootstrap(",".join(map(str, addresses))) == addresses


@pytest.mark.parametrize(
    "servers",
    [
        "",
        ",",
        "a",
        "a:",
        ":1",
        "a:b",
        "a:0",
        "a:65536",
        "a:-1",
        "a:1;b:2",
        "PLAINTEXT://a:1",
        "::1:2",
        "a:1\u0662",
    ],
)
def test_parse_bootstrap_of_invalid_server_names_it(servers: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_bootstrap(servers)
