"""A partition's log by itself: reads, deleted records, times, and batches stored as they are."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.error_codes import ErrorCode
from shoal.records import Codec, RecordBatch, read_header, split
from shoal_broker import ApiError
from shoal_broker.config import TopicConfig
from shoal_broker.storage.batches import Batches
from shoal_broker.storage.log import Log
from tests.world.batches import (
    TIMESTAMP,
    Record,
    batch,
    marker,
    message,
    patched,
    payload,
    raw_batch,
    wrapper,
)

MIB = 1 << 20
TRANSACTIONAL = 0x10


NewLog = Callable[..., Log]


@pytest.fixture
def new_log() -> NewLog:
    """Make a log with settings of its own: ``new_log(cleanup_policy="compact")``."""
    return lambda **overrides: Log("topic-0", config_of(**overrides))


def config_of(**overrides: str) -> TopicConfig:
    return TopicConfig.of({key.replace("_", "."): value for key, value in overrides.items()})


def append(log: Log, data: bytes | bytearray) -> int:
    view = memoryview(data)
    return log.append(RecordBatch(read_header(view), view)).base_offset


def read(log: Log, offset: int, max_bytes: int = 1 << 30) -> list[int]:
    """Return the base offsets of the whole batches of one read."""
    found = log.read(offset, max_bytes, committed=False, at_least_one_batch=True)
    return [each.header.base_offset for each in split(memoryview(bytes(found.record_set)))]


def read_to_the_end(log: Log) -> list[int]:
    offsets: list[int] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, 1 << 30, committed=False, at_least_one_batch=True)
        for each in split(memoryview(bytes(found.record_set))):
            offsets.append(each.header.base_offset)
            offset = each.header.next_offset
    return offsets


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(counts=st.lists(st.integers(1, 30), min_size=1, max_size=60), data=st.data())
def test_read_of_any_offset_begins_with_its_batch(
    new_log: NewLog, counts: list[int], data: st.DataObject
) -> None:
    log = new_log()
    holds: list[int] = []
    for count in counts:
        base = append(log, batch([b"x" * data.draw(st.sampled_from([1, 5_000]))] * count))
        holds += [base] * count
    for offset in range(log.log_end_offset):
        assert read(log, offset)[0] == holds[offset]
    assert read_to_the_end(log) == sorted(set(holds))


def test_read_bytes_stay_unchanged_after_appends(new_log: NewLog) -> None:
    log = new_log()
    append(log, batch([b"first"]))
    view = log.read(0, MIB, committed=False, at_least_one_batch=True).record_set
    before = bytes(view)
    for _ in range(2_000):
        append(log, batch([b"x" * 100]))
    assert view.readonly
    assert bytes(view) == before


# Batches as they are


def test_stored_holes_empty_batches_and_old_formats_are_read(new_log: NewLog) -> None:
    log = new_log()
    log.store(
        bytes(message(0, offset=3))
        + bytes(message(1, offset=4))
        + bytes(batch(5, base_offset=10, holes=[0, 2, 4], codec=Codec.GZIP))
        + bytes(batch(3, base_offset=20, holes=[0, 1, 2]))
    )
    assert log.log_end_offset == 23
    assert read(log, 0) == [3, 4, 10, 20]
    assert read(log, 4) == [4, 10, 20]
    assert read(log, 5) == [10, 20], "an offset in a gap gives what comes next"
    assert read(log, 15) == [20]


def test_stored_batches_keep_every_byte(new_log: NewLog) -> None:
    log = new_log()
    data = bytes(batch(3, base_offset=7, leader_epoch=5, producer_id=3, producer_epoch=1, base_sequence=9))
    log.store(data)
    found = log.read(7, MIB, committed=False, at_least_one_batch=True)
    assert bytes(found.record_set) == data


def test_store_of_descending_offsets_is_refused(new_log: NewLog) -> None:
    log = new_log()
    log.store(bytes(batch(3, base_offset=7)))
    with pytest.raises(ValueError, match=r"\b9\b.*\b10\b"):
        log.store(bytes(batch(base_offset=9)))


def test_stored_transactions_count_as_transactions(new_log: NewLog) -> None:
    log = new_log()
    transactional = batch(2, flags=TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0)
    log.store(bytes(transactional))
    assert log.last_stable_offset == 0
    log.store(bytes(marker(0, 7, base_offset=2)))
    found = log.read(0, MIB, committed=True, at_least_one_batch=True)
    assert (found.last_stable_offset, list(found.aborted_transactions)) == (3, [(7, 0)])


# Deleting


def test_batches_before_an_offset_are_freed() -> None:
    stored = Batches()
    for offset in range(60):
        view = memoryview(batch(base_offset=offset))
        stored.append(RecordBatch(read_header(view), view))
    stored.delete_before(50)
    assert [each.header.base_offset for each in stored] == [*range(50, 60)]


def test_compacted_topic_keeps_its_records(new_log: NewLog) -> None:
    log = new_log(cleanup_policy="compact")
    append(log, batch())
    with pytest.raises(ApiError) as refused:
        log.delete_records(-1)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_batch_that_holds_the_log_start_stays_whole(new_log: NewLog) -> None:
    log = new_log()
    append(log, batch(3))
    append(log, batch(3))
    assert log.delete_records(4) == 4
    assert read(log, 4) == [3]


def cleaned(values: int, *, kept: int | None, base_offset: int, first_time: int) -> bytearray:
    """Build a batch of which compaction left one record, or none: Kafka's cleaner does not compress that."""
    records = [] if kept is None else [Record(offset_delta=kept)]
    time = first_time + (values - 1 if kept is None else kept)
    return raw_batch(
        payload(records, Codec.NONE if kept is None else Codec.ZSTD) if records else b"",
        base_offset=base_offset,
        attributes=Codec.NONE if kept is None else Codec.ZSTD,
        last_offset_delta=values - 1,
        base_timestamp=time,
        max_timestamp=time,
        records_count=len(records),
    )


def test_offset_for_timestamp_behind_an_emptied_batch_returns_the_next_record(new_log: NewLog) -> None:
    log = new_log(cleanup_policy="compact")
    log.store(cleaned(3, kept=None, base_offset=0, first_time=TIMESTAMP))
    log.store(cleaned(3, kept=1, base_offset=3, first_time=TIMESTAMP + 3))
    assert log.offset_for_timestamp(TIMESTAMP)[:2] == (TIMESTAMP + 4, 4)
    assert log.offset_for_timestamp(TIMESTAMP + 4)[:2] == (TIMESTAMP + 4, 4)
    assert log.offset_for_timestamp(TIMESTAMP + 5) == (-1, -1, -1)
    assert log.offset_of_max_timestamp()[:2] == (TIMESTAMP + 4, 4)


def test_offset_for_timestamp_in_an_emptied_compressed_batch_is_no_error(new_log: NewLog) -> None:
    log = new_log(cleanup_policy="compact")
    emptied = cleaned(3, kept=None, base_offset=0, first_time=TIMESTAMP)
    log.store(patched(emptied, 21, int(Codec.ZSTD).to_bytes(2)))
    log.store(batch(base_offset=3, base_timestamp=TIMESTAMP + 3))
    assert log.offset_for_timestamp(TIMESTAMP)[:2] == (TIMESTAMP + 3, 3)


def test_offset_for_timestamp_has_the_leader_epoch_of_the_batch_found(new_log: NewLog) -> None:
    log = new_log()
    append(log, batch(2))
    log.begin_leader_epoch(3)
    append(log, batch(2, base_timestamp=TIMESTAMP + 10))
    log.begin_leader_epoch(5)
    assert log.offset_for_timestamp(TIMESTAMP) == (TIMESTAMP, 0, 0)
    assert log.offset_for_timestamp(TIMESTAMP + 10) == (TIMESTAMP + 10, 2, 3)
    assert log.offset_of_max_timestamp() == (TIMESTAMP + 11, 3, 3)
    assert log.start() == (-1, 0, 0)
    log.delete_records(3)
    assert log.start() == (-1, 3, 3)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_offset_for_timestamp_finds_a_message_of_magic_1(new_log: NewLog, codec: Codec) -> None:
    log = new_log()
    log.store(message(0, offset=0))
    times = [TIMESTAMP + 10 * number for number in range(3)]
    if codec is Codec.NONE:
        for number, time in enumerate(times):
            log.store(message(1, offset=1 + number, timestamp=time))
    else:
        inner = [message(1, offset=number, timestamp=time) for number, time in enumerate(times)]
        log.store(wrapper(1, codec, inner, offset=3, timestamp=times[-1]))
    log.store(batch(base_offset=4, base_timestamp=TIMESTAMP + 100))
    assert log.offset_for_timestamp(0) == (TIMESTAMP, 1, -1)
    assert log.offset_for_timestamp(TIMESTAMP + 1) == (TIMESTAMP + 10, 2, -1)
    assert log.offset_for_timestamp(TIMESTAMP + 21).offset == 4


def test_log_of_magic_0_has_no_offset_for_any_timestamp(new_log: NewLog) -> None:
    log = new_log()
    log.store(message(0, offset=0))
    assert log.offset_for_timestamp(0) == log.offset_of_max_timestamp() == (-1, -1, -1)


def test_offset_for_timestamp_of_deleted_record_returns_one_after_the_log_start(new_log: NewLog) -> None:
    log = new_log()
    append(log, batch(3))
    append(log, batch(base_timestamp=TIMESTAMP + 5))
    log.delete_records(2)
    assert log.offset_for_timestamp(TIMESTAMP).offset == 2
    log.delete_records(3)
    assert log.offset_for_timestamp(TIMESTAMP)[:2] == (TIMESTAMP + 5, 3)
