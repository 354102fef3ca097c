"""The manifest of a run that archives."""

from __future__ import annotations

import json
from pathlib import Path

import xxhash

from shoal.archive.directory import Archive
from shoal.archive.runs import write_run
from tests.archive.archives import TOPIC_ID, add, new_archive, objects_of, plain


def manifest(archive: Archive, directory: Path, ended_ms: int) -> list[dict[str, object]]:
    """Write the manifest of a run, and return its partitions."""
    write_run(archive, archive.topics(), started_ms=1, ended_ms=ended_ms)
    values = json.loads((directory / "runs" / f"{ended_ms:020d}.json").read_bytes())
    assert (values["format"], values["started_ms"], values["ended_ms"]) == (1, 1, ended_ms)
    partitions: list[dict[str, object]] = values["partitions"]
    return partitions


def test_manifest_has_the_extent_of_each_partition_and_a_digest_of_its_objects(tmp_path: Path) -> None:
    archive = new_archive(tmp_path / "a", partitions=2)
    add(archive, plain(3), tmp_path, offset=0)
    add(archive, plain(2, base_offset=3), tmp_path, offset=3)
    archive.store.write(f"{objects_of(archive).path}/00000000000000000005.9-1.log", b"failed upload")
    first, second = manifest(archive, tmp_path / "a", 5)
    files = sorted(Path(archive.store.url, objects_of(archive).path).iterdir())
    listed = [(each.name, each.stat().st_size) for each in files if ".9-1." not in each.name]
    digest = xxhash.xxh3_128("".join(f"{name} {size}\n" for name, size in listed).encode()).hexdigest()
    assert first == {
        "topic": "orders",
        "topic_id": str(TOPIC_ID),
        "partition": 0,
        "start_offset": 0,
        "next_offset": 5,
        "objects": 2,
        "bytes": sum(size for _, size in listed),
        "digest": digest,
    }
    assert (second["objects"], second["start_offset"], second["next_offset"]) == (0, None, None)


def test_run_that_archived_nothing_writes_no_manifest(tmp_path: Path) -> None:
    archive = new_archive(tmp_path / "a", partitions=2)
    add(archive, plain(3), tmp_path)
    first = manifest(archive, tmp_path / "a", 5)
    write_run(archive, archive.topics(), started_ms=6, ended_ms=7)
    assert [each.name for each in (tmp_path / "a" / "runs").iterdir()] == [f"{5:020d}.json"]
    add(archive, plain(2, base_offset=3), tmp_path, offset=3)
    assert manifest(archive, tmp_path / "a", 9) != first


def test_damaged_manifest_does_not_keep_the_next_one_back(tmp_path: Path) -> None:
    archive = new_archive(tmp_path / "a", partitions=2)
    manifest(archive, tmp_path / "a", 5)
    (tmp_path / "a" / "runs" / f"{5:020d}.json").write_text("cut sho")
    manifest(archive, tmp_path / "a", 6)
