"""An archive is read back: all batches, and none of a damaged object."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import xxhash

from shoal.archive.description import DamagedObject, encode
from shoal.archive.directory import Archive
from shoal.archive.names import ObjectName
from tests.archive.archives import add, bytes_of, new_archive, objects_of, plain, read_all, reader_of, room
from tests.world import batches


@pytest.mark.parametrize("most_bytes", [1, 100, 200, 10_000])
def test_read_returns_all_batches_of_all_objects(tmp_path: Path, most_bytes: int) -> None:
    archive = new_archive(tmp_path / "a")
    first, second = plain(3, 1, 40), plain(2, 2, base_offset=44)
    add(archive, first, tmp_path)
    add(archive, second, tmp_path, offset=44)
    assert read_all(objects_of(archive), most_bytes) == first + second


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
            assert bytes_of(reader.read(0, room(10_000))) == plain(3)
        with pytest.raises(DamagedObject, match=name):
            reader.read(3, room(10_000))


def add_foreign(archive: Archive, spool: Path, log: bytes) -> str:
    """Archive three records by a writer whose description fits to its ``.log``; return the log's name."""
    name, facts = add(archive, plain(3), spool)
    path = objects_of(archive).path
    facts = replace(
        facts, log_bytes=len(log), log_digest=xxhash.xxh3_128(log).hexdigest(), next_offset=5, batches=2
    )
    foreign = ObjectName(0, 2, name.attempt)
    archive.store.write(f"{path}/{foreign}.log", log)
    archive.store.write(f"{path}/{foreign}.json", encode(facts))
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
@pytest.mark.parametrize("offset", [0, 3, 4])
def test_read_refuses_a_log_that_ends_with_no_batch(tmp_path: Path, rest: bytes, offset: int) -> None:
    archive = new_archive(tmp_path / "a")
    name = add_foreign(archive, tmp_path, plain(3) + rest)
    with closing(reader_of(archive)) as reader, pytest.raises(DamagedObject, match=name):
        reader.read(offset, room(10_000))
