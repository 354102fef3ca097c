"""Batches that cannot be copied as they are: cropped, rebuilt, and never twice or in part."""

from __future__ import annotations

import re
import struct
import zlib

from shoal.records import Codec
from tests.world import batches
from tests.world.batches import Content
from tests.world.clusters import TwoBrokers
from tests.world.history import NOW_MS, History

# Rebuilt: holes


def test_damaged_records_count_is_not_taken_for_a_hole(brokers: TwoBrokers, history: History) -> None:
    history.plain(1)
    damaged = history.batch(3)
    damaged[60] = 2  # the count
    history.store(damaged)
    (stopped,) = brokers.start().result().stopped
    assert stopped.offset == 1
    assert "its CRC is" in stopped.reason
    brokers.assert_exact(history)


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
    brokers.assert_exact(history)
    assert brokers.with_settings(max_decompressed_bytes=4_000_000).run().complete
    assert len(brokers.copied()) == 2


# Rebuilt: magic 0 and 1


def legacy(history: History, magic: int, codec: Codec, count: int) -> None:
    """Add a message set as a broker stores it: one wrapper, or ``count`` messages."""
    offsets = range(history.next_offset, history.next_offset + count)
    records = [Content(history.base_timestamp + each, b"key", b"value at %d" % each) for each in offsets]
    history.messages(records, magic, codec)


def test_wrapper_over_the_limit_stops_the_partition_before_its_first_message(
    brokers: TwoBrokers, history: History
) -> None:
    """The offset of a wrapper is that of its last message."""
    history.plain(2)
    legacy(history, 1, Codec.GZIP, 5)
    (stopped,) = brokers.with_settings(max_decompressed_bytes=50).start().result().stopped
    assert stopped.offset == 2
    assert brokers.copied() == history.committed[:2]


def test_append_time_of_magic_1_is_kept(brokers: TwoBrokers, history: History) -> None:
    covered = struct.pack(">bbqii", 1, batches.LOG_APPEND_TIME, 77, -1, 1) + b"v"
    history.store(bytearray(struct.pack(">qiI", 0, len(covered) + 4, zlib.crc32(covered)) + covered))
    assert brokers.run().complete
    assert brokers.copied() == [Content(77, None, b"v", ())]


# Too large for the destination


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
