"""A store that answers 503 for a while, delays, cuts connections and lists late."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator

import pytest

from shoal.archive.directory import Archive
from shoal.archive.store import open_store
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.errors import AccessRefused, ConfigError, Disconnected, ShoalError
from shoal.verify import Outcome
from tests.archive.archiving import Archiving, stored
from tests.archive.failing_store import Answer, FailingStore, Fault, Request
from tests.world.source import SourcePartition


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
    archive = Archive.create(url)
    answer, error, remedy = REFUSALS[kind]
    store.fault = lambda request: answer
    with pytest.raises(error, match=f"topics/orders.*{remedy}") as raised:
        archive.store.write("topics/orders", b"{}")
    assert store.endpoint not in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", REFUSALS)
def test_refusal_at_the_start_is_no_reason_to_wait(url: str, store: FailingStore, kind: str) -> None:
    answer, _, _ = REFUSALS[kind]
    store.fault = lambda request: answer
    with pytest.raises((AccessRefused, ConfigError), match="s3://"):
        open_store(url)


def test_refused_keys_of_the_properties_name_the_directory(url: str, store: FailingStore) -> None:
    keys = {"s3.access.key": "AKIA", "s3.secret.key": "hidden"}
    config = ClientConfig.given("source", {"bootstrap.servers": url, **keys}, None)
    store.fault = lambda request: Answer(403, "InvalidAccessKeyId")
    with Cluster(config) as archive, pytest.raises(AccessRefused, match="source archive at s3://"):
        archive.refresh()


def test_offset_in_the_name_of_an_object_is_no_status(url: str, store: FailingStore) -> None:
    archive = Archive.create(url)
    store.fault = lambda request: Answer(409, "OperationAborted")
    with pytest.raises(Disconnected):
        archive.store.write("topics/AccessDenied/00000000000000000403.1-1.json", b"{}")
