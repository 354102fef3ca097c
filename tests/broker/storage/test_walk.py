"""The records of a batch are the same wherever the pieces are cut in which they come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.records import BatchHeader, Codec, Record, read_header, read_records, write_batch, write_body
from shoal.records.rebuild import BatchWriter
from shoal_broker.storage.walk import MalformedRecord, WalkedRecord, walk

_MOST_BYTES = 1 << 20

RECORDS = [
    Record(0, 1_700_000_000_000, write_body(b"key", b"value")),
    Record(1, 1_700_000_000_900, write_body(None, b"v" * 300)),
    Record(2, 1_600_000_000_000, write_body(b"k" * 70, None)),
    Record(3, 1_700_000_000_000, write_body(b"", b"", [(b"name", b"content"), (b"empty", None)])),
]


def written(records: Sequence[Record]) -> tuple[BatchHeader, bytes]:
    batch = write_batch(records, Codec.NONE)
    return batch.header, bytes(batch.payload)


def cut(data: bytes, places: Sequence[int]) -> Iterator[bytes]:
    ends = [*sorted(place % (len(data) + 1) for place in places), len(data)]
    for start, end in zip([0, *ends], ends, strict=False):
        yield data[start:end]


cuts = st.lists(st.integers(min_value=0, max_value=1 << 16), max_size=12)


@given(cuts, st.booleans())
def test_records_cut_anywhere_are_read_as_whole_ones(places: list[int], with_lengths: bool) -> None:
    header, data = written(RECORDS)
    whole = list(walk(header, [data], with_lengths=with_lengths))
    assert [each.offset_delta for each in whole] == [0, 1, 2, 3]
    assert [each.has_key for each in whole] == [True, False, True, True]
    assert list(walk(header, cut(data, places), with_lengths=with_lengths)) == whole


@given(cuts, st.sampled_from(list(Codec)))
def test_records_cut_anywhere_are_copied_whole(places: list[int], codec: Codec) -> None:
    header, data = written(RECORDS)
    writer = BatchWriter(codec, _MOST_BYTES)
    assert len(list(walk(header, cut(data, places), copy_to=writer))) == len(RECORDS)
    batch = writer.finish()
    assert batch is not None
    assert read_records(batch, _MOST_BYTES) == RECORDS
    assert read_header(batch.view).codec_id == codec


@given(cuts, st.integers(min_value=0), st.binary(min_size=1, max_size=4))
def test_damaged_records_cut_anywhere_are_refused(places: list[int], at: int, damage: bytes) -> None:
    header, data = written(RECORDS)
    at %= len(data)
    damaged = data[:at] + damage + data[at + 1 :]

    def read(pieces: Iterator[bytes]) -> list[WalkedRecord] | None:
        try:
            return list(walk(header, pieces))
        except MalformedRecord:
            return None

    assert read(cut(damaged, places)) == read(iter([damaged]))


@pytest.mark.parametrize("missing", [1, 5, 200])
def test_records_that_end_early_are_refused(missing: int) -> None:
    header, data = written(RECORDS)
    with pytest.raises(MalformedRecord, match="within a record"):
        list(walk(header, cut(data[:-missing], [50, 100])))


def test_bytes_after_the_last_record_are_refused() -> None:
    header, data = written(RECORDS)
    with pytest.raises(MalformedRecord, match="after the last"):
        list(walk(header, [data, b"", b"\0"]))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_batch_written_by_record_has_the_bytes_of_one_written_at_once(codec: Codec) -> None:
    records = [
        Record(number, 1_700_000_000_000 + number, write_body(b"%d" % number, b"v" * (number % 700)))
        for number in range(2_000)
    ]
    writer = BatchWriter(codec, _MOST_BYTES)
    for record in records:
        writer.begin_record(record.timestamp, len(record.body))
        writer.write_body(record.body)
    batch = writer.finish()
    assert batch is not None
    assert bytes(batch.view) == bytes(write_batch(records, codec).view)
    assert writer.size == len(batch.view)


@pytest.mark.parametrize("codec", list(Codec))
def test_batch_larger_than_allowed_is_none(codec: Codec) -> None:
    body = write_body(None, bytes(range(256)) * 16)
    needed = BatchWriter(codec, _MOST_BYTES)
    for most_bytes, fits in ((_MOST_BYTES, True), (needed.size, False)):
        writer = BatchWriter(codec, most_bytes)
        writer.begin_record(0, len(body))
        writer.write_body(body)
        assert (writer.finish() is not None) is fits
