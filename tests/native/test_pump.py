"""Both pumps against the embedded broker, and against destinations that lie."""

from __future__ import annotations

import itertools
import select
import signal
import socket
import struct
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shoal.error_codes import ErrorCode
from shoal.native import NATIVE, LotRow
from shoal.protocol.apis import ApiKey
from shoal.protocol.produce import decode_produce_response
from shoal.protocol.topic_ids import write_topic
from shoal_broker import Broker
from tests.native import pumping
from tests.native.pumping import NEVER, Destination, Hangup, lot, pump, served
from tests.native_path import PATHS


@pytest.fixture(params=PATHS, autouse=True)
def _path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pumping, "NATIVE", NATIVE if request.param else None)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("topic", 2)
        running.create_topic("other")
        yield running


@pytest.fixture
def connection(broker: Broker) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", broker.port)) as connected:
        yield connected


# The embedded broker


def test_pump_lands_all_batches_of_all_topics(broker: Broker, connection: socket.socket) -> None:
    pumped = pump(connection, [lot(0), lot(1, 3), lot(0, 5, topic=1)])
    assert pumped == ("done", 0, [8, 3, 5], [], 8)
    ends = [broker.log(topic, number).log_end_offset for topic, number in LOGS]
    assert ends == [16, 6, 10]


LOGS = [("topic", 0), ("topic", 1), ("other", 0)]


def test_pump_lists_topics_by_id_from_v13_on(broker: Broker, connection: socket.socket) -> None:
    ids = [broker.create_topic(name).topic_id.bytes for name in ("third", "fourth")]
    pumped = pump(connection, [lot(0), lot(0, topic=1)], topics=ids, version=13)
    assert pumped.landed == [8, 8]


@pytest.mark.parametrize("version", [12, 13])
def test_pump_compares_answers_whose_lengths_take_two_bytes(
    broker: Broker, connection: socket.socket, version: int
) -> None:
    names = ["n" * 126, "n" * 127, *(f"topic-{number:03}" + "." * 100 for number in range(126))]
    created = [broker.create_topic(name, 130 if name == names[0] else 1) for name in names]
    topics = [write_topic(each.topic_id if version == 13 else each.name, compact=True) for each in created]
    lots = [lot(0, 2, topic=place) for place in range(len(names))]
    lots += [lot(number, 2) for number in range(1, 130)]
    pumped = pump(connection, lots, topics=topics, version=version, max_answer_bytes=100_000)
    assert pumped == ("done", 0, [2] * len(lots), [], 2)


def test_pump_continues_after_an_earlier_one(broker: Broker, connection: socket.socket) -> None:
    assert pump(connection, [lot(0, 2)]).end == "done"
    assert pump(connection, [lot(0, 2, base_offset=4)], correlation_id=2**31 - 1).end == "done"
    assert broker.log("topic").log_end_offset == 8


def test_batch_that_lands_elsewhere_is_handed_back(broker: Broker, connection: socket.socket) -> None:
    assert pump(connection, [lot(0, 2)]).end == "done"
    # Another producer's records were there: sequences that follow, but another offset.
    pumped = pump(connection, [lot(0, 3, base_offset=4)._replace(base_offset=3)])
    assert (pumped.end, pumped.landed) == ("unexpected", [0])
    ((parts, answer),) = pumped.handed_back
    assert parts == [(0, 0, 1)]
    (outcome,) = decode_produce_response(memoryview(answer or b""), 12)
    assert outcome.base_offset == 4


def test_error_of_one_partition_hands_the_whole_request_back(
    broker: Broker, connection: socket.socket
) -> None:
    broker.faults.add(ApiKey.PRODUCE, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, partition=1)
    pumped = pump(connection, [lot(0), lot(1)])
    assert (pumped.end, pumped.landed) == ("unexpected", [0, 0])
    ((parts, answer),) = pumped.handed_back
    assert parts == [(0, 0, 1), (1, 0, 1)]
    outcomes = decode_produce_response(memoryview(answer or b""), 12)
    assert [each.error_code for each in outcomes] == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert broker.log("topic", 0).log_end_offset == 2


def test_broker_that_hangs_up_leaves_requests_without_an_answer(
    broker: Broker, connection: socket.socket
) -> None:
    broker.faults.add(ApiKey.PRODUCE, drop="after")
    pumped = pump(connection, [lot(0)])
    assert pumped.end in ("closed", "failed")
    assert (pumped.landed, pumped.handed_back) == ([0], [([(0, 0, 1)], None)])


def test_blocking_receive_after_a_pump_does_not_wait_for_more(connection: socket.socket) -> None:
    assert pump(connection, [lot(0)]).end == "done"
    assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1


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
    newest_ms: int | None, times_ms: list[int], requests: int
) -> None:
    destination = Destination(lambda number, answer: b"")
    with served(destination) as connection:
        pumped = pump(
            connection,
            [lot(times_ms=times_ms, newest_ms=newest_ms)],
            forgotten_up_to_ms=OLD_MS + 9,
            wait_ms=300,
        )
    assert pumped.end == "timed out"
    assert len(destination.requests) == len(pumped.handed_back) == requests


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"together_bytes": 0}, [1] * 6),
        ({"together_bytes": 2**20}, [6]),
        ({"together_bytes": 300}, [3, 3]),
        ({"together_bytes": 300, "ends_of_buffers": [100, 110, 400]}, [3, 3]),
        ({"together_bytes": 0, "ends_of_buffers": [100, 110, 400]}, [1] * 6),
    ],
)
def test_several_batches_go_together_up_to_the_limit_of_their_partition(
    options: dict[str, Any], expected: list[int]
) -> None:
    destination = Destination()
    with served(destination) as connection:
        assert pump(connection, [lot(0, 6, **options)]).landed == [6]
    assert [request[("topic", 0)] for request in destination.requests] == expected


def test_requests_are_no_larger_than_wanted_but_for_the_last_partition() -> None:
    destination = Destination()
    lots = [lot(number, 1) for number in range(7)]
    with served(destination) as connection:
        assert pump(connection, lots, request_bytes=2 * len(lots[0].batches[0])).landed == [1] * 7
    assert [len(request) for request in destination.requests] == [2, 2, 2, 1]


# The gate


def test_closed_gate_sends_nothing() -> None:
    destination = Destination()
    for until in (0, 1):
        with served(destination) as connection:
            assert pump(connection, [lot(0)], gate=array("Q", [until, 0]))[:4] == ("gate closed", 0, [0], [])
    assert destination.requests == []


@pytest.mark.parametrize("closes_at", [0, 1, 4])
def test_nothing_is_sent_after_the_gate_closes(closes_at: int) -> None:
    gate = array("Q", [NEVER, 0])
    known = threading.Event()

    def close(number: int, answer: bytes) -> bytes:
        if number == closes_at:
            gate[0] = 0
            known.set()
        return answer

    destination = Destination(close)
    with served(destination) as connection:
        pumped = pump(connection, [lot(0, 40)], gate=gate)
    assert known.is_set()
    assert pumped.end == "gate closed"
    # Requests in flight are answered and counted, and no others were sent.
    assert pumped.landed == [len(destination.requests)]
    assert closes_at < len(destination.requests) <= closes_at + 5
    assert pumped.handed_back == []


def test_request_that_the_gate_cuts_is_handed_back_without_an_answer() -> None:
    gate = array("Q", [NEVER, 0])

    def close_when_full(number: int, answer: bytes) -> bytes:
        # Until this returns nothing is read: the other requests do not fit in the buffers of the kernel.
        while gate[0] and select.select([], [connected], [], 0)[1]:
            time.sleep(0.001)
        gate[0] = 0
        return answer

    destination = Destination(close_when_full)
    with served(destination) as connected:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 100_000)
        pumped = pump(connected, [lot(0, 8, newest_ms=NEW_MS, values=[bytes(2_000_000)] * 2)], gate=gate)
    whole = len(destination.requests)
    assert 1 <= whole < 5
    assert pumped == ("gate closed", 0, [whole], [([(0, whole, whole + 1)], None)], 5)


def test_gate_has_the_time_of_the_last_response() -> None:
    gate = array("Q", [NEVER, 0])
    before = time.monotonic_ns()
    with served(Destination()) as connection:
        pump(connection, [lot(0)], gate=gate)
    assert before <= gate[1] <= time.monotonic_ns()


# Lies, each in the answer to the fourth request of eight

_LIE_AT = 3

Lie = Callable[[bytes], bytes]


def sized(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def put(at: int, value: bytes) -> Lie:
    """Change bytes of an answer, counted from its size on."""
    return lambda answer: answer[:at] + value + answer[at + len(value) :]


# An answer: size 4, id 4, tags 1, count 1, name 6, count 1. A partition: number 4, error 2, offsets 3 x 8, 3.
_FIRST, _SECOND, _END = 17, 50, 83

LIES: dict[str, tuple[Lie, str]] = {
    "wrong offset": (put(_FIRST + 6, struct.pack(">q", 7)), "unexpected"),
    "negative offset": (put(_SECOND + 6, struct.pack(">q", -1)), "unexpected"),
    "an error": (put(_SECOND + 4, b"\0\6"), "unexpected"),
    "partition twice": (put(_SECOND, struct.pack(">i", 0)), "unexpected"),
    "a partition that was not sent": (put(_FIRST, struct.pack(">i", 9)), "unexpected"),
    "another topic": (put(10, b"\6other"), "unexpected"),
    "an unknown topic": (put(10, b"\6nobod"), "unexpected"),
    "no topics": (lambda answer: sized(answer[4:9] + b"\1" + b"\0" * 5), "unexpected"),
    "a partition is missing": (
        lambda answer: sized(answer[4:16] + b"\2" + answer[_FIRST:_SECOND] + answer[_END:]),
        "unexpected",
    ),
    "cut short": (lambda answer: sized(answer[4:-1]), "unexpected"),
    "no fields": (lambda answer: sized(answer[4:8]), "unexpected"),
    "too long": (lambda answer: sized(answer[4:] + b"\0"), "unexpected"),
    "endless varint": (put(9, b"\xff" * 8), "unexpected"),
    "huge count": (put(16, b"\xff\xff\xff\xff\x0f"), "unexpected"),
    "tagged fields": (lambda answer: sized(answer[4:-1] + b"\1\0\0"), "unexpected"),
    "wrong id": (put(4, struct.pack(">i", 39)), "wrong id"),
    "id of the next request": (put(4, struct.pack(">i", 44)), "wrong id"),
    "no id": (lambda answer: sized(b"") + b"\0" * 4, "wrong id"),
    "half an id": (lambda answer: sized(b"\0\0"), "wrong id"),
    "huge": (put(0, struct.pack(">i", 10_001)), "too large"),
    "huger": (put(0, struct.pack(">i", 2**31 - 1)), "too large"),
    "negative size": (put(0, struct.pack(">i", -1)), "too large"),
    "no Kafka": (lambda answer: b"HTTP/1.1 400 Bad Request\r\n\r\n", "too large"),
}


@pytest.mark.parametrize(("lie", "end"), LIES.values(), ids=LIES)
def test_nothing_is_counted_or_sent_after_a_lie(lie: Lie, end: str) -> None:
    destination = Destination(lambda number, answer: lie(answer) if number == _LIE_AT else answer)
    with served(destination) as connection:
        pumped = pump(connection, [lot(0), lot(1)], wait_ms=2000)
        assert pumped.end == end
        assert pumped.landed == [_LIE_AT, _LIE_AT]
        in_flight = [parts for parts, _ in pumped.handed_back]
        assert in_flight == [
            [(0, at, at + 1), (1, at, at + 1)] for at in range(_LIE_AT, _LIE_AT + len(in_flight))
        ]
        assert 1 <= len(in_flight) <= 5
    assert len(destination.requests) == _LIE_AT + len(in_flight)
    has_answers = end == "unexpected"
    assert [answer is not None for answer in pumped.answers] == [has_answers] * len(in_flight)


@pytest.mark.parametrize("size", [0, 1, 4, 30])
def test_hangup_in_an_answer_leaves_the_rest_without_one(size: int) -> None:
    def hang_up(number: int, answer: bytes) -> bytes:
        if number == _LIE_AT + 1:
            raise Hangup
        return answer[:size] if number == _LIE_AT else answer

    with served(Destination(hang_up)) as connection:
        pumped = pump(connection, [lot(0), lot(1)])
    assert pumped.end in ("closed", "failed")  # failed if requests were unread
    assert pumped.landed == [_LIE_AT, _LIE_AT]
    assert set(pumped.answers) == {None}


def test_silence_times_out() -> None:
    with served(Destination(lambda number, answer: b"" if number >= _LIE_AT else answer)) as connection:
        pumped = pump(connection, [lot(0)], wait_ms=300)
    assert (pumped.end, pumped.landed) == ("timed out", [_LIE_AT])
    assert set(pumped.answers) == {None}


def test_unrequested_response_is_a_surplus() -> None:
    with served(Destination(lambda number, answer: answer + answer if number == 7 else answer)) as connection:
        pumped = pump(connection, [lot(0)])
    assert pumped == ("surplus", 0, [8], [], 8)


def test_answers_that_come_byte_by_byte_or_together_are_all_compared() -> None:
    held: list[bytes] = []

    def together(number: int, answer: bytes) -> bytes:
        held.append(answer)
        if number in (0, 5, 7):
            joined = b"".join(held)
            held.clear()
            return joined
        return b""

    with served(Destination(together)) as connection:
        assert pump(connection, [lot(0)]).end == "done"

    class Slow(Destination):
        def serve(self, connection: socket.socket) -> None:
            super().serve(ByteByByte(connection))  # type: ignore[arg-type]

    with served(Slow()) as connection:
        assert pump(connection, [lot(0, 3)]).end == "done"


class ByteByByte:
    """A socket that sends a byte in each segment."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def __enter__(self) -> ByteByByte:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._connection.close()

    def sendall(self, data: bytes) -> None:
        for at in range(len(data)):
            self._connection.sendall(data[at : at + 1])


# The threads of Python


def test_shutdown_by_another_thread_ends_the_pump() -> None:
    connections: list[socket.socket] = []

    def abort(number: int, answer: bytes) -> bytes:
        if number == _LIE_AT:
            connections[0].shutdown(socket.SHUT_RDWR)
            return b""
        return answer

    with served(Destination(abort)) as connection:
        connections.append(connection)
        pumped = pump(connection, [lot(0)])
    assert pumped.end in ("closed", "failed")
    assert pumped.landed[0] <= _LIE_AT


def test_exception_of_a_signal_handler_leaves_through_the_pump() -> None:
    class Interrupted(Exception):
        pass

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    def answer(number: int, answer: bytes) -> bytes:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR2)
        return b""

    before = signal.signal(signal.SIGUSR2, interrupt)
    try:
        with served(Destination(answer)) as connection, pytest.raises(Interrupted):
            pump(connection, [lot(0)])
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_pump_lets_other_threads_of_python_run() -> None:
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
    with served(Destination(count)) as connection:
        pump(connection, [lot(0, 2)])
    done.set()
    other.join()
    assert next(counted) > 10


# Arguments


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"version": 8}, "no Produce v8"),
        ({"version": 14}, "no Produce v14"),
        ({"max_in_flight": 6}, "6 requests in flight are not 1 to 5"),
        ({"max_in_flight": 0}, "0 requests in flight"),
        ({"acks": 0}, "no answers"),
        ({"request_bytes": 2**31}, "too large"),
        ({"gate": array("Q", [NEVER])}, "two 64-bit words"),
        ({"topics": []}, "topic 0 of 0"),
    ],
)
def test_arguments_that_would_break_a_rule_are_refused(options: dict[str, Any], problem: str) -> None:
    with socket.socket() as connection, pytest.raises(ValueError, match=problem):
        pump(connection, [lot(0)], **options)


@pytest.mark.parametrize(
    ("lots", "problem"),
    [
        ([lot(0), lot(0)], "listed twice"),
        ([lot(0)._replace(entries=b"")], "0 bytes in the index"),
        ([lot(0)._replace(entries=b"1")], "no whole entries"),
        ([lot(0)._replace(entries=bytes(20))], "empty batch"),
        ([lot(0)._replace(base_offset=-1)], "from offset -1"),
        ([lot(0)._replace(base_offset=2**63 - 1)], "from offset"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_lots_that_would_break_a_rule_are_refused(lots: list[LotRow], problem: str) -> None:
    with socket.socket() as connection, pytest.raises(ValueError, match=problem):
        pump(connection, lots)


def test_closed_socket_is_refused() -> None:
    connection = socket.socket()
    connection.close()
    with pytest.raises(ValueError, match="closed"):
        pump(connection, [lot(0)])
