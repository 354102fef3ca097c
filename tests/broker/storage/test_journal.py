"""The journal of a data directory that cannot be rewritten, renamed or flushed."""

import errno
import os
from pathlib import Path

import pytest

from shoal_broker import ApiError, Broker
from shoal_broker.storage import journal
from shoal_broker.storage.journal import Journal
from shoal_broker.storage.log_dir_failure import LogDirFailure
from tests.broker.storage.directories import raising, serving


@pytest.fixture
def small_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewrite the journal after every two or three facts."""
    monkeypatch.setattr(journal, "_LARGE_BYTES", 150)


def put_many(kept: Journal, count: int = 20) -> None:
    for number in range(count):
        kept.put("fact", "key", value="x" * 40 + str(number))


@pytest.mark.usefixtures("small_journal")
@pytest.mark.parametrize("failing", ["open", "write", "replace"])
def test_journal_that_cannot_be_rewritten_continues(
    data: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    data.mkdir()
    kept = Journal(data)
    with monkeypatch.context() as disk:
        if failing == "open":
            disk.setattr(os, "open", raising(errno.EMFILE))
        elif failing == "replace":
            disk.setattr(Path, "replace", raising(errno.ENOSPC))
        else:
            disk.setattr(journal, "flush_file", raising(errno.ENOSPC))
        put_many(kept)
        assert not (data / "journal.new").exists()
    assert dict(Journal(data).facts("fact")) == {("key",): "x" * 40 + "19"}
    assert kept._failure.reason is None


@pytest.mark.usefixtures("small_journal")
def test_journal_does_not_write_to_a_closed_descriptor(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data.mkdir()
    kept = Journal(data)
    opened = os.open
    with monkeypatch.context() as disk:
        disk.setattr(os, "open", raising(errno.EMFILE))
        put_many(kept)
    other = opened(data / "other", os.O_RDWR | os.O_CREAT)
    put_many(kept)
    assert os.fstat(other).st_size == 0
    os.close(other)
    assert b"x19" in (data / "journal.jsonl").read_bytes()


def test_journal_with_a_partial_line_that_cannot_be_cut_goes_offline(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data.mkdir()
    kept = Journal(data, LogDirFailure(data))
    kept.put("fact", "first", value=1)
    write = os.write

    def write_half(descriptor: int, line: bytes) -> int:
        if len(line) < 10:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, line[:-5])

    with monkeypatch.context() as disk:
        disk.setattr(os, "write", write_half)
        disk.setattr(os, "ftruncate", raising(errno.ENOSPC))
        with pytest.raises(ApiError):
            kept.put("fact", "second", value=2)
    with pytest.raises(ApiError):
        kept.put("fact", "third", value=3)
    assert "failed at journal.jsonl: No space left on device" in str(kept._failure.reason)
    assert dict(Journal(data).facts("fact")) == {("first",): 1}


@pytest.mark.usefixtures("small_journal")
def test_journal_whose_rename_is_not_flushed_flushes_it_later(
    data: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data.mkdir()
    kept = Journal(data, LogDirFailure(data))
    kept.flush()
    with monkeypatch.context() as disk:
        disk.setattr(journal, "flush_directory", raising(errno.EMFILE))
        put_many(kept)
        assert "could not be rewritten" not in caplog.text
        with pytest.raises(ApiError):
            kept.flush()
    flushed: list[Path] = []
    monkeypatch.setattr(journal, "flush_directory", flushed.append)
    kept.flush()
    kept.flush()
    assert flushed == [data]
    assert kept._failure.reason is None


def test_leftover_files_are_removed_at_the_start(data: Path) -> None:
    with serving(data) as (broker, _):
        broker.create_topic("topic")
    (data / "journal.new").write_bytes(b"x" * 5000)
    (data / "topic-0" / "partition.metadata.new").write_bytes(b"x")
    with serving(data) as (broker, _):
        assert [topic.name for topic in broker.topics] == ["topic"]
        assert list(data.rglob("*.new")) == []


def test_journal_that_cannot_be_rewritten_at_the_start_is_cut_after_its_last_line(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(data) as (broker, _):
        broker.create_topic("topic")
    with (data / "journal.jsonl").open("ab") as file:
        file.write(b'["topic",["torn"')
    with monkeypatch.context() as disk:
        disk.setattr(Path, "replace", raising(errno.ENOSPC))
        broker = Broker(data=data)
    broker.create_topic("other")
    broker.stop()
    assert [topic.name for topic in Broker(data=data).topics] == ["topic", "other"]
