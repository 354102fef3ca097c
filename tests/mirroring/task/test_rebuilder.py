"""Batches that cannot be copied as they are: cropped, rebuilt, and never twice or in part."""

from __future__ import annotations

import re
import struct
import zlib

import pytest
from aiokafka.codec import gzip_encode
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from shoal.protocol.apis import ApiKey
from shoal.records import Codec, Decision
from tests import batches
from tests.two_brokers import (
    NOW_MS,
    Content,
    History,
    Killed,
    Mortal,
    TwoBrokers,
    Watched,
    batches_of,
    die_after,
    let_pass,
    lose_tail,
)

LEGACY_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def codecs(brokers: TwoBrokers) -> list[int]:
    return [batch.header.codec_id for batch in batches_of(brokers.destination.log("topic"))]


# Rebuilt: holes


def test_damaged_records_count_is_not_taken_for_a_hole(brokers: TwoBrokers, history: History) -> None:
    history.plain(1)
    damaged = history.batch(3)
    damaged[60] = 2  # the count
    history.store(damaged)
    (stopped,) = brokers.start().result().stopped
    assert stopped.offset == 1
    assert "its CRC is" in stopped.reason
    assert brokers.copied() == history.committed


def test_batch_that_decompresses_over_the_limit_stops_the_partition(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(1)
    bomb = batches.payload([batches.Record(bytes(3_000_000))], Codec.GZIP)
    history.store(
        batches.raw_batch(bomb, base_offset=1, attributes=Codec.GZIP, last_offset_delta=1, records_count=1)
    )
    (stopped,) = brokers.with_settings(max_decompressed_bytes=1_000_000).start().result().stopped
    assert stopped.offset == 1
    assert re.search(r"maximum.*decompressed", stopped.reason)
    assert brokers.copied() == history.committed
    assert brokers.with_settings(max_decompressed_bytes=4_000_000).run().complete
    assert len(brokers.copied()) == 2


# Rebuilt: magic 0 and 1


def legacy(history: History, magic: int, codec: Codec, count: int) -> None:
    """Add a message set as a broker stores it: one wrapper, or ``count`` messages."""
    first = history.next_offset
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=int(codec), batch_size=1_000_000)
    for delta in range(count):
        # Inside a wrapper magic 1 counts from 0; all else has offsets of its own.
        offset = delta if magic == 1 and codec else first + delta
        timestamp = history.base_timestamp + delta if magic else None
        builder.append(offset, timestamp, b"key", b"value at %d" % (first + delta))
        history.committed.append(
            Content(
                history.base_timestamp + delta if magic else -1, b"key", b"value at %d" % (first + delta), ()
            )
        )
    data = bytearray(builder.build())
    if codec:
        data[:8] = (first + count - 1).to_bytes(8)
    history.store(data)
    history.next_offset = first + count


@pytest.mark.parametrize(
    ("magic", "codec"),
    [(magic, codec) for magic in (0, 1) for codec in LEGACY_CODECS if magic or codec != Codec.LZ4],
)
def test_messages_of_old_formats_are_rebuilt_as_batches(
    brokers: TwoBrokers, history: History, magic: int, codec: Codec
) -> None:
    for count in (3, 1, 5):
        legacy(history, magic, codec, count)
    history.plain(2, codec=Codec.ZSTD)
    control = Watched()
    assert brokers.run(control=control).complete
    assert brokers.copied() == history.committed
    made = 3 if codec else 1  # uncompressed messages arrive one by one, and are gathered
    assert codecs(brokers) == [codec] * made + [Codec.ZSTD]
    assert control.decisions == {Decision.REBUILD_MAGIC.value: made, Decision.COPY.value: 1}


def test_wrapper_over_the_limit_stops_the_partition_before_its_first_message(
    brokers: TwoBrokers, history: History
) -> None:
    """The offset of a wrapper is that of its last message."""
    history.plain(2)
    legacy(history, 1, Codec.GZIP, 5)
    (stopped,) = brokers.with_settings(max_decompressed_bytes=50).start().result().stopped
    assert stopped.offset == 2
    assert brokers.copied() == history.committed[:2]


def test_messages_before_a_damaged_batch_arrive_whole(brokers: TwoBrokers, history: History) -> None:
    """The task rebuilds them as a batch before the second try uses the fetch buffer again."""
    legacy(history, 1, Codec.NONE, 5)
    damaged = history.batch(3)
    damaged[60] = 2
    history.store(damaged)
    history.plain(*[50] * 10)
    (stopped,) = brokers.start().result().stopped
    assert stopped.offset == 5
    assert brokers.copied() == history.committed[:5]


def test_append_time_of_magic_1_is_kept(brokers: TwoBrokers, history: History) -> None:
    covered = struct.pack(">bbqii", 1, batches.LOG_APPEND_TIME, 77, -1, 1) + b"v"
    history.store(bytearray(struct.pack(">qiI", 0, len(covered) + 4, zlib.crc32(covered)) + covered))
    assert brokers.run().complete
    assert brokers.copied() == [Content(77, None, b"v", ())]


# Rebuilt: append times


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_append_times_with_keep_append_time_are_kept(
    brokers: TwoBrokers, history: History, codec: Codec
) -> None:
    history.plain(3, codec=codec, flags=batches.LOG_APPEND_TIME).plain(1)
    control = Watched()
    assert brokers.with_settings(keep_append_time=True).run(control=control).complete
    append_time = NOW_MS + 2  # the batch's max_timestamp
    kept = [each._replace(timestamp=append_time) for each in history.committed[:3]]
    assert brokers.copied() == kept + history.committed[3:]
    assert control.decisions == {Decision.REBUILD_APPEND_TIME.value: 1, Decision.COPY.value: 1}


def test_old_create_times_under_a_new_append_time_are_sent_one_at_a_time(
    brokers: TwoBrokers, history: History
) -> None:
    """The broker takes the append time for the newest create time, and forgets producers by it."""
    old = NOW_MS - 30 * 86_400_000
    for _ in range(4):
        batch = history.batch(1, base_timestamp=old, flags=batches.LOG_APPEND_TIME)
        history.store(batches.patched(bytes(batch), 35, NOW_MS.to_bytes(8)), shown=True)
    slow = brokers.destination.faults.add(ApiKey.PRODUCE, times=None, delay_s=0.02)
    assert brokers.run().complete
    assert brokers.copied() == history.committed
    assert slow.hits == 4


# Too large for the destination


def test_rebuilt_batch_is_cut_until_the_destination_accepts_it(brokers: TwoBrokers) -> None:
    history = brokers.topic("topic", max_message_bytes="300")[0]
    history.holed(30, [3]).plain(1)
    assert brokers.start().result().complete
    assert brokers.copied() == history.committed
    assert len(batches_of(brokers.destination.log("topic"))) > 3


def test_record_too_large_for_the_destination_is_named(brokers: TwoBrokers) -> None:
    history = brokers.topic("topic", max_message_bytes="300")[0]
    values = [b"small", b"hole", b"x" * 400, b"small"]
    history.store(history.batch(1), shown=True)
    history.store(batches.batch(values, base_offset=1, base_timestamp=NOW_MS, holes=[1]), shown=True)
    (stopped,) = brokers.start().result().stopped
    assert stopped.offset == 2
    assert re.search(r"refuses.*3", stopped.reason)
    assert "max.message.bytes" in stopped.reason
    assert brokers.copied() == history.committed[:2]


# Continuation after a task that died at any request


@pytest.mark.parametrize("requests", range(1, 9))
def test_rebuilt_batches_cut_differently_by_a_dead_task_are_skipped(
    brokers: TwoBrokers, requests: int
) -> None:
    history = brokers.topic("topic", max_message_bytes="170")[0]
    history.holed(12, [1, 3], codec=Codec.NONE)
    legacy(history, 1, Codec.NONE, 7)
    let_pass(brokers.destination, ApiKey.PRODUCE, requests)
    brokers.destination.faults.add(ApiKey.PRODUCE, drop="before")
    try:
        brokers.run(control=Mortal())
    except Killed:
        brokers.destination.faults.clear()
    brokers.destination.faults.clear()
    assert brokers.start().result().complete
    assert brokers.copied() == history.committed


def test_tail_recompressed_by_its_broker_is_recognized_by_its_records(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(3, 2, 4)
    die_after(brokers, 2)
    last = batches_of(brokers.destination.log("topic"))[-1]
    recompressed = batches.raw_batch(
        gzip_encode(bytes(last.payload)),
        base_offset=last.header.base_offset,
        attributes=Codec.GZIP,
        last_offset_delta=last.header.last_offset_delta,
        base_timestamp=last.header.base_timestamp,
        max_timestamp=last.header.max_timestamp,
        producer_id=last.header.producer_id,
        producer_epoch=last.header.producer_epoch,
        base_sequence=last.header.base_sequence,
        records_count=last.header.records_count,
    )
    lose_tail(brokers.destination, "topic", last.header.base_offset).store(memoryview(recompressed))
    result = brokers.run()
    assert (result.complete, result.stopped) == (True, ())
    assert brokers.copied() == history.committed
