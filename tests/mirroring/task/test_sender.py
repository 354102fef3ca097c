"""Sends a partition by either sender to a broker that answers by a script."""

from __future__ import annotations

import math
import select
import socket
import struct
import threading
import time
from array import array
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from typing import Any

import pytest

from rig.uncontrolled import Uncontrolled
from shoal.client.cluster import Cluster
from shoal.client.connection import Connection
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError, Disconnected, ProtocolError
from shoal.mirroring.control import WorkerControl
from shoal.mirroring.model.incidents import Delivery
from shoal.mirroring.task.destination_leader import DestinationLeader
from shoal.mirroring.task.partition import PartitionCopy
from shoal.mirroring.task.partition_state import PartitionState
from shoal.mirroring.task.sender import Sender
from shoal.mirroring.task.small_batches import SmallBatchesWatch
from shoal.net.address import Address
from shoal.protocol.produce import decode_produce_request
from shoal.records import BatchHeader, read_header
from tests.batches import batch
from tests.mirroring.task.test_lot import NOW_MS, UNKNOWN_FLAG, aligned, take
from tests.native_path import SENDERS, send_by

BATCHES = 12

#: ApiVersions v0: no error, Produce 3 to 12.
VERSIONS = b"\0\0" + b"\0\0\0\1" + b"\0\0\0\3\0\x0c"

#: Changes the outcome of a request, by its number: error code and base offset; None cuts the connection.
Script = Callable[[int, int], "tuple[int, int] | None"]


def as_expected(request: int, offset: int) -> tuple[int, int] | None:
    return 0, offset


class ScriptedBroker:
    """A broker that answers the oldest request once no more requests come."""

    def __init__(self, script: Script, before_answer: Callable[[int], None] = lambda number: None) -> None:
        self._script = script
        self._before_answer = before_answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._listener.getsockname()[1])
        #: For each request the header of its batch, and how many requests were in flight when it came.
        self.received: list[tuple[BatchHeader, int]] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connected, _ = self._listener.accept()
        with connected:
            frame = self._read(connected)
            assert frame is not None
            self.send(connected, frame[4:8] + VERSIONS)
            self._answer(connected)

    def _answer(self, connected: socket.socket) -> None:
        waiting: list[bytes] = []
        answered, offset = 0, 40
        while True:
            while select.select([connected], [], [], 0.02 if waiting else 10)[0]:
                frame = self._read(connected)
                if frame is None:
                    return
                waiting.append(frame)
                (produced,) = decode_produce_request(memoryview(frame), 12).partitions
                self.received.append((read_header(produced.record_set), len(waiting)))
            self._before_answer(answered)
            frame = waiting.pop(0)
            outcome = self._script(answered, offset)
            if outcome is None:
                return
            offset += self.received[answered][0].records_count
            answered += 1
            entry = struct.pack(">ihqqq", 0, *outcome, -1, 0) + b"\1\0\0"
            self.send(connected, frame[4:8] + b"\0\2\6topic\2" + entry + b"\0" + bytes(4) + b"\0")

    @staticmethod
    def send(connected: socket.socket, frame: bytes) -> None:
        connected.sendall(struct.pack(">i", len(frame)) + frame)

    @staticmethod
    def _read(connected: socket.socket) -> bytes | None:
        size = connected.recv(4, socket.MSG_WAITALL)
        return connected.recv(int.from_bytes(size), socket.MSG_WAITALL) if len(size) == 4 else None

    def close(self) -> None:
        self._listener.close()
        self._thread.join()


class Leased(Uncontrolled):
    """A control whose lease a test can end."""

    def __init__(self) -> None:
        self.is_over = False
        self._gates: list[array[int]] = []

    def check_lease(self) -> None:
        if self.is_over:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the lease")

    def open_gate(self) -> array[int]:
        self._gates.append(array("Q", [2**64 - 1, 0]))
        return self._gates[-1]

    def end(self) -> None:
        self.is_over = True
        for gate in self._gates:
            gate[0] = 0


@pytest.fixture(params=SENDERS, autouse=True)
def sender(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    send_by(request.param, monkeypatch)
    return str(request.param)


@pytest.fixture(params=["one lot", "several lots"])
def copy(request: pytest.FixtureRequest) -> PartitionCopy:
    return filled(NOW_MS, apart=() if request.param == "one lot" else (0, 3, 4, 9))


def filled(first_ms: int, apart: Collection[int] = (), **options: Any) -> PartitionCopy:
    """Queue batches; some of them need a decision of their own, and so they are lots of their own."""
    copy = aligned(**options)
    fetched = bytearray()
    for number in range(BATCHES):
        flags = UNKNOWN_FLAG if number in apart else 0
        fetched += batch(2, base_offset=100 + 2 * number, base_timestamp=first_ms + number, flags=flags)
    take(copy, fetched)
    assert len(copy.outbound.queue) == (7 if apart else 1)
    return copy


class ChokingBroker(ScriptedBroker):
    """A broker that reads nothing until the kernel takes no more, and then everything after a call."""

    def __init__(self, before_reading: Callable[[], None]) -> None:
        self.arrived_bytes = 0
        self.connection: Connection | None = None
        self._before_reading = before_reading
        super().__init__(as_expected)

    def _answer(self, connected: socket.socket) -> None:
        while self.connection is None or select.select([], [self.connection], [], 0)[1]:
            time.sleep(0.001)
        self._before_reading()
        while data := connected.recv(1 << 20):
            self.arrived_bytes += len(data)


def send(broker: ScriptedBroker, copy: PartitionCopy, control: Uncontrolled | None = None) -> None:
    """Send all that a partition has; then do as the copy loop does after an error."""
    settings = copy._settings
    with (
        closing(broker),
        Cluster(settings.destination) as cluster,
        closing(Connection(broker.address, client_id="test", timeout_s=10)) as connection,
    ):
        if isinstance(broker, ChokingBroker):
            broker.connection = connection
        leader = DestinationLeader(1, lambda marked: connection, set(), can_be_marked=False)
        of_worker = WorkerControl(control or Uncontrolled())
        sender = Sender(leader, cluster, settings, of_worker, SmallBatchesWatch(math.inf))
        try:
            sender.send_all([copy])
        except BaseException:
            copy.refetch()
            raise


def sequences(broker: ScriptedBroker) -> list[int]:
    return [header.base_sequence for header, _ in broker.received]


def in_flight(broker: ScriptedBroker) -> Iterator[int]:
    return (number for _, number in broker.received)


def test_first_request_goes_alone_and_then_at_most_five_are_in_flight(copy: PartitionCopy) -> None:
    broker = ScriptedBroker(as_expected)
    send(broker, copy)
    copy.settle(0)
    assert sequences(broker) == [40 + 2 * number for number in range(BATCHES)]
    assert next(in_flight(broker)) == 1
    assert max(in_flight(broker)) == 5
    assert copy.position is not None
    assert (copy.position.source_offset, copy.position.destination_offset) == (124, 64)
    assert copy.counters.records == 2 * BATCHES


def test_second_request_waits_for_the_first_answer(copy: PartitionCopy) -> None:
    seen: list[int] = []
    broker = ScriptedBroker(as_expected, lambda answered: seen.append(len(broker.received)))
    send(broker, copy)
    assert seen[0] == 1


def test_one_request_is_in_flight_if_the_producer_may_be_forgotten() -> None:
    copy = filled(NOW_MS - 2 * 86_400_000)
    broker = ScriptedBroker(as_expected)
    send(broker, copy)
    assert set(in_flight(broker)) == {1}
    assert copy.counters.records == 2 * BATCHES


@pytest.mark.parametrize("failing", [0, 1, 4])
def test_nothing_is_sent_again_after_a_refusal(copy: PartitionCopy, failing: int) -> None:
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker = ScriptedBroker(lambda number, offset: (code, -1) if number >= failing else (0, offset))
    send(broker, copy)
    assert copy.state.current is PartitionState.WAITING
    assert len(set(sequences(broker))) == len(broker.received) <= failing + 5
    assert copy.next_offset == 100 + 2 * failing
    assert copy.counters.records == 2 * failing


@pytest.mark.parametrize("wrong", [0, 3])
def test_nothing_is_counted_behind_a_batch_that_landed_elsewhere(copy: PartitionCopy, wrong: int) -> None:
    broker = ScriptedBroker(lambda number, offset: (0, offset + (number >= wrong)))
    send(broker, copy)
    assert copy.state.current is PartitionState.STOPPED
    assert copy.next_offset == 100 + 2 * wrong
    assert copy.counters.records == 2 * wrong


def test_batches_that_land_behind_those_of_other_programs_are_counted() -> None:
    """Another program writes a record before the fourth batch, and two before the sixth."""
    copy = filled(NOW_MS, delivery=Delivery.AT_LEAST_ONCE)
    broker = ScriptedBroker(lambda number, offset: (0, offset + (number >= 3) + 2 * (number >= 5)))
    send(broker, copy)
    copy.settle(0)
    assert sequences(broker) == [40 + 2 * number for number in range(BATCHES)]
    assert copy.position is not None
    assert (copy.position.source_offset, copy.position.destination_offset) == (124, 67)
    assert copy.counters.records == 2 * BATCHES
    assert copy.counters.runs == [[100, 106, 40], [106, 110, 47], [110, 124, 53]]


def test_answer_after_a_refusal_counts_nothing(copy: PartitionCopy) -> None:
    """The next request may have been appended in the place of the refused one, which is lost then."""
    code = ErrorCode.NOT_ENOUGH_REPLICAS
    broker = ScriptedBroker(
        lambda number, offset: (code, -1) if number == 3 else (0, offset - 2 * (number > 3))
    )
    send(broker, copy)
    assert copy.state.current is PartitionState.WAITING
    assert copy.next_offset == 106


@pytest.mark.parametrize("cut", [0, 1, 5])
def test_lost_connection_leaves_everything_in_flight_unknown(copy: PartitionCopy, cut: int) -> None:
    broker = ScriptedBroker(lambda number, offset: None if number == cut else (0, offset))
    with pytest.raises(Disconnected):
        send(broker, copy)
    assert copy.state.current is PartitionState.WAITING
    assert copy.next_offset == 100 + 2 * cut
    assert not copy.outbound.queue


def test_malformed_answer_leaves_everything_in_flight_unknown(
    copy: PartitionCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = ScriptedBroker(as_expected)
    before = broker.send

    def lie(connected: socket.socket, frame: bytes) -> None:
        before(connected, frame.replace(b"topic", b"other") if len(broker.received) > 1 else frame)

    monkeypatch.setattr(broker, "send", lie)
    with pytest.raises(ProtocolError):
        send(broker, copy)
    assert copy.state.current is PartitionState.WAITING
    assert copy.next_offset == 102


def test_nothing_is_sent_after_the_end_of_the_lease(copy: PartitionCopy) -> None:
    control = Leased()
    seen: list[int] = []

    def end(answered: int) -> None:
        if answered == 2:
            seen.append(len(broker.received))
            control.end()

    broker = ScriptedBroker(as_expected, end)
    with pytest.raises(BrokerError):
        send(broker, copy, control)
    assert len(broker.received) == seen[0] < BATCHES
    assert copy.next_offset <= 100 + 2 * len(broker.received)
    assert copy.state.current in {PartitionState.WAITING, PartitionState.COPYING}


def test_request_is_cut_if_the_lease_ends_while_the_kernel_takes_no_more() -> None:
    control = Leased()
    copy = aligned()
    take(copy, batch([bytes(64 << 20)], base_offset=100, base_timestamp=NOW_MS))
    broker = ChokingBroker(control.end)
    with pytest.raises((BrokerError, Disconnected)):
        send(broker, copy, control)
    assert 0 < broker.arrived_bytes < 64 << 20
    assert copy.state.current is PartitionState.WAITING
