"""After a power cut only flushed files and flushed names are left."""

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.records import split
from shoal_broker import Broker
from shoal_broker.storage import journal
from tests.batches import batch
from tests.broker.wire import Wire


class Disk:
    """
    Keeps only flushed bytes and names.

    A file that was not is empty, as ext4 may leave it; one whose directory was not is not there.

    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._files: dict[int, bytes] = {}
        self._directories: dict[int, dict[str, tuple[int, bool]]] = {}
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._flushing(getattr(os, name)))

    def _flushing(self, flush: Callable[[int], None]) -> Callable[[int], None]:
        def flushed(descriptor: int) -> None:
            flush(descriptor)
            found = os.fstat(descriptor)
            if stat.S_ISDIR(found.st_mode):
                self._directories[found.st_ino] = {
                    each.name: (each.inode(), each.is_dir())
                    for each in os.scandir(f"/proc/self/fd/{descriptor}")
                }
            else:
                self._files[found.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()

        return flushed

    def copy_to(self, directory: Path, original: Path) -> None:
        """Make a directory as the machine's end would leave another one."""
        self._copy(directory, original.stat().st_ino)

    def _copy(self, directory: Path, inode: int) -> None:
        directory.mkdir()
        for name, (each, is_directory) in self._directories.get(inode, {}).items():
            if is_directory:
                self._copy(directory / name, each)
            else:
                (directory / name).write_bytes(self._files.get(each, b""))


def test_flushed_acknowledgements_survive_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    monkeypatch.setattr(journal, "_LARGE_BYTES", 1)  # the journal is rewritten now and then
    data = tmp_path / "data"
    config = {"log.flush.interval.messages": "1", "log.segment.bytes": str(1 << 20)}
    topics = [f"topic-{number}" for number in range(20)]
    with Broker(data=data, config=config) as broker, Wire(broker.bootstrap) as wire:
        for number, topic in enumerate(topics):
            assert wire.create_topic(topic, 2).error_code == 0
            for _ in range(3):  # the third begins a segment
                assert wire.produce(topic, batch([b"x" * 400_000]), partition=1).error_code == 0
            left = tmp_path / f"left-{number}"
            disk.copy_to(left, data)
            _check(left, topics[: number + 1])
            shutil.rmtree(left)


def _check(data: Path, topics: list[str]) -> None:
    with Broker(data=data) as broker, Wire(broker.bootstrap) as wire:
        assert [topic.name for topic in broker.topics] == topics
        for topic in topics:
            offsets: list[int] = []
            while len(offsets) < wire.end_offset(topic, partition=1):
                found = wire.fetch(topic, len(offsets), partition=1, partition_max_bytes=1 << 22)
                offsets += [each.header.base_offset for each in split(memoryview(found.record_set))]
            assert offsets == [0, 1, 2]
