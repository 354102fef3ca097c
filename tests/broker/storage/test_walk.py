"""The records of a batch are the same wherever the pieces are cut in which they come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.records import BatchHeader, Codec, Record, write_batch, write_body
from shoal_broker.storage.walk import MalformedRecord, WalkedRecord, walk

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


@given(cuts)
def test_records_cut_anywhere_are_copied_whole(places: list[int]) -> None:
    header, data = written(RECORDS)
    copied: list[Record] = []
    assert len(list(walk(header, cut(data, places), copy_to=copied))) == len(RECORDS)
    assert copied == RECORDS


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
