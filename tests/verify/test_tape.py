"""A reading that another one begins with: the same digests, and nothing is fetched twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import islice

import pytest

from shoal.client.cluster import Cluster
from shoal.client.config import IsolationLevel
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError
from shoal.mirroring.model.copy_options import CopyOptions
from shoal.protocol.apis import ApiKey
from shoal.records import Codec
from shoal.topic_partition import TopicPartition
from shoal.verify import Outcome, Side, reading, tape
from shoal.verify.digest import Digest
from shoal.verify.reading import LogReader
from tests import batches
from tests.two_brokers import ABORT, COMMIT, History, TwoBrokers, batches_of
from tests.verifying import partition


@pytest.fixture(autouse=True)
def small_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each fetch bring a few batches."""
    monkeypatch.setattr(reading, "BUFFER_BYTES", 80_000)
    monkeypatch.setattr("shoal.client.fetch.SMALLEST_PARTITION_MAX_BYTES", 1000)


def new_reader(cluster: Cluster) -> LogReader:
    return LogReader(
        Side.SOURCE,
        cluster,
        TopicPartition("topic", 0),
        IsolationLevel.READ_COMMITTED,
        patience_s=0.5,
        stop=threading.Event(),
        options=CopyOptions(),
    )


@pytest.fixture
def cluster(brokers: TwoBrokers, history: History) -> Iterator[Cluster]:
    history.plain(3, 2, 4).transaction(2, ends=COMMIT).gap(3).plain(1, 5).transaction(2, ends=ABORT)
    history.holed(6, [1, 3]).empty(2).plain(2, 3)
    inner = [batches.message(1, offset=offset) for offset in range(3)]
    history.store(batches.wrapper(1, Codec.GZIP, inner, offset=history.next_offset + 2))
    history.plain(4)
    with Cluster(brokers.settings.source) as found:
        found.refresh(["topic"])
        yield found


def digests(reader: LogReader, start: int, end: int) -> list[Digest]:
    return list(reader.digests(start, end, crop_at=start))


@pytest.mark.parametrize("kept", [0, 1, 4, 100])
@pytest.mark.parametrize("most", [0, 5, 1000])
def test_reading_from_a_kept_place_has_the_digests_of_a_new_reading(
    cluster: Cluster, history: History, monkeypatch: pytest.MonkeyPatch, kept: int, most: int
) -> None:
    monkeypatch.setattr(tape, "MOST_BATCHES", most)
    end = history.next_offset
    for start in range(end):
        with closing(new_reader(cluster)) as again, closing(new_reader(cluster)) as fresh:
            with closing(again.digests(0, end, crop_at=0)) as first:
                list(islice(first, kept))
            # Only offsets that no batch has may differ: there, markers are not told from gaps.
            expected = digests(fresh, start, end)
            found = digests(again, start, end)
            assert [each._replace(gap_before=0) for each in found] == [
                each._replace(gap_before=0) for each in expected
            ]
            assert [each.gap_before for each in found[1:]] == [each.gap_before for each in expected[1:]]


def test_two_readings_by_turns_have_the_same_digests(cluster: Cluster, history: History) -> None:
    end = history.next_offset
    with closing(new_reader(cluster)) as reader:
        pairs = zip(reader.digests(0, end), reader.digests(0, end), strict=True)
        assert all(one == other for one, other in pairs)
        assert reader.bytes_read == sum(len(each.view) for each in batches_of(history.log))


def test_reading_after_an_error_goes_on_at_the_kept_end(
    cluster: Cluster, brokers: TwoBrokers, history: History
) -> None:
    end = history.next_offset
    with closing(new_reader(cluster)) as reader:
        found = reader.digests(0, end)
        first = next(found)
        denied = brokers.source.faults.add(ApiKey.FETCH, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        reader.forget()
        with pytest.raises(BrokerError):
            list(reader.digests(0, end))
        assert denied.hits == 1
        assert digests(reader, 0, end)[0] == first


# The beginning of both sides


@pytest.mark.parametrize("begin", [0, 250])
def test_verify_by_content_reads_no_more_than_by_the_position(
    brokers: TwoBrokers, history: History, begin: int
) -> None:
    for number in range(600):
        history.base_timestamp += 1000
        value = number.to_bytes(4) * 500
        history.store(batches.batch([value], base_offset=number, base_timestamp=history.base_timestamp))
    brokers.run([each._replace(start_offset=begin) for each in brokers.ranges()])
    by_position, by_content = partition(brokers), partition(brokers, group="none")
    for report in (by_position, by_content):
        assert (report.outcome, report.records) == (Outcome.EQUAL, 600 - begin)
    # The records before a later start are read once, to see that they are before it. A fetch ends within a
    # batch, which is fetched again: 16 % here.
    before = sum(len(each.view) for each in batches_of(history.log)[:begin])
    assert by_content.bytes_read <= by_position.bytes_read + 1.2 * before
