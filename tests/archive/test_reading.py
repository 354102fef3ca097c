from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import xxhash

from shoal.archive.description import DamagedObject
from shoal.archive.directory import Archive
from shoal.archive.names import ObjectName
from shoal.archive.objects import PartitionObjects
from shoal.archive.reading import PartitionReader
from shoal.records import Codec
from tests import batches
from tests.archive.archives import add, new_archive, objects_of, plain, reader_of


def read_all(objects: PartitionObjects, offset: int, most_bytes: int) -> bytes:
    reader, found = PartitionReader(objects), b""
    end = objects.end_offset or 0
    while offset < end and (read := reader.read(offset, most_bytes)) is not None:
        record_set = bytes(read.record_set)
        found += record_set
        offset = batches.view(record_set[-_last_size(record_set) :]).header.next_offset
    reader.close()
    return found


def _last_size(record_set: bytes) -> int:
    position = size = 0
    while position < len(record_set):
        size = 12 + int.from_bytes(record_set[position + 8 : position + 12])
        position += size
    return size


@pytest.mark.parametrize("most_bytes", [1, 100, 200, 10_000])
def test_read_returns_all_batches_of_all_objects(tmp_path: Path, most_bytes: int) -> None:
    archive = new_archive(tmp_path / "a")
    first, second = plain(3, 1, 40), plain(2, 2, base_offset=44)
    add(archive, first, tmp_path)
    add(archive, second, tmp_path, offset=44)
    assert read_all(objects_of(archive), 0, most_bytes) == first + second


@pytest.mark.parametrize("offset", range(9))
def test_read_begins_with_the_batch_that_has_the_offset(tmp_path: Path, offset: int) -> None:
    archive = new_archive(tmp_path / "a")
    parts = {0: plain(3), 3: plain(1, base_offset=3), 4: plain(5, base_offset=4)}
    add(archive, b"".join(parts.values()), tmp_path)
    base = max(each for each in parts if each <= offset)
    assert read_all(objects_of(archive), offset, 10_000) == b"".join(
        part for at, part in parts.items() if at >= base
    )


def test_read_goes_over_offsets_without_a_batch(tmp_path: Path) -> None:
    archive = new_archive(tmp_path / "a")
    add(archive, plain(3) + plain(2, base_offset=10), tmp_path)
    assert read_all(objects_of(archive), 5, 10_000) == plain(2, base_offset=10)


def test_read_lists_the_aborted_transactions_of_its_range(tmp_path: Path) -> None:
    archive = new_archive(tmp_path / "a")
    data = bytes(batches.batch([b"v"], flags=batches.TRANSACTIONAL, producer_id=7, producer_epoch=0))
    marker = bytes(batches.marker(0, 7, base_offset=1))
    open_one = bytes(
        batches.batch([b"v"], base_offset=2, flags=batches.TRANSACTIONAL, producer_id=8, producer_epoch=0)
    )
    add(archive, data + marker + open_one, tmp_path, aborted=[(7, 0), (8, 2)])
    with closing(reader_of(archive)) as reader:
        whole = reader.read(0, 10_000)
        later = reader.read(2, 10_000)
    assert whole is not None
    assert later is not None
    assert sorted(whole.aborted) == [(7, 0), (8, 2)]
    assert list(later.aborted) == [(8, 2)]


def damage(archive: Archive, suffix: str, change: int) -> str:
    """Flip a byte of an object, or cut it; return its name."""
    objects = objects_of(archive)
    file = Path(archive.store.url) / objects.path / f"{objects.names[-1]}.{suffix}"
    data = bytearray(file.read_bytes())
    if change:
        data[len(data) // 2] ^= change
    else:
        del data[-1:]
    file.write_bytes(data)
    return file.name


@pytest.mark.parametrize("change", [0, 1])
@pytest.mark.parametrize("suffix", ["log", "txnindex"])
def test_read_refuses_a_damaged_object_before_its_first_byte(
    tmp_path: Path, suffix: str, change: int
) -> None:
    archive = new_archive(tmp_path / "a")
    add(archive, plain(3), tmp_path)
    data = bytes(
        batches.batch([b"v"], base_offset=3, flags=batches.TRANSACTIONAL, producer_id=7, producer_epoch=0)
    ) + bytes(batches.marker(0, 7, base_offset=4))
    add(archive, data, tmp_path, offset=3, aborted=[(7, 3)])
    name = damage(archive, suffix, change)
    with closing(reader_of(archive)) as reader:
        if suffix == "txnindex" or change:
            before = reader.read(0, 10_000)
            assert before is not None
            assert before.record_set == plain(3)
        with pytest.raises(DamagedObject, match=name):
            reader.read(3, 10_000)


def test_offset_at_finds_the_first_record_since_a_time(tmp_path: Path) -> None:
    archive = new_archive(tmp_path / "a")
    add(archive, plain(3, timestamp=1_000), tmp_path)
    add(archive, plain(3, base_offset=3, timestamp=2_000), tmp_path, offset=3)
    with closing(reader_of(archive)) as reader:
        assert reader.offset_at(0, 1_000_000) == (0, 1_000)
        assert reader.offset_at(1_500, 1_000_000) == (3, 2_000)
        assert reader.offset_at(99_000, 1_000_000) is None


def add_foreign(archive: Archive, spool: Path, log: bytes) -> str:
    """Archive three records by a writer whose description fits to its ``.log``; return the log's name."""
    name, facts = add(archive, plain(3), spool)
    path = objects_of(archive).path
    facts = replace(
        facts, log_bytes=len(log), log_digest=xxhash.xxh3_128(log).hexdigest(), next_offset=5, batches=2
    )
    foreign = ObjectName(0, 2, name.attempt)
    archive.store.write(f"{path}/{foreign}.log", log)
    archive.store.write(f"{path}/{foreign}.json", facts.encode())
    return f"{foreign}.log"


_NO_BATCHES = {
    "zeros": bytes(100),
    "a few bytes": b"\0",
    "a length below a header's": bytes(8) + (20).to_bytes(4) + bytes(4) + b"\2" + bytes(100),
    "a negative length": bytes(8) + b"\xff" * 4 + bytes(100),
    "a batch that is cut short": plain(2, base_offset=3)[:-1],
    "a batch of an unknown format": bytes(8) + (90).to_bytes(4) + bytes(4) + b"\3" + bytes(85),
    "a batch from before": plain(2, base_offset=0),
}


@pytest.mark.parametrize("rest", _NO_BATCHES.values(), ids=_NO_BATCHES)
@pytest.mark.parametrize("most_bytes", [1, 10_000])
def test_read_refuses_a_log_that_ends_with_no_batch(tmp_path: Path, rest: bytes, most_bytes: int) -> None:
    archive = new_archive(tmp_path / "a")
    name = add_foreign(archive, tmp_path, plain(3) + rest)
    with closing(reader_of(archive)) as reader:
        read = reader.read(0, most_bytes)
        assert read is not None
        assert read.record_set == plain(3)
        with pytest.raises(DamagedObject, match=name):
            reader.read(3, most_bytes)


@pytest.mark.parametrize("rest", _NO_BATCHES.values(), ids=_NO_BATCHES)
def test_search_for_an_offset_refuses_a_log_that_ends_with_no_batch(tmp_path: Path, rest: bytes) -> None:
    archive = new_archive(tmp_path / "a")
    name = add_foreign(archive, tmp_path, plain(3) + rest)
    with closing(reader_of(archive)) as reader, pytest.raises(DamagedObject, match=name):
        reader.read(4, 10_000)


def test_offset_at_finds_a_message_of_an_old_format(tmp_path: Path) -> None:
    archive = new_archive(tmp_path / "a")
    inner = [batches.message(1, b"v", offset=number, timestamp=1_000 * number) for number in range(3)]
    wrapped = batches.wrapper(1, Codec.GZIP, inner, offset=2, timestamp=2_000)
    add(archive, bytes(wrapped) + bytes(batches.message(1, offset=3, timestamp=5_000)), tmp_path)
    with closing(reader_of(archive)) as reader:
        assert reader.offset_at(900, 1_000_000) == (1, 1_000)
        assert reader.offset_at(4_000, 1_000_000) == (3, 5_000)
