"""The sender, native and in Python, plain and with TLS: the embedded broker, and destinations that lie."""

from __future__ import annotations

import itertools
import select
import signal
import socket
import ssl
import struct
import threading
import time
import uuid
from array import array
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rig.authority import Authority
from shoal.client import send as module
from shoal.client.connection import Connection
from shoal.client.lot import Later, Limits, Refused, Sent, open_gate
from shoal.client.security import PasswordLogin, Security, TlsSettings
from shoal.client.send import send
from shoal.error_codes import ErrorCode
from shoal.errors import Disconnected, ProtocolError, Stopped
from shoal.native import NATIVE
from shoal.net.address import Address
from shoal.protocol.apis import ApiKey
from shoal.records import ENTRY
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from tests.native.destination import NEVER, Destination, Hangup
from tests.native.sending import Leader, connected, lot_of, send_lots, through_tls
from tests.native_path import PATHS

Connect = Callable[..., AbstractContextManager[Connection]]


@pytest.fixture(params=PATHS, autouse=True)
def _path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NATIVE", NATIVE if request.param else None)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, TlsSettings]:
    """The TLS of both ends."""
    authority = Authority()
    path: Path = tmp_path_factory.mktemp("tls") / "broker.pem"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("broker", "127.0.0.1").write_pem(path))
    return context, TlsSettings(trusted=authority.pem)


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def both_ends(
    request: pytest.FixtureRequest, tls: tuple[ssl.SSLContext, TlsSettings]
) -> tuple[ssl.SSLContext | None, Security | None]:
    return (tls[0], Security(tls[1])) if request.param else (None, None)


@pytest.fixture
def connect(both_ends: tuple[ssl.SSLContext | None, Security | None]) -> Connect:
    """Return a function that connects to a destination."""
    context, security = both_ends

    def open_to(
        destination: Destination, receive_buffer: int | None = None, **options: Any
    ) -> AbstractContextManager[Connection]:
        leader = Leader(destination, context, receive_buffer=receive_buffer)
        return connected(leader.serve, leader.address, security, **options)

    return open_to


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("topic", 2)
        running.create_topic("other")
        yield running


@pytest.fixture
def to_broker(
    broker: Broker, both_ends: tuple[ssl.SSLContext | None, Security | None]
) -> Iterator[Connection]:
    context, security = both_ends
    address = Address(broker.host, broker.port)
    if context is None:
        with Connection(address, client_id="shoal", timeout_s=60.0) as connection:
            yield connection
        return
    listener = socket.create_server(("127.0.0.1", 0))
    with connected(
        lambda: through_tls(listener, context, address), Address(*listener.getsockname()), security
    ) as connection:
        yield connection


# The embedded broker


def test_send_lands_all_batches_of_all_topics(broker: Broker, to_broker: Connection) -> None:
    sent = send_lots(to_broker, [lot_of(0), lot_of(1, 3), lot_of(0, 5, topic=1)])
    assert sent == Sent([8, 3, 5], {}, None)
    ends = [broker.log(topic, number).log_end_offset for topic, number in LOGS]
    assert ends == [16, 6, 10]
    assert to_broker.in_flight == 0


LOGS = [("topic", 0), ("topic", 1), ("other", 0)]


def test_send_lists_topics_by_id_if_all_lots_have_one(broker: Broker, to_broker: Connection) -> None:
    topic_id = broker.create_topic("third").topic_id
    third: dict[str, Any] = {"partition": TopicPartition("third", 0), "topic_id": topic_id}
    assert send_lots(to_broker, [lot_of(0)._replace(**third)]).landed == [8]
    following = lot_of(0, base_offset=16)._replace(**third)
    sent = send_lots(to_broker, [following._replace(topic_id=uuid.uuid4())])
    assert sent.landed == [0]
    assert sent.refused[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert send_lots(to_broker, [following, lot_of(0)]).landed == [8, 8], "by name, as one lot has no id"


@pytest.mark.parametrize("version", [7, 8, 9])
def test_send_speaks_older_versions_of_produce(broker: Broker, to_broker: Connection, version: int) -> None:
    to_broker.versions[ApiKey.PRODUCE] = (3, version)
    broker.faults.add(ApiKey.PRODUCE, error=ErrorCode.NOT_ENOUGH_REPLICAS, partition=1)
    sent = send_lots(to_broker, [lot_of(0), lot_of(1)])
    assert sent.landed == [8, 0]
    assert sent.refused[1].error_code == ErrorCode.NOT_ENOUGH_REPLICAS


def test_send_returns_the_refusal_of_several_batches(broker: Broker, to_broker: Connection) -> None:
    sent = send_lots(to_broker, [lot_of(0, together_bytes=300), lot_of(1)])
    assert sent.landed == [0, 8]
    assert sent.refused[0][:3] == (0, 3, ErrorCode.INVALID_RECORD), "a stock broker takes one batch"
    assert sent.refused[0].message


@pytest.mark.parametrize("drop", ["before", "within", "after"])
def test_send_fails_if_the_broker_hangs_up(broker: Broker, to_broker: Connection, drop: Any) -> None:
    broker.faults.add(ApiKey.PRODUCE, drop=drop)
    sent = send_lots(to_broker, [lot_of(0)])
    assert sent.landed == [0]
    assert isinstance(sent.failure, Disconnected)
    assert to_broker.closed
    assert isinstance(send_lots(to_broker, [lot_of(0)]).failure, Disconnected)


# The order of requests

NEW_MS, OLD_MS = 2000, 1000


@pytest.mark.parametrize(
    ("newest_ms", "times_ms", "requests"),
    [
        pytest.param(None, [NEW_MS] * 8, 1, id="nothing has landed since the alignment"),
        pytest.param(NEW_MS, [NEW_MS] * 8, 5, id="the producer is remembered"),
        pytest.param(OLD_MS, [NEW_MS] * 8, 1, id="it may be forgotten"),
        pytest.param(NEW_MS, [NEW_MS, OLD_MS, NEW_MS], 2, id="it may be forgotten after the second"),
        pytest.param(NEW_MS, [-9, NEW_MS], 1, id="a time is unknown"),
    ],
)
def test_requests_in_flight_are_as_many_as_exactly_once_allows(
    connect: Connect, newest_ms: int | None, times_ms: list[int], requests: int
) -> None:
    destination = Destination(lambda number, answer: b"")
    with connect(destination, timeout_s=0.5) as connection:  # a TLS handshake, too
        sent = send_lots(
            connection, [lot_of(times_ms=times_ms, newest_ms=newest_ms)], forgotten_up_to_ms=OLD_MS + 9
        )
    assert isinstance(sent.failure, Disconnected)
    assert len(destination.requests) == requests


@pytest.mark.parametrize(
    ("landed", "newest_ms"), [(0, 7), (1, NEW_MS), (2, None), (3, OLD_MS)], ids=["0", "1", "unknown", "all"]
)
def test_newest_after_is_the_time_of_the_last_batch_that_landed(landed: int, newest_ms: int | None) -> None:
    lot = lot_of(times_ms=[NEW_MS - 1, -9, OLD_MS - 1], newest_ms=7)  # the second record is 1 ms later
    assert lot.newest_after(landed) == newest_ms


@pytest.mark.parametrize(("together_bytes", "expected"), [(0, [1] * 6), (2**20, [6]), (300, [3, 3])])
@pytest.mark.parametrize("buffers", [1, 3])
def test_several_batches_go_together_up_to_the_limit_of_their_partition(
    connect: Connect, together_bytes: int, expected: list[int], buffers: int
) -> None:
    lot = lot_of(0, 6, together_bytes=together_bytes)
    size = len(lot.batches[0]) // buffers
    views = [lot.batches[0][number * size : (number + 1) * size] for number in range(buffers)]
    destination = Destination()
    with connect(destination) as connection:
        assert send_lots(connection, [lot._replace(batches=views)]).landed == [6]
    assert [request["topic", 0] for request in destination.requests] == expected


def test_requests_are_no_larger_than_wanted_but_for_the_last_partition(connect: Connect) -> None:
    destination = Destination()
    lots = [lot_of(number, 1) for number in range(7)]
    with connect(destination) as connection:
        size = len(lots[0].batches[0])
        assert send_lots(connection, lots, request_bytes=2 * size).landed == [1] * 7
    assert [len(request) for request in destination.requests] == [2, 2, 2, 1]


def test_no_lots_send_nothing(connect: Connect) -> None:
    destination = Destination()
    with connect(destination) as connection:
        assert send_lots(connection, []) == Sent([], {}, None)
        assert send_lots(connection, [lot_of(0, 0)]) == Sent([0], {}, None)
    assert destination.requests == []


# Refusals, each in the answer to the fourth request of eight

_LIE_AT = 3

Lie = Callable[[bytes], bytes]


def sized(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def put(at: int, value: bytes) -> Lie:
    """Change bytes of an answer, counted from its size on."""
    return lambda answer: answer[:at] + value + answer[at + len(value) :]


# An answer: size 4, id 4, tags 1, count 1, name 6, count 1. A partition: number 4, error 2, offsets 3 x 8, 3.
_FIRST, _SECOND, _END = 17, 50, 83


def with_texts(answer: bytes) -> bytes:
    """Refuse the first partition with a record's error, a message and the leader; add a broker's address."""
    leader = b"\1\0\x09\0\0\0\2\0\0\0\1\0"
    refusal = b"\0\0\0\0\0\6" + b"\xff" * 24 + b"\2\0\0\0\1\3ab\0\3\xc3\xa9" + leader
    broker = b"\1\0\x0d\2\0\0\0\2\2h\0\0\x23\x84\0\0"
    return sized(answer[4:_FIRST] + refusal + answer[_SECOND:-1] + broker)


REFUSALS: dict[str, tuple[Lie, Refused]] = {
    "another offset": (put(_FIRST + 6, struct.pack(">q", 7)), Refused(3, 4, 0, 7, None)),
    "a negative offset": (put(_FIRST + 6, struct.pack(">q", -1)), Refused(3, 4, 0, -1, None)),
    "an error": (put(_FIRST + 4, b"\0\6"), Refused(3, 4, 6, 6, None)),
    "an error that shoal does not know": (put(_FIRST + 4, b"\x7f\6"), Refused(3, 4, 0x7F06, 6, None)),
    "an error with texts": (with_texts, Refused(3, 4, 6, -1, "é")),
}


@pytest.mark.parametrize(("lie", "refused"), REFUSALS.values(), ids=REFUSALS)
def test_refused_partition_gets_nothing_more_and_the_others_go_on(
    connect: Connect, lie: Lie, refused: Refused
) -> None:
    destination = Destination(lambda number, answer: lie(answer) if number == _LIE_AT else answer)
    with connect(destination) as connection:
        sent = send_lots(connection, [lot_of(0, 20), lot_of(1, 20)])
        assert sent == Sent([_LIE_AT, 20], {0: refused}, None)
        assert connection.in_flight == 0
        assert not connection.closed
    of_refused = sum(("topic", 0) in request for request in destination.requests)
    assert _LIE_AT < of_refused <= _LIE_AT + 5, "what was in flight behind it is received"
    assert destination.ends["topic", 1] == 40


def test_answer_with_tagged_fields_and_no_error_counts(connect: Connect) -> None:
    tagged = Destination(lambda number, answer: sized(answer[4:-1] + b"\1\7\2\1\2"))
    with connect(tagged) as connection:
        assert send_lots(connection, [lot_of(0), lot_of(1)]) == Sent([8, 8], {}, None)


def test_batches_of_a_shared_partition_may_land_later_but_never_before_those_ahead_of_them(
    connect: Connect,
) -> None:
    """Others write before the fourth request and the sixth; the log loses a record before the last."""
    ahead = [0, 0, 0, 3, 3, 5, 5, 4]

    def elsewhere(number: int, answer: bytes) -> bytes:
        return put(_FIRST + 6, struct.pack(">q", 2 * number + ahead[number]))(answer)

    with connect(Destination(elsewhere)) as connection:
        sent = send_lots(connection, [lot_of(0)._replace(lands_later=True)])
    assert sent == Sent([7], {0: Refused(7, 8, 0, 18, None)}, None, (Later(0, 3, 9), Later(0, 5, 15)))


# The gate


def test_closed_gate_sends_nothing(connect: Connect) -> None:
    destination = Destination()
    with connect(destination) as connection:
        for until in (0, 1):
            sent = send_lots(connection, [lot_of(0)], gate=array("Q", [until, 0]))
            assert sent[:2] == ([0], {})
            assert isinstance(sent.failure, Stopped)
            assert not connection.closed
        assert destination.requests == []
        assert send_lots(connection, [lot_of(0)]).failure is None


def test_gate_that_closes_within_a_request_closes_the_connection(connect: Connect) -> None:
    gate = array("Q", [NEVER, 0])
    links: list[Connection] = []

    def close_when_full(number: int, answer: bytes) -> bytes:
        # Until this returns nothing is read: the other requests do not fit in the buffers of the kernel.
        while gate[0] and select.select([], links, [], 0)[1]:
            time.sleep(0.001)
        gate[0] = 0
        return answer

    destination = Destination(close_when_full)
    with connect(destination) as connection:
        links.append(connection)
        lot = lot_of(0, 8, newest_ms=NEW_MS, values=[bytes(2_000_000)] * 2)
        sent = send_lots(connection, [lot], gate=gate)
        assert isinstance(sent.failure, Stopped)
        assert connection.closed
    assert 1 <= sent.landed[0] <= len(destination.requests) < 5


@dataclass
class WatchedTls:
    """
    Stands before the TLS of the client's socket.

    Attributes:
        is_blocked: Whether the last send could not end.
        refuse: If it returns true for a send, that wants to read first.
        sends: The bytes of each send since one wanted to read, and whether there was something to read.

    """

    refuse: Callable[[], bool] = lambda: False
    is_blocked: bool = False
    sends: list[tuple[bytes, bool]] = field(default_factory=list)

    def stand_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        send = ssl.SSLSocket.send

        def watched(connected: ssl.SSLSocket, data: Any, flags: int = 0) -> int:
            if connected.server_side:
                return send(connected, data, flags)
            if self.sends or self.refuse():
                self.sends.append((bytes(data), bool(select.select([connected], [], [], 0)[0])))
                if len(self.sends) == 1:
                    raise ssl.SSLWantReadError
            self.is_blocked = False
            try:
                return send(connected, data, flags)
            except ssl.SSLWantWriteError:
                self.is_blocked = True
                raise

        monkeypatch.setattr(ssl.SSLSocket, "send", watched)


@pytest.fixture
def connect_by_tls(tls: tuple[ssl.SSLContext, TlsSettings]) -> Connect:
    """Return a function that connects to a destination with small buffers on the way."""
    context, settings = tls

    @contextmanager
    def open_to(destination: Destination) -> Iterator[Connection]:
        leader = Leader(destination, context, receive_buffer=4096)
        with (
            connected(leader.serve, leader.address, Security(settings)) as connection,
            socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM) as same,
        ):
            same.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            yield connection

    return open_to


def test_answer_to_a_request_that_left_within_a_cut_send_is_no_fault_of_the_broker(
    connect_by_tls: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = array("Q", [NEVER, 0])
    watched = WatchedTls()
    links: list[Connection] = []
    held: list[bytes] = []

    def close_when_blocked(number: int, answer: bytes) -> bytes:
        # The first goes alone, then five, then three while two are in flight: the first one is whole.
        if number < 4:
            return answer
        held.append(answer)
        if number < 6:
            return b""
        while not watched.is_blocked or select.select([], links, [], 0)[1]:
            time.sleep(0.001)
        gate[0] = 0
        return b"".join(held)

    watched.stand_in(monkeypatch)
    with connect_by_tls(Destination(close_when_blocked)) as connection:
        links.append(connection)
        lot = lot_of(0, 9, values=[bytes(30_000)] * 2)
        sent = send_lots(connection, [lot], gate=gate)
        assert isinstance(sent.failure, Stopped)
        assert sent[:2] == ([6], {})
        assert connection.closed


def test_send_that_wants_to_read_first_is_repeated_once_there_is_something(
    connect_by_tls: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    wants_to_read = threading.Event()

    def answer_late(number: int, answer: bytes) -> bytes:
        # The send after the sixth request comes while at most two are in flight.
        if number == 4:
            assert wants_to_read.wait(60)
        return answer

    def refuse() -> bool:
        if len(destination.requests) > 4:
            wants_to_read.set()
        return wants_to_read.is_set()

    destination = Destination(answer_late)
    watched = WatchedTls(refuse)
    watched.stand_in(monkeypatch)
    with connect_by_tls(destination) as connection:
        assert send_lots(connection, [lot_of(0)]) == Sent([8], {}, None)
    (first, _), (again, is_readable) = watched.sends[:2]
    assert again == first
    assert is_readable


def test_last_response_is_known_while_the_sender_waits(connect: Connect) -> None:
    gate = open_gate()
    times: list[float] = []
    links: list[Connection] = []

    def note(number: int, answer: bytes) -> bytes:
        times.append(links[0].last_response_at)
        return answer

    before = time.monotonic()
    with connect(Destination(note)) as connection:
        links.append(connection)
        assert send_lots(connection, [lot_of(0, 3)], gate=gate).landed == [3]
        assert before <= times[0] < times[1] <= connection.last_response_at <= time.monotonic()


# Answers that do not fit their requests

LIES: dict[str, Lie] = {
    "partition twice": put(_SECOND, struct.pack(">i", 0)),
    "a partition that was not sent": put(_FIRST, struct.pack(">i", 9)),
    "another topic": put(10, b"\6other"),
    "an unknown topic": put(10, b"\6nobod"),
    "no topics": lambda answer: sized(answer[4:9] + b"\1" + b"\0" * 5),
    "a partition is missing": lambda answer: sized(
        answer[4:16] + b"\2" + answer[_FIRST:_SECOND] + answer[_END:]
    ),
    "cut short": lambda answer: sized(answer[4:-1]),
    "no fields": lambda answer: sized(answer[4:8]),
    "too long": lambda answer: sized(answer[4:] + b"\0"),
    "endless varint": put(9, b"\xff" * 8),
    "huge count": put(16, b"\xff\xff\xff\xff\x0f"),
    "text that is no text": lambda answer: with_texts(answer).replace(b"\xc3\xa9", b"\xc3\xc3"),
    "wrong id": put(4, struct.pack(">i", 39)),
    "no id": lambda answer: sized(b"") + b"\0" * 4,
    "half an id": lambda answer: sized(b"\0\0"),
    "huge": put(0, struct.pack(">i", 2**30)),
    "huger": put(0, struct.pack(">i", 2**31 - 1)),
    "negative size": put(0, struct.pack(">i", -1)),
    "no Kafka": lambda answer: b"HTTP/1.1 400 Bad Request\r\n\r\n",
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_nothing_is_counted_or_sent_after_an_answer_that_does_not_fit(connect: Connect, lie: Lie) -> None:
    destination = Destination(lambda number, answer: lie(answer) if number == _LIE_AT else answer)
    with connect(destination) as connection:
        sent = send_lots(connection, [lot_of(0), lot_of(1)])
        assert sent[:2] == ([_LIE_AT, _LIE_AT], {})
        assert isinstance(sent.failure, ProtocolError)
        assert str(connection.address) in str(sent.failure)
        assert connection.closed
    assert _LIE_AT < len(destination.requests) <= _LIE_AT + 5


def test_answer_to_one_partition_too_many_counts_nothing(connect: Connect) -> None:
    def with_another(number: int, answer: bytes) -> bytes:
        if number != _LIE_AT:
            return answer
        another = struct.pack(">i", 2) + answer[_FIRST + 4 : _SECOND]
        return sized(answer[4:16] + b"\4" + answer[_FIRST:_END] + another + answer[_END:])

    with connect(Destination(with_another)) as connection:
        # The last one has nothing in flight by then.
        sent = send_lots(connection, [lot_of(0), lot_of(1), lot_of(2, 1)])
        assert connection.closed
    assert sent[:2] == ([_LIE_AT, _LIE_AT, 1], {})
    assert isinstance(sent.failure, ProtocolError)


def test_silence_times_out(connect: Connect) -> None:
    silent = Destination(lambda number, answer: b"" if number >= _LIE_AT else answer)
    with connect(silent, timeout_s=0.5) as connection:
        sent = send_lots(connection, [lot_of(0)])
        assert connection.closed
    assert sent.landed == [_LIE_AT]
    assert "no answer in time" in str(sent.failure)


def test_response_without_a_request_closes_the_connection(connect: Connect) -> None:
    twice = Destination(lambda number, answer: answer + answer if number == 7 else answer)
    with connect(twice) as connection:
        sent = send_lots(connection, [lot_of(0)])
        assert connection.closed
    assert sent.landed == [8]
    assert isinstance(sent.failure, ProtocolError)


def test_bytes_that_came_before_the_first_request_close_the_connection(
    both_ends: tuple[ssl.SSLContext | None, Security | None],
) -> None:
    context, security = both_ends
    destination = Destination()
    # The answer that the first request will have to its id, which comes with the opening's.
    answer = sized(struct.pack(">i", 1) + b"\0\2\6topic\2" + b"\0" * 30 + b"\1" + b"\0" * 8)
    leader = Leader(destination, context, surplus=answer)
    with connected(leader.serve, leader.address, security) as connection:
        sent = send_lots(connection, [lot_of(0, 1)])
        assert connection.closed
    assert sent[:2] == ([0], {})
    assert isinstance(sent.failure, ProtocolError)
    assert destination.requests == []


def test_lot_may_have_more_bytes_than_any_request(connect: Connect) -> None:
    size, batches = 1 << 20, 1100
    lot = lot_of(0)._replace(
        batches=[memoryview(bytes(size))] * batches, entries=ENTRY.pack(size, 2, NEW_MS, 0) * batches
    )
    # The batches are of zeros, and the gate keeps them here.
    with connect(Destination()) as connection:
        sent = send_lots(connection, [lot], gate=array("Q", [0, 0]))
    assert sent[:2] == ([0], {})
    assert isinstance(sent.failure, Stopped)


# Threads, signals and logins


def test_abort_by_another_thread_ends_the_sender(connect: Connect) -> None:
    links: list[Connection] = []

    def abort(number: int, answer: bytes) -> bytes:
        if number == _LIE_AT:
            links[0].abort()
            return b""
        return answer

    with connect(Destination(abort)) as connection:
        links.append(connection)
        sent = send_lots(connection, [lot_of(0)])
    assert isinstance(sent.failure, Disconnected)
    assert sent.landed[0] <= _LIE_AT


class Interrupted(Exception):
    """A signal handler raises it."""


@pytest.mark.parametrize("waits_to_send", [False, True], ids=["for an answer", "to send"])
def test_exception_of_a_signal_handler_leaves_through_the_sender(
    connect: Connect, waits_to_send: bool
) -> None:
    has_left = threading.Event()
    links: list[Connection] = []

    def interrupt(number: int, frame: object) -> None:
        if not has_left.is_set():
            has_left.set()
            raise Interrupted

    def answer(number: int, answer: bytes) -> bytes:
        while waits_to_send and select.select([], links, [], 0)[1]:
            time.sleep(0.001)
        # A signal that comes just before the sender waits does not end its wait: another one does.
        while not has_left.wait(0.01):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR2)
        raise Hangup

    value = bytes(2_000_000) if waits_to_send else b"value"
    before = signal.signal(signal.SIGUSR2, interrupt)
    try:
        with connect(Destination(answer)) as connection:
            links.append(connection)
            with pytest.raises(Interrupted):
                send_lots(connection, [lot_of(0, newest_ms=NEW_MS, values=[value] * 2)], request_bytes=1)
            assert connection.closed, "the outcome of what is in flight is unknown"
    finally:
        has_left.set()
        signal.signal(signal.SIGUSR2, before)


def test_sender_lets_other_threads_run(connect: Connect) -> None:
    counted = itertools.count()
    done = threading.Event()

    def count(number: int, answer: bytes) -> bytes:
        done.wait(0.2)
        return answer

    def run() -> None:
        while not done.is_set():
            next(counted)
            time.sleep(0.001)

    other = threading.Thread(target=run)
    other.start()
    with connect(Destination(count)) as connection:
        send_lots(connection, [lot_of(0, 2)])
    done.set()
    other.join()
    assert next(counted) > 10


@contextmanager
def logged_in(leader: Leader, security: Security | None, login: PasswordLogin) -> Iterator[Connection]:
    settings = Security(security.tls if security else None, login)
    with connected(leader.serve, leader.address, settings) as connection:
        yield connection


def test_login_that_ends_soon_is_renewed_between_two_sends(
    both_ends: tuple[ssl.SSLContext | None, Security | None],
) -> None:
    context, security = both_ends
    leader = Leader(Destination(), context, session_ms=1)
    with logged_in(leader, security, PasswordLogin("PLAIN", "alice", "secret")) as connection:
        assert send_lots(connection, [lot_of(0, 3)]).landed == [3]
        assert send_lots(connection, [lot_of(0, 3, base_offset=6)]).landed == [3]
    # Perhaps also at the first send; never while requests are in flight.
    assert len(leader.logins) >= 2
    assert leader.logins[-1] == 3
    assert set(leader.logins) <= {0, 3}


def test_renewal_that_is_refused_ends_the_sender_before_it_sends(
    both_ends: tuple[ssl.SSLContext | None, Security | None],
) -> None:
    context, security = both_ends
    destination = Destination()
    leader = Leader(destination, context, session_ms=1, accepted_logins=1)
    with logged_in(leader, security, PasswordLogin("PLAIN", "alice", "secret")) as connection:
        deadline = time.monotonic() + 60
        landed = 0
        while (sent := send_lots(connection, [lot_of(0, 1, base_offset=2 * landed)])).failure is None:
            landed += 1
            assert time.monotonic() < deadline, "no login was renewed"
        assert connection.closed
    assert sent[:2] == ([0], {})
    assert isinstance(sent.failure, Disconnected)
    assert len(destination.requests) == landed == leader.logins[-1]


# Arguments


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ({"max_in_flight": 6}, "6 requests in flight are not 1 to 5"),
        ({"max_in_flight": 0}, "0 requests in flight"),
        ({"request_bytes": 0}, "requests of 0 bytes"),
    ],
)
def test_limits_that_would_break_a_rule_are_refused(
    connect: Connect, limits: dict[str, Any], problem: str
) -> None:
    with connect(Destination()) as connection, pytest.raises(ValueError, match=problem):
        send(connection, [lot_of(0)], Limits(0, **limits), open_gate())


@pytest.mark.parametrize(
    ("lots", "problem"),
    [
        ([lot_of(0), lot_of(0)], "two lots"),
        ([lot_of(0)._replace(entries=b"")], "index"),
        ([lot_of(0)._replace(entries=b"1")], "no whole entries"),
        ([lot_of(0)._replace(entries=ENTRY.pack(0, 1, 0, 0) + lot_of(0).entries)], "empty batch"),
        ([lot_of(0)._replace(entries=ENTRY.pack(1, 0, 0, 0) + lot_of(0).entries)], "empty batch"),
        ([lot_of(0)._replace(batches=[])], "index"),
        ([lot_of(0)._replace(base_offset=-1)], "from offset -1"),
        ([lot_of(0)._replace(base_offset=2**63 - 1)], "from offset"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_lots_that_would_break_a_rule_are_refused(connect: Connect, lots: list[Any], problem: str) -> None:
    with connect(Destination()) as connection, pytest.raises(ValueError, match=problem):
        send_lots(connection, lots)


def test_topics_with_one_id_are_refused(broker: Broker, to_broker: Connection) -> None:
    one_id = uuid.uuid4()
    lots = [lot_of(0)._replace(topic_id=one_id), lot_of(0, topic=1)._replace(topic_id=one_id)]
    with pytest.raises(ValueError, match="two topics have one id"):
        send_lots(to_broker, lots)


def test_send_while_another_request_is_in_flight_is_refused(broker: Broker, to_broker: Connection) -> None:
    to_broker.send(ApiKey.METADATA, topics=[])
    with pytest.raises(ValueError, match="1 requests are in flight"):
        send_lots(to_broker, [lot_of(0)])
    assert broker.log("topic").log_end_offset == 0
