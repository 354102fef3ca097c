"""New batches from records."""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from batches import batch
from batches import view as view_of
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

from shoal.records import (
    Codec,
    Record,
    read_key_value_headers,
    read_records,
    split,
    stamp,
    verify_crc,
    write_batch,
    write_batches,
)

LIMIT = 1 << 24


@pytest.mark.parametrize("codec", Codec)
def test_what_is_written_is_read_by_two_other_libraries_as_we_read_it(codec: Codec) -> None:
    source = view_of(batch([b"value " * n for n in range(300)], base_offset=1000, holes=(0, 5, 6, 200)))
    records = read_records(source, LIMIT)
    written = write_batch(records, codec)
    verify_crc(written)
    header = written.header
    assert (header.base_offset, header.records_count, header.last_offset_delta) == (0, 296, 295)
    assert header.codec_id == codec
    assert not header.has_holes
    expected = []
    for index, record in enumerate(records):
        key, value, headers = read_key_value_headers(record)
        expected.append((index, record.timestamp, key, value, headers))
    again = read_records(written, LIMIT)
    assert [each.body for each in again] == [each.body for each in records]
    for library in (AiokafkaBatch, KafkaPythonBatch):
        found = library(bytes(written.view))
        assert found.validate_crc()
        assert [
            (each.offset, each.timestamp, each.key, each.value, list(each.headers)) for each in found
        ] == expected
    stamp(written, 7, 1, 12)
    (stamped,) = split(written.view)
    verify_crc(stamped)
    assert stamped.header.producer_id == 7


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("most_bytes", [61, 200, 1000, 5000, 10**6])
def test_batches_are_as_few_as_fit(codec: Codec, most_bytes: int) -> None:
    records = [
        Record(5 + n, 1_600_000_000_000 + n * 7, b"\1\x10" + b"%08d" % (n * 7919 % 10**8) + b"\0")
        for n in range(500)
    ]
    found = list(write_batches(records, codec, most_bytes))
    assert [record for taken, _ in found for record in taken] == records
    assert found == list(write_batches(records, codec, most_bytes))
    position = 0
    for taken, written in found:
        assert written == write_batch(taken, codec)
        assert written.header.size <= most_bytes or len(taken) == 1
        more = records[position : position + len(taken) + 1]
        position += len(taken)
        if position < len(records):
            assert write_batch(more, codec).header.size > most_bytes
