"""Segments of an archive: log, index and description, and the order of their publication."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from shoal.archive.aborted import OpenAborted, read_index
from shoal.archive.description import DamagedObject
from shoal.archive.files import Store
from shoal.archive.segment import OpenSegment
from shoal.errors import CorruptBatch, StorageFailed
from tests.archive.archives import TOPIC_ID, add, new_archive, objects_of, plain
from tests.world import batches


def files_of(directory: Path) -> dict[str, bytes]:
    """The files of partition 0 by their suffixes."""
    found = (directory / "topics" / "orders" / str(TOPIC_ID) / "0").iterdir()
    return {each.suffix: each.read_bytes() for each in found}


def test_segment_takes_record_sets_one_after_the_other(tmp_path: Path) -> None:
    archive = new_archive(tmp_path / "archive")
    first, second = plain(3), plain(2, base_offset=3)
    _, facts = add(archive, first, tmp_path, sliced=[first + second, second[:-1]])
    assert files_of(tmp_path / "archive")[".log"] == first + second
    assert facts.next_offset == 5


def test_segment_refuses_a_batch_that_is_not_behind_the_last(tmp_path: Path) -> None:
    segment = OpenSegment(tmp_path / "spool.log", 0, OpenAborted(), follows=0)
    segment.take(memoryview(plain(4)))
    with pytest.raises(CorruptBatch):
        segment.take(memoryview(plain(4, base_offset=2)))


def test_segment_refuses_a_batch_behind_the_end_of_the_log(tmp_path: Path) -> None:
    segment = OpenSegment(tmp_path / "spool.log", 0, OpenAborted(), follows=0)
    # One that was written since the response was begun follows those before it.
    segment.take(memoryview(plain(4) + plain(4, base_offset=4)), log_end=4)
    with pytest.raises(CorruptBatch, match="behind the end"):
        segment.take(memoryview(plain(4, base_offset=1 << 40)), log_end=8)
    assert segment.next_offset == 8


def test_index_has_an_entry_of_kafka_for_each_abort_marker(tmp_path: Path) -> None:
    archive = new_archive(tmp_path / "archive")

    def of_transaction(producer_id: int, offset: int) -> bytes:
        return bytes(
            batches.batch([b"v"], base_offset=offset, flags=batches.TRANSACTIONAL, producer_id=producer_id)
        )

    fetched = (
        of_transaction(7, 0)
        + of_transaction(8, 1)
        + bytes(batches.marker(0, 8, base_offset=2))
        + bytes(batches.marker(1, 9, base_offset=3))
        + bytes(batches.marker(0, 7, base_offset=4))
        + of_transaction(10, 5)
    )
    _, facts = add(archive, fetched, tmp_path, aborted=[(7, 0), (8, 1), (10, 5), (11, 99)])
    assert files_of(tmp_path / "archive")[".txnindex"] == bytes.fromhex(
        "0000"
        "0000000000000008"
        "0000000000000001"
        "0000000000000002"
        "0000000000000000"
        "0000"
        "0000000000000007"
        "0000000000000000"
        "0000000000000004"
        "0000000000000005"
    )
    assert facts.aborted_later == ((10, 5),)
    assert facts.index_bytes == 68


@pytest.mark.parametrize("data", [b"\0" * 33, struct.pack(">hqqqq", 1, 7, 0, 4, 5)])
def test_index_of_another_layout_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"bytes|version"):
        read_index(data)


def test_json_comes_last_and_only_with_the_lease(tmp_path: Path) -> None:
    archive = new_archive(tmp_path / "archive")
    segment = OpenSegment(tmp_path / "spool.log", 0, OpenAborted(), follows=0)
    segment.take(memoryview(plain(1)))

    def expired() -> None:
        raise CorruptBatch("no lease")

    with pytest.raises(CorruptBatch):
        segment.publish(archive.store, objects_of(archive).path, 1, expired)
    objects = objects_of(archive)
    assert set(files_of(tmp_path / "archive")) == {".log"}
    assert (objects.names, objects.end_offset, len(objects.uncounted)) == ([], None, 1)
    assert objects.place.next_generation == 2
    assert segment.is_closed  # its file may be the archive's


class FullAfterLog:
    """A store that takes no small file for some attempts, or takes it and loses the answer."""

    def __init__(self, store: Store, failures: int, *, loses_answers: bool) -> None:
        self.url, self.is_local = store.url, store.is_local
        self.names, self.open = store.names, store.open
        self._store = store
        self._failures = failures
        self._loses_answers = loses_answers

    def write(self, path: str, data: bytes | Path) -> None:
        fails = isinstance(data, bytes) and self._failures > 0
        if not fails or self._loses_answers:
            self._store.write(path, data)
        if fails:
            self._failures -= 1
            raise StorageFailed(path, "no room")


@pytest.mark.parametrize("loses_answers", [False, True])
def test_segment_that_is_published_again_leaves_no_second_log(tmp_path: Path, *, loses_answers: bool) -> None:
    archive = new_archive(tmp_path / "archive")
    segment = OpenSegment(tmp_path / "spool.log", 0, OpenAborted(), follows=0)
    segment.take(memoryview(plain(1)))
    store = FullAfterLog(archive.store, failures=1 if loses_answers else 3, loses_answers=loses_answers)
    path = objects_of(archive).path
    for _ in range(1 if loses_answers else 3):
        with pytest.raises(StorageFailed):
            segment.publish(store, path, 1, lambda: None)
    name, _ = segment.publish(store, path, 1, lambda: None)
    assert objects_of(archive).names == [name]
    assert sorted(each.name for each in archive.store.names(path)) == [f"{name}.json", f"{name}.log"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"format": 2}',
        b'{"format": 1}',
        b"[" * 100_000,
        b'"next_offset": true,',
        b'"batches": -2,',
    ],
)
def test_description_of_another_form_is_damaged(tmp_path: Path, data: bytes) -> None:
    archive = new_archive(tmp_path / "archive")
    name, _ = add(archive, plain(3), tmp_path)
    file = tmp_path / "archive" / objects_of(archive).path / f"{name}.json"
    field = data.partition(b":")[0]
    is_field = data.endswith(b",")
    file.write_bytes(re.sub(field + b": .*,", data, file.read_bytes()) if is_field else data)
    with pytest.raises(DamagedObject, match=file.name):
        objects_of(archive).facts(name)
