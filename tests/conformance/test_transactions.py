"""Transactions: the records that a reader sees, and the producers that may write."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import request_class
from shoal.records import AbortedTransactions, Decision, decide, split
from shoal.records.aborted import Marker, read_marker
from tests.broker.new_topic import NewTopic
from tests.broker.wire import PATIENCE_S, Wire
from tests.conformance.conftest import Connect
from tests.world.batches import TRANSACTIONAL, batch


class Producer:
    """A transactional producer, request by request."""

    def __init__(self, wire: Wire, transactional_id: str, **options: Any) -> None:
        self.wire = wire
        self.transactional_id = transactional_id
        found = wire.init_producer_id(transactional_id, **options)
        assert found.error_code == ErrorCode.NONE, found
        self.producer_id, self.epoch = found.producer_id, found.producer_epoch
        self.sequences: dict[tuple[str, int], int] = {}

    def _identity(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def add(self, topic: str, *partitions: int, version: int = 3) -> list[ErrorCode]:
        wanted = request_class(ApiKey.ADD_PARTITIONS_TO_TXN).AddPartitionsToTxnTopic
        deadline = time.monotonic() + PATIENCE_S
        while True:
            response = self.wire.call(
                ApiKey.ADD_PARTITIONS_TO_TXN,
                version,
                **{f"v3_and_below_{name}": value for name, value in self._identity().items()},
                v3_and_below_topics=[wanted(name=topic, partitions=list(partitions or (0,)))],
            )
            codes = [
                ErrorCode(each.partition_error_code)
                for found in response.results_by_topic_v3_and_below
                for each in found.results_by_partition
            ]
            # A real coordinator may still be writing the markers of the last one.
            if ErrorCode.CONCURRENT_TRANSACTIONS not in codes or time.monotonic() > deadline:
                return codes

    def send(self, topic: str, *, partition: int = 0, records: int = 1, version: int = 11) -> ErrorCode:
        sequence = self.sequences.get((topic, partition), 0)
        answer = self.wire.produce(
            topic,
            batch(
                records,
                flags=TRANSACTIONAL,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=sequence,
                # A marker bears the time; were it much later, Kafka would begin a new segment with it.
                base_timestamp=time.time_ns() // 1_000_000,
            ),
            partition=partition,
            version=version,
            transactional_id=self.transactional_id,
        )
        if answer.error_code == ErrorCode.NONE:
            self.sequences[topic, partition] = sequence + records
        return ErrorCode(answer.error_code)

    def end(self, *, committed: bool, version: int = 3) -> ErrorCode:
        response = self.wire.call_coordinator(
            ApiKey.END_TXN, version, **self._identity(), committed=committed
        )
        return ErrorCode(response.error_code)

    def add_offsets(self, group: str) -> ErrorCode:
        response = self.wire.call_coordinator(
            ApiKey.ADD_OFFSETS_TO_TXN, 3, **self._identity(), group_id=group
        )
        return ErrorCode(response.error_code)

    def commit_offset(
        self, group: str, topic: str, offset: int, *, member: str = "", generation: int = -1
    ) -> ErrorCode:
        wanted = request_class(ApiKey.TXN_OFFSET_COMMIT).TxnOffsetCommitRequestTopic
        response = self.wire.call(
            ApiKey.TXN_OFFSET_COMMIT,
            3,
            **self._identity(),
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=None,
            topics=[
                wanted(
                    name=topic,
                    partitions=[
                        wanted.TxnOffsetCommitRequestPartition(
                            partition_index=0,
                            committed_offset=offset,
                            committed_leader_epoch=-1,
                            committed_metadata="",
                        )
                    ],
                )
            ],
        )
        return ErrorCode(response.topics[0].partitions[0].error_code)


@pytest.fixture
def producer(wire: Wire, unique: str) -> Producer:
    return Producer(wire, f"transactional-{unique}")


def plain(wire: Wire, topic: str, records: int = 1) -> None:
    """Produce outside of any transaction."""
    answer = wire.produce(topic, batch(records, base_timestamp=time.time_ns() // 1_000_000))
    assert answer.error_code == ErrorCode.NONE


class Seen(NamedTuple):
    """A partition as a read_committed reader sees it."""

    kept: list[int]
    markers: list[Marker]
    last_stable_offset: int
    high_watermark: int


def read(wire: Wire, topic: str, offset: int = 0) -> Seen:
    fetched = wire.fetch(topic, offset, committed=True)
    assert fetched.error_code == ErrorCode.NONE
    aborted = AbortedTransactions(fetched.aborted_transactions)
    kept: list[int] = []
    markers: list[Marker] = []
    for found in split(fetched.record_set):
        decision = decide(found.header, 0, aborted)
        if decision is Decision.DROP_CONTROL:
            aborted.see_marker(found)
            markers.append(Marker(read_marker(found)))
        elif decision is Decision.COPY:
            kept.append(found.header.base_offset)
    return Seen(kept, markers, fetched.last_stable_offset, fetched.high_watermark)


def wait_until_stable(wire: Wire, topic: str, end: int) -> None:
    """Wait for the markers up to an offset: a real coordinator writes them after its answer."""
    deadline = time.monotonic() + PATIENCE_S
    while wire.end_offset(topic, committed=True) < end:
        assert time.monotonic() < deadline, "no marker came"


# Readers


def test_open_transaction_holds_the_last_stable_offset(wire: Wire, topic: str, producer: Producer) -> None:
    plain(wire, topic, 2)
    assert producer.add(topic) == [ErrorCode.NONE]
    assert producer.send(topic, records=3) == ErrorCode.NONE
    plain(wire, topic)
    assert read(wire, topic) == Seen([0], [], last_stable_offset=2, high_watermark=6)
    assert wire.end_offset(topic, committed=True) == 2
    assert wire.end_offset(topic) == 6
    assert [found.header.base_offset for found in split(wire.fetch(topic).record_set)] == [0, 2, 5]
    producer.end(committed=False)


def test_committed_transaction_is_kept(wire: Wire, topic: str, producer: Producer) -> None:
    producer.add(topic)
    producer.send(topic, records=2)
    assert producer.end(committed=True) == ErrorCode.NONE
    wait_until_stable(wire, topic, 3)
    assert read(wire, topic) == Seen([0], [Marker.COMMIT], 3, 3)


def test_aborted_transaction_is_listed_and_not_kept(wire: Wire, topic: str, producer: Producer) -> None:
    producer.add(topic)
    producer.send(topic, records=2)
    plain(wire, topic)
    assert producer.end(committed=False) == ErrorCode.NONE
    wait_until_stable(wire, topic, 4)
    assert read(wire, topic) == Seen([2], [Marker.ABORT], 4, 4)
    fetched = wire.fetch(topic, committed=True)
    assert list(fetched.aborted_transactions) == [(producer.producer_id, 0)]
    assert list(wire.fetch(topic).aborted_transactions) == []


def test_aborted_transaction_from_before_the_fetch_offset_is_listed(
    wire: Wire, topic: str, producer: Producer
) -> None:
    producer.add(topic)
    producer.send(topic)
    producer.send(topic)
    producer.end(committed=False)
    wait_until_stable(wire, topic, 3)
    assert read(wire, topic, offset=1).kept == []


def test_all_of_several_aborted_transactions_are_listed(wire: Wire, topic: str, unique: str) -> None:
    producers = [Producer(wire, f"transactional-{unique}-{number}") for number in range(3)]
    for each in producers:
        each.add(topic)
        each.send(topic)
    for each in producers:
        each.end(committed=False)
    wait_until_stable(wire, topic, 6)
    listed = wire.fetch(topic, committed=True).aborted_transactions
    assert sorted(listed) == sorted((each.producer_id, place) for place, each in enumerate(producers))


def test_time_of_an_open_transaction_has_no_offset_for_readers_of_committed_records(
    wire: Wire, topic: str, producer: Producer
) -> None:
    began_ms = time.time_ns() // 1_000_000 - 60_000
    wire.produce(topic, batch(2, base_timestamp=began_ms))
    producer.add(topic)
    producer.send(topic)  # a minute later

    def found(*, committed: bool) -> list[int]:
        times = (began_ms + 1, began_ms + 2)
        return [wire.list_offset(topic, each, committed=committed).offset for each in times]

    assert found(committed=False) == [1, 2]
    assert found(committed=True) == [1, -1]
    producer.end(committed=True)
    wait_until_stable(wire, topic, 4)
    assert found(committed=True) == [1, 2]


def test_interleaved_transactions_end_independently(wire: Wire, topic: str, unique: str) -> None:
    producers = [Producer(wire, f"transactional-{unique}-{number}") for number in range(3)]
    for each in producers:
        each.add(topic)
    for _ in range(2):
        for each in producers:
            assert each.send(topic) == ErrorCode.NONE
    for number, each in enumerate(producers):
        each.end(committed=number != 1)
    wait_until_stable(wire, topic, 9)
    seen = read(wire, topic)
    assert seen.kept == [0, 2, 3, 5]
    assert sorted(seen.markers) == [Marker.ABORT, Marker.COMMIT, Marker.COMMIT]


def test_marker_is_a_transactional_control_batch_of_its_producer(
    wire: Wire, topic: str, producer: Producer
) -> None:
    producer.add(topic)
    producer.send(topic)
    producer.end(committed=True)
    wait_until_stable(wire, topic, 2)
    marker = list(split(wire.fetch(topic).record_set))[-1].header
    assert (marker.is_control, marker.is_transactional) == (True, True)
    assert (marker.records_count, marker.last_offset_delta, marker.base_sequence) == (1, 0, -1)
    assert marker.producer_id == producer.producer_id


def test_partition_added_without_records_gets_a_marker(
    wire: Wire, new_topic: NewTopic, producer: Producer
) -> None:
    topic = new_topic(2)
    producer.add(topic, 0, 1)
    producer.send(topic, partition=0)
    producer.end(committed=False)
    wait_until_stable(wire, topic, 2)
    deadline = time.monotonic() + PATIENCE_S
    while wire.end_offset(topic, partition=1) == 0:
        assert time.monotonic() < deadline
    fetched = wire.fetch(topic, partition=1, committed=True)
    assert (len(list(split(fetched.record_set))), list(fetched.aborted_transactions)) == (1, [])


def test_waiting_reader_is_answered_when_the_transaction_ends(
    wire: Wire, connect: Connect, topic: str, producer: Producer
) -> None:
    producer.add(topic)
    producer.send(topic)
    with connect() as reader:
        reader.send_fetch([(topic, 0, 0)], max_wait_ms=600_000, min_bytes=1, committed=True)
        answered = threading.Event()

        def wait() -> None:
            reader.receive_frame()
            answered.set()

        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not answered.wait(0.2)
        producer.end(committed=True)
        assert answered.wait(PATIENCE_S)
        waiting.join()


# Writers


def test_transaction_continues_the_sequences_of_the_previous_one(
    wire: Wire, topic: str, producer: Producer
) -> None:
    for committed in (True, False, True):
        assert producer.add(topic) == [ErrorCode.NONE]
        assert producer.send(topic) == ErrorCode.NONE
        assert producer.end(committed=committed) == ErrorCode.NONE
    wait_until_stable(wire, topic, 6)
    assert read(wire, topic).kept == [0, 4]


@pytest.mark.parametrize(
    ("version", "code"), [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_produce_to_a_partition_not_added_is_refused(
    wire: Wire, topic: str, producer: Producer, version: int, code: ErrorCode
) -> None:
    assert producer.send(topic, version=version) == code
    assert wire.end_offset(topic) == 0


def test_producer_id_of_another_transactional_id_is_refused(
    wire: Wire, topic: str, producer: Producer
) -> None:
    producer.add(topic)
    producer.producer_id += 1_000_000
    assert producer.send(topic) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert producer.add(topic) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert producer.end(committed=True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_add_partitions_with_a_missing_one_adds_none(topic: str, producer: Producer) -> None:
    codes = producer.add(topic, 0, 7)
    assert set(codes) == {ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_init_of_a_used_transactional_id_aborts_and_fences(
    wire: Wire, topic: str, producer: Producer
) -> None:
    producer.add(topic)
    producer.send(topic)
    successor = Producer(wire, producer.transactional_id)
    assert successor.producer_id == producer.producer_id
    assert successor.epoch > producer.epoch
    wait_until_stable(wire, topic, 2)
    assert read(wire, topic) == Seen([], [Marker.ABORT], 2, 2)
    assert producer.send(topic) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.add(topic) == [ErrorCode.PRODUCER_FENCED]
    assert producer.add(topic, version=1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert producer.end(committed=True) == ErrorCode.PRODUCER_FENCED
    assert producer.end(committed=True, version=1) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_transaction_after_its_timeout_is_aborted(
    wire: Wire, topic: str, unique: str, pass_by: Callable[[float], None]
) -> None:
    slow = Producer(wire, f"transactional-{unique}", timeout_ms=6_000)
    assert slow.add(topic) == [ErrorCode.NONE]
    assert slow.send(topic) == ErrorCode.NONE
    pass_by(6.0)
    wait_until_stable(wire, topic, 2)
    assert read(wire, topic).markers == [Marker.ABORT]
    assert slow.end(committed=True) == ErrorCode.PRODUCER_FENCED


def test_init_with_own_identity_returns_the_next_epoch(wire: Wire, producer: Producer) -> None:
    def again(epoch: int) -> tuple[ErrorCode, int]:
        found = wire.init_producer_id(
            producer.transactional_id, producer_id=producer.producer_id, producer_epoch=epoch
        )
        return ErrorCode(found.error_code), found.producer_epoch

    assert again(producer.epoch) == (ErrorCode.NONE, producer.epoch + 1)
    assert again(producer.epoch) == (ErrorCode.NONE, producer.epoch + 1), "its answer may have been lost"
    assert again(producer.epoch + 1) == (ErrorCode.NONE, producer.epoch + 2)
    assert again(producer.epoch) == (ErrorCode.PRODUCER_FENCED, -1)


@pytest.mark.parametrize("timeout_ms", [0, 900_001])
def test_transaction_timeout_out_of_bounds_is_refused(wire: Wire, unique: str, timeout_ms: int) -> None:
    found = wire.init_producer_id(unique, timeout_ms=timeout_ms)
    assert found.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_empty_transactional_id_is_refused(wire: Wire) -> None:
    assert wire.init_producer_id("").error_code == ErrorCode.INVALID_REQUEST


def test_end_transaction_repeated_with_the_same_result_succeeds(
    wire: Wire, topic: str, producer: Producer
) -> None:
    assert producer.end(committed=True) == ErrorCode.INVALID_TXN_STATE
    producer.add(topic)
    producer.send(topic)
    assert producer.end(committed=True) == ErrorCode.NONE
    assert producer.end(committed=True) == ErrorCode.NONE
    assert producer.end(committed=False) == ErrorCode.INVALID_TXN_STATE
    wait_until_stable(wire, topic, 2)
    assert wire.end_offset(topic) == 2


# Positions in a transaction


@pytest.mark.parametrize("committed", [True, False])
def test_transactional_offsets_are_visible_after_commit(
    wire: Wire, topic: str, producer: Producer, unique: str, committed: bool
) -> None:
    group = f"group-{unique}"
    wire.commit(group, topic, 1)
    assert producer.add_offsets(group) == ErrorCode.NONE
    assert producer.commit_offset(group, topic, 5) == ErrorCode.NONE
    assert wire.committed(group, topic).committed_offset == 1
    unstable = wire.committed(group, topic, require_stable=True)
    assert unstable.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert producer.end(committed=committed) == ErrorCode.NONE
    deadline = time.monotonic() + PATIENCE_S
    while wire.committed(group, topic, require_stable=True).error_code != ErrorCode.NONE:
        assert time.monotonic() < deadline
    assert wire.committed(group, topic).committed_offset == (5 if committed else 1)


def test_transactional_offsets_of_a_group_not_added_are_refused(
    wire: Wire, topic: str, producer: Producer, unique: str
) -> None:
    wire.commit(f"group-{unique}", topic, 1)
    assert producer.commit_offset(f"group-{unique}", topic, 5) == ErrorCode.INVALID_TXN_STATE


def test_transactional_offsets_of_another_generation_are_refused(
    wire: Wire, topic: str, producer: Producer, unique: str
) -> None:
    group = f"group-{unique}"
    wire.commit(group, topic, 1)
    producer.add_offsets(group)
    code = producer.commit_offset(group, topic, 5, member="stranger", generation=1)
    assert code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.not_before("4.0")
def test_produce_v12_adds_the_partition(wire: Wire, topic: str, producer: Producer) -> None:
    assert producer.send(topic, version=12) == ErrorCode.NONE
    assert producer.end(committed=True) == ErrorCode.NONE
    wait_until_stable(wire, topic, 2)
    assert read(wire, topic) == Seen([0], [Marker.COMMIT], 2, 2)
