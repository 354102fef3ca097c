"""A store that answers 503 for a while, delays, cuts connections and lists late."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.archive import downloads
from shoal.archive.directory import Archive
from shoal.archive.reading import PartitionReader
from shoal.archive.store import open_store
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.client.offsets import ask_offsets
from shoal.errors import AccessRefused, BeingDownloaded, ConfigError, Disconnected, ShoalError
from shoal.mirroring.model.ranges import CopyRange
from shoal.timing import Timing
from shoal.topic_partition import TopicPartition
from shoal.verify import Outcome
from tests.archive.archives import add, new_archive, objects_of, plain, read_all, reader_of
from tests.archive.archiving import Archiving, stored
from tests.archive.failing_store import Answer, FailingStore, Fault, Request
from tests.world import batches
from tests.world.control import Watched
from tests.world.source import SourcePartition
from tests.world.task import TaskResult
from tests.world.waiting import wait_until


@pytest.fixture
def store(endpoint: str) -> Iterator[FailingStore]:
    proxy = FailingStore(endpoint)
    yield proxy
    proxy.close()


@pytest.fixture
def url(bucket: str, endpoint: str, store: FailingStore) -> str:
    return bucket.replace(endpoint, store.endpoint)


def unavailable_for(seconds: float) -> Fault:
    """Answer 503 to each request from the first object on."""
    began_at: list[float] = []

    def fault(request: Request) -> Answer | None:
        if not began_at and request.key.endswith(".log"):
            began_at.append(time.monotonic())
        is_down = began_at and time.monotonic() - began_at[0] < seconds
        return Answer(503, "SlowDown") if is_down else None

    return fault


def cutting_each(number: int) -> Fault:
    """Cut the connection in the middle of each such answer."""
    numbers = itertools.count(1)
    return lambda request: next(numbers) % number == 0


FAULTS = {
    # The SDK tries for 6 s before shoal knows of it.
    "503 for a while": lambda: unavailable_for(8.0),
    "cut connections": lambda: cutting_each(4),
}


def new_source(archiving: Archiving, seed: int) -> SourcePartition:
    return SourcePartition(archiving.brokers.topic()[0].log, random.Random(seed))


def assert_restored(archiving: Archiving, source: SourcePartition) -> None:
    assert archiving.restored() == source.committed
    assert archiving.verified() is Outcome.EQUAL


@pytest.mark.parametrize("kind", [pytest.param("503 for a while", marks=pytest.mark.long), "cut connections"])
def test_archive_and_restore_end_exactly_through_faults(
    url: str, bucket: str, store: FailingStore, kind: str
) -> None:
    with Archiving.started(url, seen_at=bucket, segment_bytes=1) as archiving:
        source = new_source(archiving, 1)
        source.grow()
        archiving.to_the_end()
        source.grow()
        store.fault = FAULTS[kind]()
        archiving.to_the_end()
        assert store.faults
        assert archiving.content() == stored(source.log)
        store.fault, store.faults = FAULTS[kind](), 0
        archiving.restore()
        assert store.faults
        store.fault = lambda request: None
        assert_restored(archiving, source)


@pytest.mark.long
def test_archive_and_restore_of_a_slow_store_end_exactly(url: str, store: FailingStore) -> None:
    with Archiving.started(url, segment_bytes=1) as archiving:
        source = new_source(archiving, 2)
        store.delay_s = 0.01
        for _ in range(3):
            source.grow()
            archiving.to_the_end()
        archiving.restore()
        assert_restored(archiving, source)


def test_task_that_sees_an_old_listing_archives_the_same_records_again(
    url: str, bucket: str, store: FailingStore
) -> None:
    with Archiving.started(url, seen_at=bucket, segment_bytes=1) as archiving:
        source = new_source(archiving, 3)
        store.lists_after_s = 3_600.0
        for _ in range(3):
            source.grow()
            archiving.to_the_end()
        assert archiving.content() == stored(source.log)
        assert len({each.base_offset for each in archiving.objects().names}) < len(archiving.objects().names)
        store.lists_after_s = 0.0
        archiving.restore()
        assert_restored(archiving, source)


@pytest.mark.parametrize("most_bytes", [0, 1_000_000])
def test_object_is_downloaded_once_if_the_local_disk_has_room(
    url: str, store: FailingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_bytes: int
) -> None:
    monkeypatch.setattr("shoal.archive.files.MOST_COPIED_BYTES", most_bytes)
    archive = new_archive(url)
    name, _ = add(archive, plain(3, 2), tmp_path)
    downloads = []

    def count(request: Request) -> None:
        if request.method == "GET" and request.key.endswith(f"{name}.log"):
            downloads.append(request)

    store.fault = count
    assert read_all(objects_of(archive)) == plain(3, 2)
    assert len(downloads) == (1 if most_bytes else 2)


def test_restore_from_a_store_that_drips_downloads_each_object_once(url: str, store: FailingStore) -> None:
    """One object takes several timeouts of the client; the partition beside it is copied meanwhile."""
    downloads = Counter[str]()

    def drip(request: Request) -> float | None:
        if request.method != "GET" or not request.key.endswith(".log"):
            return None
        downloads[request.key] += 1
        return 4.0 if "/0/00000000000000000000." in request.key else None

    with Archiving.started(url, segment_bytes=1) as archiving:
        histories = archiving.brokers.topic(partitions=2)
        for number, history in enumerate(histories):
            for _ in range(2):
                history.plain(3)
                archiving.to_the_end(number)
        store.fault, seen = drip, Watched()
        ranges = [CopyRange("topic", number, "topic", 0, 6) for number in range(2)]
        restoring = archiving.restoring.with_clients("source", request_timeout_ms=1_000)
        task = restoring.with_timing(stalled_s=0.5).start(ranges, seen)
        wait_until(lambda: len(restoring.copied(partition=1)) == 6)
        assert restoring.copied() == []
        assert task.result() == TaskResult((), complete=True)
        restoring.assert_exact(*histories)
    assert sorted(downloads.values()) == [1] * 4
    waits = {part["waiting_for"] for report in seen.reports for part in report["partitions"]} - {None}
    assert {wait.rpartition("/")[2].partition("-")[0] for wait in waits} == {"00000000000000000000.0"}
    assert all(wait.startswith("s3://") and wait.endswith(".log: it is being downloaded") for wait in waits)


def test_times_are_looked_up_in_objects_that_together_take_longer_than_a_request(
    url: str, store: FailingStore
) -> None:
    """Objects come in parallel, and none again because the client had to ask again."""
    partitions, downloads = [TopicPartition("topic", number) for number in range(8)], Counter[str]()

    def drip(request: Request) -> float | None:
        if request.method != "GET" or not request.key.endswith(".log"):
            return None
        downloads[request.key] += 1
        return 3.0

    with Archiving.started(url) as archiving:
        for number, history in enumerate(archiving.brokers.topic(partitions=len(partitions))):
            history.plain(3)
            archiving.to_the_end(number)
        store.fault = drip
        source = archiving.restoring.with_clients("source", request_timeout_ms=7_000).settings.source
        with Cluster(source) as cluster:
            cluster.refresh(["topic"])
            assert ask_offsets(cluster, partitions, 0, 20.0) == dict.fromkeys(partitions, 0)
    assert sorted(downloads.values()) == [1] * len(partitions)


def test_store_that_is_silent_in_the_middle_of_a_write_is_named(url: str, store: FailingStore) -> None:
    new_archive(url)
    archive = Archive.open(url, timing=Timing(store_answers_s=0.2))
    released = threading.Event()
    store.fault = lambda request: released.wait(30.0) if request.method == "PUT" else None
    try:
        with pytest.raises(Disconnected, match=r"runs/x\.json: no answer in 0\.2 s"):
            archive.store.write("runs/x.json", b"{}")
    finally:
        released.set()


def test_store_that_is_silent_in_the_middle_of_a_read_is_named(
    url: str, store: FailingStore, tmp_path: Path
) -> None:
    name, _ = add(new_archive(url), plain(3, 2), tmp_path)
    archive = Archive.open(url, timing=Timing(store_answers_s=0.2))
    released = threading.Event()
    objects = objects_of(archive)
    store.fault = lambda request: released if request.method == "GET" and ".log" in request.key else None
    try:
        with pytest.raises(Disconnected, match=rf"{name}\.log: no answer in 0\.2 s"):
            read_all(objects)
    finally:
        released.set()
    store.fault = lambda request: None
    assert read_all(objects) == plain(3, 2)


REFUSALS: dict[str, tuple[Answer, type[ShoalError], str]] = {
    "wrong key": (Answer(403, "InvalidAccessKeyId"), AccessRefused, "credentials"),
    "wrong secret": (Answer(403, "SignatureDoesNotMatch"), AccessRefused, "credentials"),
    "expired token": (Answer(400, "ExpiredToken"), AccessRefused, "credentials"),
    "no permission": (Answer(403, "AccessDenied"), AccessRefused, "credentials"),
    "another endpoint": (Answer(301, "PermanentRedirect"), ConfigError, "region"),
    "another region": (Answer(400, "AuthorizationHeaderMalformed"), ConfigError, "region"),
    "no bucket": (Answer(404, "NoSuchBucket"), ConfigError, "bucket is not there"),
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_refusal_of_the_store_names_the_object_and_the_remedy(
    url: str, store: FailingStore, kind: str
) -> None:
    archive = Archive.open(url, creates=True)
    answer, error, remedy = REFUSALS[kind]
    store.fault = lambda request: answer
    with pytest.raises(error, match=f"topics/orders.*{remedy}") as raised:
        archive.store.write("topics/orders", b"{}")
    assert store.endpoint not in str(raised.value)
    assert "\n" not in str(raised.value)
    with pytest.raises((AccessRefused, ConfigError), match="s3://"):  # at the start it is no reason to wait
        open_store(url)


def test_refused_keys_of_the_properties_name_the_directory(url: str, store: FailingStore) -> None:
    keys = {"s3.access.key": "AKIA", "s3.secret.key": "hidden"}
    config = ClientConfig.given("source", {"bootstrap.servers": url, **keys}, None)
    store.fault = lambda request: Answer(403, "InvalidAccessKeyId")
    with Cluster(config) as archive, pytest.raises(AccessRefused, match="source archive at s3://"):
        archive.refresh()


def test_offset_in_the_name_of_an_object_is_no_status(url: str, store: FailingStore) -> None:
    archive = Archive.open(url, creates=True)
    store.fault = lambda request: Answer(409, "OperationAborted")
    with pytest.raises(Disconnected):
        archive.store.write("topics/AccessDenied/00000000000000000403.1-1.json", b"{}")


def test_time_that_only_markers_of_many_objects_have_downloads_each_once(
    url: str, store: FailingStore, tmp_path: Path
) -> None:
    """Old records in transactions: only the markers are new."""
    archive, objects = new_archive(url), 6
    for number in range(objects):
        begin = 3 * number
        records = batches.batch(
            [b"a", b"b"], base_offset=begin, base_timestamp=1_000, producer_id=7, flags=batches.TRANSACTIONAL
        )
        add(archive, bytes(records) + batches.marker(1, 7, base_offset=begin + 2), tmp_path, offset=begin)
    add(archive, plain(2, base_offset=3 * objects, timestamp=10**14), tmp_path, offset=3 * objects)
    downloaded: Counter[str] = Counter()

    def count(request: Request) -> None:
        if request.method == "GET" and request.key.endswith(".log"):
            downloaded[request.key] += 1

    store.fault = count
    assert looked_up(reader_of(archive), 2_000) == (3 * objects, 10**14)
    assert set(downloaded.values()) == {1}


def looked_up(reader: PartitionReader, timestamp_ms: int) -> tuple[int, int] | None:
    """Ask again, as a client does, until the offset of a time is there."""
    while True:
        try:
            return reader.offset_at(timestamp_ms, 2**20)
        except BeingDownloaded as pending:
            downloads.wait_for_any([pending.address], 10.0)
