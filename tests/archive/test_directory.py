"""The directory of an archive: its description, its topics, and its objects."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from shoal.archive.description import DamagedObject, NoArchive
from shoal.archive.directory import Archive
from shoal.archive.names import UnsafeName
from shoal.errors import ConfigError, Disconnected
from shoal.records import Codec, read_records, split
from tests.archive.archives import (
    TOPIC_ID,
    add,
    bytes_of,
    described,
    new_archive,
    objects_of,
    plain,
    read_all,
    reader_of,
    room,
)
from tests.world import batches, contents

#: A description of a topic.
WHOLE = {
    "format": 1,
    "topic": "orders",
    "source_topic": "orders",
    "source_cluster": None,
    "partitions": 1,
    "replication_factor": 1,
    "configs": {},
    "defaults": {},
}


def test_create_makes_an_archive_once(tmp_path: Path) -> None:
    made = Archive.open(str(tmp_path / "new"), creates=True)
    assert Archive.open(str(tmp_path / "new"), creates=True).id == made.id
    assert Archive.open(str(tmp_path / "new")).id == made.id


def test_create_refuses_a_directory_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"notes\.txt"):
        Archive.open(str(tmp_path), creates=True)


#: Writes a file, and is killed between its temporary name and its own.
KILLED = """
import os, signal, sys
from shoal.archive.store import open_store

os.link = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
open_store(sys.argv[1]).write(sys.argv[2], b"{}")
"""


def killed_while_it_names(directory: Path, file: str) -> str:
    """Write a file in a process that is killed; return the temporary name that it leaves."""
    killed = subprocess.run([sys.executable, "-c", KILLED, str(directory), file], check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = (directory / file).parent.glob(".*.tmp")
    return left.name


def test_archive_is_made_after_a_kill_before_its_file_had_its_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    killed_while_it_names(tmp_path / "a", "archive.json")
    assert list(new_archive(tmp_path / "a").topics()) == ["orders"]


@pytest.mark.parametrize("suffix", ["log", "txnindex", "json"])
def test_problems_name_temporary_files_after_a_kill_which_count_for_nothing(
    tmp_path: Path, suffix: str
) -> None:
    archive = new_archive(tmp_path / "a")
    add(archive, plain(3), tmp_path)
    left = killed_while_it_names(tmp_path / "a", f"{objects_of(archive).path}/{3:020d}.7-1.{suffix}")
    add(
        archive,
        plain(2, base_offset=3),
        tmp_path,
        offset=3,
        generation=objects_of(archive).place.next_generation,
    )
    (problem,) = archive.problems()
    assert left in problem
    assert read_all(objects_of(archive)) == plain(3, 2)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        '{"format": 9, "id": "x"}',
        '{"format": 1, "id": 7}',
        '{"format": 1, "id": "../x y"}',
        "x" * 5_000_000,
    ],
)
def test_open_refuses_an_archive_file_that_shoal_does_not_write(tmp_path: Path, content: str) -> None:
    (tmp_path / "archive.json").write_text(content)
    with pytest.raises(DamagedObject, match=r"archive\.json"):
        Archive.open(str(tmp_path))


def test_open_refuses_a_directory_without_an_archive(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no archive"):
        Archive.open(str(tmp_path))


def test_describe_writes_a_description_for_each_change(tmp_path: Path) -> None:
    archive = Archive.open(str(tmp_path), creates=True)
    assert archive.describe(described())
    assert not archive.describe(replace(described(), written_ms=2))
    assert archive.describe(replace(described(partitions=4), written_ms=3))
    assert archive.topics()["orders"].partitions == 4
    assert len(list((tmp_path / "topics" / "orders" / str(TOPIC_ID)).iterdir())) == 2


def test_describe_refuses_a_creation_behind_which_another_was_described(tmp_path: Path) -> None:
    archive = Archive.open(str(tmp_path), creates=True)
    archive.describe(described())
    archive.describe(replace(described(), directory_id=str(UUID(int=2)), written_ms=2))
    with pytest.raises(ConfigError, match="orders"):
        archive.describe(replace(described(), written_ms=3))
    assert archive.topics()["orders"].directory_id == str(UUID(int=2))


def test_describe_refuses_a_topic_of_another_cluster(tmp_path: Path) -> None:
    archive = Archive.open(str(tmp_path), creates=True)
    archive.describe(replace(described(), source_cluster="west"))
    other = replace(described(), directory_id=str(UUID(int=2)), source_cluster="east", written_ms=2)
    with pytest.raises(ConfigError, match="west"):
        archive.describe(other)
    assert archive.topics()["orders"].source_cluster == "west"
    assert archive.describe(replace(described(), written_ms=2)), "a cluster without an id"
    archive.describe(replace(other, source_cluster="west", written_ms=3))
    assert archive.topics()["orders"].directory_id == str(UUID(int=2)), "created again in the same cluster"


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        '{"format": 1, "partitions": -1}',
        '{"format": 1, "partitions": true}',
        json.dumps({**WHOLE, "configs": {"retention.ms": "\ud800x"}}),
        json.dumps({**WHOLE, "defaults": {"\ud800x": "1"}}),
        json.dumps({**WHOLE, "partitions": 100_000}),
    ],
)
def test_topics_leave_out_one_with_a_damaged_description(tmp_path: Path, content: str) -> None:
    archive = new_archive(tmp_path)
    archive.describe(described(name="sales"))
    (file,) = (tmp_path / "topics" / "orders" / str(TOPIC_ID)).iterdir()
    file.write_text(content)
    archive = Archive.open(archive.store.url)
    assert list(archive.topics()) == ["sales"]
    error = archive.damaged["orders"]
    assert isinstance(error, DamagedObject)
    assert file.name in error.where


@pytest.mark.parametrize(("directory", "topic"), [("or ders", "or ders"), ("sales/other", "sales")])
def test_topics_leave_out_one_with_a_name_that_shoal_gives_none(
    tmp_path: Path, directory: str, topic: str
) -> None:
    archive = new_archive(tmp_path)
    (tmp_path / "topics" / directory).mkdir(parents=True)
    assert list(archive.topics()) == ["orders"]
    assert isinstance(archive.damaged[topic], UnsafeName)


@pytest.mark.parametrize("damage", ["gap", "no log", "log cut short", "no index"])
def test_examine_finds_damage_that_descriptions_and_sizes_show(tmp_path: Path, damage: str) -> None:
    archive = new_archive(tmp_path / "a")
    add(archive, plain(3), tmp_path)
    transaction = batches.batch(
        [b"v"], base_offset=3, flags=batches.TRANSACTIONAL, producer_id=7, producer_epoch=0
    )
    aborted = bytes(transaction + batches.marker(0, 7, base_offset=4))
    middle, _ = add(archive, aborted, tmp_path, offset=3, aborted=[(7, 3)])
    last, _ = add(archive, plain(2, base_offset=5), tmp_path, offset=5)
    assert list(archive.problems()) == []
    room = tmp_path / "a" / objects_of(archive).path
    if damage == "log cut short":
        (room / f"{middle}.log").write_bytes(aborted[:-1])
    else:
        gone = {"gap": ("json", "log", "txnindex"), "no log": ("log",), "no index": ("txnindex",)}[damage]
        for suffix in gone:
            (room / f"{middle}.{suffix}").unlink()
    (found,) = archive.problems()
    assert str(last if damage == "gap" else middle) in found


def test_last_object_is_found_without_the_descriptions_of_the_first(tmp_path: Path) -> None:
    """A partition may have ten thousand, and a store takes milliseconds for each."""
    archive = new_archive(tmp_path / "a")
    added = [add(archive, plain(1, base_offset=each), tmp_path, offset=each) for each in range(20)]
    for name, _ in added[:4]:
        (tmp_path / "a" / objects_of(archive).path / f"{name}.json").write_text("{}")
    assert objects_of(archive).last == added[-1][1]


def test_generation_above_which_there_is_no_name_is_refused(tmp_path: Path) -> None:
    archive = new_archive(tmp_path / "a")
    add(archive, plain(3), tmp_path)
    stray = tmp_path / "a" / objects_of(archive).path / f"{0:020d}.9999999999-1.log"
    stray.write_bytes(b"")
    objects = objects_of(archive)
    assert objects.end_offset == 3, "readers do not mind it"
    with pytest.raises(UnsafeName, match="9999999999"):
        add(archive, plain(2, base_offset=3), tmp_path, offset=3, generation=objects.place.next_generation)
    stray.unlink()
    assert objects_of(archive).place.next_generation == 2


def test_objects_take_offsets_that_the_source_had_deleted_for_no_gap(tmp_path: Path) -> None:
    archive = new_archive(tmp_path / "a")
    add(archive, plain(3), tmp_path)
    later = plain(2, base_offset=50)
    add(archive, later, tmp_path, offset=50, follows=3)
    with closing(reader_of(archive)) as reader:
        assert bytes_of(reader.read(3, room(1_000))) == later


@pytest.mark.parametrize(
    "later",
    [
        plain(2) + plain(2, base_offset=2, timestamp=9_000) + plain(2, base_offset=4),
        plain(2) + plain(4, base_offset=2),
        plain(6),
        plain(2) + plain(2, base_offset=2) + plain(1, base_offset=5),
        bytes(batches.batch([b"a", b"b"], holes=[0])) + plain(1, 1, base_offset=2) + plain(2, base_offset=4),
    ],
    ids=["other records", "a longer batch", "one batch", "another beginning", "a batch in two"],
)
@pytest.mark.parametrize("first", [0, 2])
def test_overlapping_objects_that_differ_are_refused_with_both_names(
    tmp_path: Path, later: bytes, first: int
) -> None:
    archive = new_archive(tmp_path / "a")
    one, _ = add(archive, plain(2, 2, 2), tmp_path, generation=1)
    other, _ = add(archive, later, tmp_path, generation=2)
    with closing(reader_of(archive)) as reader, pytest.raises(DamagedObject) as refused:
        reader.read(first, room(60))
    assert all(f"{each}.log" in str(refused.value) for each in (one, other))


def test_overlapping_objects_may_lack_batches_that_compaction_removed(tmp_path: Path) -> None:
    archive = new_archive(tmp_path / "a")
    add(archive, plain(2, 2, 2, 2), tmp_path, generation=1)
    later = plain(2) + plain(2, base_offset=4)
    add(archive, later, tmp_path, generation=2)
    with closing(reader_of(archive)) as reader:
        assert bytes_of(reader.read(0, room(10_000))) == later
        assert bytes_of(reader.read(6, room(10_000))) == plain(2, base_offset=6)


def test_overlapping_objects_of_a_higher_generation_win(tmp_path: Path) -> None:
    archive = new_archive(tmp_path / "a")
    late = plain(2, 2, 2)
    add(archive, late, tmp_path, generation=1)
    add(archive, plain(2), tmp_path, generation=2)
    compacted = bytes(batches.batch([b"first", b"value at 3"], base_offset=2, holes=[0]))
    add(archive, compacted, tmp_path, offset=2, generation=2)
    found = read_all(objects_of(archive))
    assert found == plain(2) + compacted + plain(2, base_offset=4)
    assert objects_of(archive).end_offset == 6


def test_object_of_a_writer_that_saw_no_others_is_the_furthest(tmp_path: Path) -> None:
    """A store may list late: the second writer began again where the first one did."""
    archive = new_archive(tmp_path / "a")
    add(archive, plain(1), tmp_path, generation=1)
    add(archive, plain(2, base_offset=1), tmp_path, offset=1, generation=2)
    add(archive, plain(1, 2, 3), tmp_path, generation=2)
    assert objects_of(archive).end_offset == 6
    add(archive, plain(2, base_offset=6), tmp_path, offset=6, generation=3)
    with closing(reader_of(archive)) as reader:
        assert bytes_of(reader.read(3, room(10_000))) == plain(3, base_offset=3)
    assert objects_of(archive).end_offset == 8


def test_overlapping_objects_may_differ_by_the_delete_horizon(tmp_path: Path) -> None:
    """The cleaner's first pass keeps a tombstone, and notes when it goes (KIP-534)."""
    made = batches.payload([batches.Record(None, b"key"), batches.Record(b"value", b"other", offset_delta=1)])
    earlier = bytes(batches.raw_batch(made, attributes=0, records_count=2, last_offset_delta=1))
    (batch,) = split(memoryview(earlier))
    later = bytes(contents.compacted(batch, lambda _: True, has_horizon=True))
    assert later != earlier
    archive = new_archive(tmp_path / "a")
    add(archive, earlier, tmp_path, generation=1)
    add(archive, later, tmp_path, generation=2)
    assert read_all(objects_of(archive)) == later


def test_object_is_read_up_to_one_of_a_higher_generation(tmp_path: Path) -> None:
    archive = new_archive(tmp_path / "a")
    add(archive, plain(1, 3), tmp_path, generation=1)
    values = [b"value at 1", b"compacted", b"value at 3"]
    compacted = bytes(batches.batch(values, base_offset=1, holes=[1]))
    add(archive, compacted, tmp_path, offset=1, generation=2, follows=0)
    assert read_all(objects_of(archive)) == plain(1) + compacted


def wrapped(*offsets: int) -> bytes:
    """Return a wrapper of old messages with these offsets."""
    inner = [batches.message(1, b"value at %d" % each, offset=each - offsets[0]) for each in offsets]
    return bytes(batches.wrapper(1, Codec.GZIP, inner, offset=offsets[-1]))


def offsets_in(archive: Archive) -> list[int]:
    found = read_all(objects_of(archive))
    return [record.offset for each in split(memoryview(found)) for record in read_records(each, 1_000_000)]


def test_old_wrapper_in_which_a_later_object_begins_is_read_whole(tmp_path: Path) -> None:
    archive = new_archive(tmp_path / "a")
    add(archive, wrapped(0, 1) + wrapped(2, 3, 4, 5), tmp_path, generation=1)
    add(archive, wrapped(4, 5) + wrapped(6), tmp_path, offset=4, generation=2)
    assert offsets_in(archive) == list(range(7))


def test_old_wrapper_may_lack_messages_that_compaction_removed(tmp_path: Path) -> None:
    archive = new_archive(tmp_path / "a")
    add(archive, wrapped(0, 1, 2) + wrapped(3, 4), tmp_path, generation=1)
    add(archive, wrapped(0, 1) + wrapped(4), tmp_path, generation=2)
    assert offsets_in(archive) == [0, 1, 4]


def test_old_wrapper_with_other_messages_is_refused(tmp_path: Path) -> None:
    archive = new_archive(tmp_path / "a")
    add(archive, wrapped(0, 1, 2), tmp_path, generation=1)
    inner = [batches.message(1, b"another", offset=0)]
    add(archive, bytes(batches.wrapper(1, Codec.GZIP, inner, offset=1)), tmp_path, generation=2)
    with pytest.raises(DamagedObject, match="different batches at offset 1"):
        offsets_in(archive)


def test_archive_that_is_gone_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    archive = new_archive(tmp_path / "a")
    add(archive, plain(3), tmp_path)
    objects = objects_of(archive)
    (tmp_path / "a").rename(tmp_path / "b")
    for look in (objects.look, archive.topics, lambda: objects_of(archive)):
        with pytest.raises(NoArchive):
            look()
    with pytest.raises(Disconnected):
        archive.store.write("runs/00000000000000000001.json", b"{}")
    assert not (tmp_path / "a").exists()
