"""A task that archives: segments, restarts, a store that fails, and a source that loses records."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from shoal.archive.reading import PartitionReader
from shoal.client.coordinator import MemberId
from shoal.errors import ConfigError
from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.task.archiving import follow_documents
from shoal.protocol.apis import ApiKey
from shoal.protocol.fetch import FetchResponse
from tests.archive.archives import bytes_of, room
from tests.archive.archiving import Archiving, stored
from tests.world import batches
from tests.world.clusters import QUICK
from tests.world.control import partitions_of
from tests.world.driver import Driver
from tests.world.faults import Held, answers
from tests.world.history import ABORT, History
from tests.world.logs import lose_tail, may_compact
from tests.world.waiting import wait_until


@pytest.fixture
def archiving(tmp_path: Path) -> Iterator[Archiving]:
    with Archiving.started(tmp_path / "archive") as started:
        yield started


def test_task_archives_up_to_the_last_stable_offset(archiving: Archiving) -> None:
    (history,) = archiving.brokers.topic()
    history.plain(3)
    # Aborted behind an open transaction: its marker is not archived, and its records must not look committed.
    history.store(history.batch(1, flags=batches.TRANSACTIONAL, producer_id=5, producer_epoch=0))
    history.store(history.batch(1, flags=batches.TRANSACTIONAL, producer_id=6, producer_epoch=0))
    history.marker(ABORT, 5)
    task = archiving.start()
    archiving.driver.want(0, end=4)
    wait_until(lambda: archiving.driver.server.is_done)
    archiving.driver.end(task)
    assert archiving.content() == stored(history.log, end=4)
    with closing(PartitionReader(archiving.objects())) as reader:
        read = reader.read(0, room(100_000))
    assert read is not None
    assert list(read.aborted) == [(5, 3)]


def test_task_writes_a_segment_when_it_is_old(tmp_path: Path) -> None:
    with Archiving.started(tmp_path / "archive", segment_s=0.05) as archiving:
        (history,) = archiving.brokers.topic()
        history.plain(3)
        task = archiving.start()
        archiving.driver.want(0)
        wait_until(lambda: archiving.end() == 3)
        archiving.driver.end(task)


def test_task_after_one_that_was_killed_continues_at_the_last_object(archiving: Archiving) -> None:
    (history,) = archiving.brokers.topic()
    history.plain(3)
    first = archiving.start()
    archiving.driver.want(0)
    wait_until(lambda: archiving.fetched_bytes > 0)
    archiving.driver.end(first)
    history.plain(2)
    killed = archiving.start()
    seen = archiving.fetched_bytes
    wait_until(lambda: archiving.fetched_bytes > seen)
    killed.kill()
    assert archiving.end() == 3
    seen = archiving.fetched_bytes
    last = archiving.start()
    wait_until(lambda: archiving.fetched_bytes > seen)
    archiving.driver.end(last)
    assert archiving.content() == stored(history.log)
    generations = [each.generation for each in archiving.objects().names]
    assert generations == sorted(set(generations))


def test_task_tries_a_segment_again_that_the_store_did_not_take(tmp_path: Path) -> None:
    with Archiving.started(tmp_path / "archive", segment_bytes=1) as archiving:
        (history,) = archiving.brokers.topic()
        task = archiving.start()
        archiving.driver.want(0)
        wait_until(lambda: archiving.is_begun)
        in_its_place = tmp_path / "archive" / archiving.path
        in_its_place.write_bytes(b"")
        history.plain(3)
        wait_until(lambda: archiving.driver.waits_for() is not None)
        history.plain(2)
        in_its_place.unlink()
        wait_until(lambda: archiving.end() == 5)
        archiving.driver.end(task)
        assert [each.base_offset for each in archiving.objects().names] == [0, 3]
        assert archiving.content() == stored(history.log)
        assert archiving.fetched_bytes == len(stored(history.log))


@pytest.mark.parametrize(
    "damage", ["deleted", "cut", "deleted with its directory", "its directory is a file"]
)
def test_task_fetches_a_segment_again_whose_local_file_was_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Archiving.started(tmp_path / "archive") as archiving:
        (history,) = archiving.brokers.topic()
        history.plain(3)
        task = archiving.start()
        archiving.driver.want(0, end=5)
        wait_until(lambda: archiving.fetched_bytes > 0)
        (file,) = tmp_path.glob("shoal-spool-*/*.log")
        if damage == "deleted":
            file.unlink()
        elif damage == "cut":
            file.write_bytes(b"")
        else:
            shutil.rmtree(file.parent)
        if damage == "its directory is a file":
            file.parent.write_bytes(b"")
        history.plain(2)
        wait_until(lambda: archiving.driver.server.is_done)
        archiving.driver.end(task)
        assert archiving.content() == stored(history.log)


def spooled(directory: Path) -> list[int]:
    """Return the sizes of the files of open segments."""
    sizes = []
    for each in directory.glob("shoal-spool-*/*.log"):
        with suppress(FileNotFoundError):  # the task may be done with it
            sizes.append(each.stat().st_size)
    return sizes


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Archiving, list[History]]]:
    """A task of 20 partitions, which gathers segments below ``tmp_path``, 20,000 bytes at most."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("shoal.mirroring.task.archiving.task.MOST_SPOOL_BYTES", 20_000)
    with Archiving.started(tmp_path / "archive") as archiving:
        histories = archiving.brokers.topic(partitions=20)
        task = archiving.start()
        archiving.driver.want(*range(20))
        wait_until(lambda: sum(each["source_offset"] is not None for each in latest(archiving)) == 20)
        yield archiving, histories
        archiving.driver.end(task)
        assert [archiving.content(number) for number in range(20)] == [stored(each.log) for each in histories]


def latest(archiving: Archiving) -> Collection[Any]:
    """Return the last report of each partition."""
    return {each["partition"]: each for each in partitions_of(archiving.driver)}.values()


def grow(archiving: Archiving, histories: list[History], tmp_path: Path) -> int:
    """Add a batch to each partition; wait until all are fetched, or the spool is full; return their bytes."""
    for each in histories:
        each.plain(3)
    total = sum(len(stored(each.log)) for each in histories)
    wait_until(lambda: archiving.fetched_bytes == total or sum(spooled(tmp_path)) > 20_000)
    return total


def test_open_segments_have_no_open_files_and_the_largest_are_closed_above_the_bound(
    many: tuple[Archiving, list[History]], tmp_path: Path
) -> None:
    for _ in range(3):
        total = grow(*many, tmp_path)
    assert (len(spooled(tmp_path)), sum(spooled(tmp_path))) == (20, total)
    opened = [each.path for each in psutil.Process().open_files() if "shoal-spool-" in each.path]
    assert [Path(each).name for each in opened] == ["lock"]
    while not any(many[0].end(number) for number in range(20)):
        grow(*many, tmp_path)
    wait_until(lambda: sum(spooled(tmp_path)) <= 20_000)


def test_task_fetches_no_more_than_the_bound_while_the_store_takes_nothing(
    many: tuple[Archiving, list[History]], tmp_path: Path
) -> None:
    archiving, histories = many
    (tmp_path / "archive").rename(tmp_path / "away")
    total = 0
    while sum(spooled(tmp_path)) <= 20_000:
        total = grow(archiving, histories, tmp_path)
    for each in histories:
        each.plain(3, 3, 3)
    retries = sum(each["retries"] for each in partitions_of(archiving.driver))
    wait_until(lambda: sum(each["retries"] for each in partitions_of(archiving.driver)) > retries + 5)
    assert sum(spooled(tmp_path)) <= total
    (tmp_path / "away").rename(tmp_path / "archive")
    wait_until(lambda: archiving.fetched_bytes == sum(len(stored(each.log)) for each in histories))


def test_task_archives_the_last_segment_again_that_was_moved_away(archiving: Archiving) -> None:
    (history,) = archiving.brokers.topic()
    for count in (3, 2):
        history.plain(count)
        archiving.to_the_end()
        begin_again(archiving)
    objects = archiving.objects()
    last = Path(objects.where(objects.names[-1]))
    last.write_bytes(last.read_bytes()[:-1])
    task = archiving.start()
    archiving.driver.want(0, end=6)
    wait_until(lambda: bool(archiving.driver.stopped))
    archiving.driver.end(task)
    begin_again(archiving)
    for suffix in (".log", ".json"):
        last.with_suffix(suffix).unlink()
    archiving.to_the_end()
    assert archiving.content() == stored(history.log)


def begin_again(archiving: Archiving) -> None:
    """Let the mirror be another run, with another driver."""
    archiving.driver.server.close()
    archiving.driver = Driver(archiving.brokers, follow_documents)


def test_task_without_its_lease_writes_nothing_that_counts(archiving: Archiving) -> None:
    (history,) = archiving.brokers.topic()
    history.plain(3)
    task = archiving.start()
    archiving.driver.want(0)
    wait_until(lambda: archiving.fetched_bytes > 0)
    archiving.driver.server.renew(MemberId(), -1.0)
    archiving.driver.server.end_one(task.job)
    task.running.result()
    task.control.close()
    assert archiving.end() is None


def test_task_continues_in_another_directory_if_the_topic_was_created_again(tmp_path: Path) -> None:
    with Archiving.started(tmp_path / "archive", segment_bytes=1) as archiving:
        (history,) = archiving.brokers.topic()
        history.plain(3)
        task = archiving.start()
        archiving.driver.want(0)
        wait_until(lambda: archiving.end() == 3)
        before = archiving.objects()
        topics = archiving.brokers.source.topics
        topics.delete(topics.topic("topic"))
        archiving.brokers.source.create_topic("topic", 1)
        again = History(topics.topic("topic").logs[0]).plain(1)
        wait_until(lambda: archiving.end() == 1)
        archiving.driver.end(task)
        assert archiving.content() == stored(again.log)
        assert before.end_offset == 3
        assert len(archiving.archive.creations("topic")) == 2


def test_task_stops_a_partition_whose_source_lost_archived_records(tmp_path: Path) -> None:
    with Archiving.started(tmp_path / "archive", segment_bytes=1) as archiving:
        (history,) = archiving.brokers.topic()
        history.plain(3, 2)
        task = archiving.start()
        archiving.driver.want(0)
        wait_until(lambda: archiving.end() == 5)
        History(lose_tail(archiving.brokers.source, "topic", 4)).plain(4)
        wait_until(lambda: bool(archiving.driver.stopped))
        archiving.driver.end(task)
        assert archiving.incidents() == [IncidentKind.SOURCE_RESET.value]
        assert archiving.end() == 5


@pytest.mark.parametrize("continues", [False, True])
def test_task_counts_records_that_the_source_deleted(tmp_path: Path, continues: bool) -> None:
    allowed = frozenset({IncidentKind.SOURCE_RETENTION} if continues else ())
    with Archiving.started(tmp_path / "archive", segment_bytes=1, continue_after=allowed) as archiving:
        (history,) = archiving.brokers.topic()
        history.plain(3)
        task = archiving.start()
        archiving.driver.want(0)
        wait_until(lambda: archiving.end() == 3)
        archiving.driver.end(task)
        history.plain(2, 4)
        history.log.delete_records(5)
        later = archiving.start()
        wait_until(lambda: archiving.end() == 9 if continues else bool(archiving.driver.stopped))
        archiving.driver.end(later)
        assert archiving.incidents() == [IncidentKind.SOURCE_RETENTION.value]
        with closing(PartitionReader(archiving.objects())) as reader:
            found = bytes_of(reader.read(3, room(100_000)))
        assert found == (stored(history.log) if continues else None)


def test_task_stops_at_a_damaged_batch_and_archives_the_batches_before_it(tmp_path: Path) -> None:
    with Archiving.started(tmp_path / "archive", segment_bytes=1_000_000) as archiving:
        (history,) = archiving.brokers.topic()
        history.plain(3)
        damaged = history.batch(2)
        damaged[-1] ^= 1
        history.store(damaged)
        task = archiving.start()
        archiving.driver.want(0)
        wait_until(lambda: bool(archiving.driver.stopped))
        archiving.driver.end(task)
        assert archiving.end() == 3


def without_records(response: FetchResponse) -> FetchResponse:
    parts = [replace(each, record_set=memoryview(b"")) for each in response.partitions]
    return replace(response, partitions=parts)


def test_task_archives_records_that_a_source_sends_late(archiving: Archiving) -> None:
    """A broker that reads from remote storage may send empty answers for minutes."""
    (history,) = archiving.brokers.topic()
    history.plain(3, 2)
    answers(archiving.brokers.source, ApiKey.FETCH, without_records, times=9)
    archiving.to_the_end()
    assert archiving.content() == stored(history.log)


def test_task_asks_a_leader_again_that_does_not_answer(archiving: Archiving) -> None:
    (history,) = archiving.brokers.topic()
    history.plain(3)
    archiving.driver.brokers = archiving.driver.brokers.with_clients("source", request_timeout_ms=500)
    silent = Held(archiving.brokers.source, ApiKey.FETCH, times=1)
    archiving.to_the_end()
    silent.release()
    assert archiving.content() == stored(history.log)


def test_task_waits_for_a_slow_fetch_longer_than_for_a_short_request(
    archiving: Archiving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.client.config.SHORT_REQUEST_TIMEOUT_MS", 300)
    (history,) = archiving.brokers.topic()
    history.plain(3)
    slow = archiving.brokers.source.faults.add(ApiKey.FETCH, delay_s=2.0)
    fetches = archiving.brokers.source.faults.add(ApiKey.FETCH, times=None)
    archiving.to_the_end()
    assert (slow.hits, fetches.hits) == (1, 1)  # one ahead, when the first was answered
    assert archiving.content() == stored(history.log)


def test_task_passes_over_offsets_that_the_cleaner_removed_at_the_end(archiving: Archiving) -> None:
    (history,) = archiving.brokers.topic()
    may_compact(archiving.brokers.source)
    history.plain(3).gap_at_the_end(3)
    archiving.to_the_end()
    assert archiving.content() == stored(history.log)


@pytest.mark.parametrize("continues", [False, True])
def test_task_of_a_source_that_stays_silent_ends_with_an_incident(tmp_path: Path, continues: bool) -> None:
    allowed = frozenset({IncidentKind.SOURCE_RETENTION} if continues else ())
    timing = replace(QUICK, gap_patience_timeouts=0)
    with Archiving.started(tmp_path / "archive", continue_after=allowed, timing=timing) as archiving:
        (history,) = archiving.brokers.topic()
        history.plain(3)
        answers(archiving.brokers.source, ApiKey.FETCH, without_records, 1_000_000)
        task = archiving.start()
        archiving.driver.want(0, end=3)
        wait_until(lambda: archiving.driver.server.is_done or bool(archiving.driver.stopped))
        archiving.driver.end(task)
        assert archiving.incidents() == [IncidentKind.SOURCE_GAP.value]
        assert bool(archiving.driver.stopped) is not continues


@pytest.mark.parametrize("is_there", [True, False])
def test_task_refuses_a_directory_that_is_not_the_drivers(
    archiving: Archiving, tmp_path: Path, is_there: bool
) -> None:
    if is_there:
        there = archiving.brokers.settings.destination.with_id("another")
        archiving.driver.brokers = archiving.brokers.with_settings(destination=there)
    else:
        (tmp_path / "archive").rename(tmp_path / "elsewhere")
    task = archiving.start()
    with pytest.raises(ConfigError, match="another archive" if is_there else "no archive"):
        task.running.result()
    task.control.close()
