"""A mirror that shares its group assigns partitions to its tasks, and revokes them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal.client.coordinator import MemberId
from shoal.mirroring.control import ControlConnection, ControlServer
from shoal.mirroring.driver.schedule import PartitionSchedule
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.mirroring.prepare.changes import PreparedTopic
from shoal.topic_partition import TopicPartition
from tests.metrics_fed import FIRST, SECOND, report

TOPIC = PreparedTopic("topic", "topic", 3)
PARTITION = TopicPartition("topic", 0)


class Driver:
    """The driver of a mirror that has the partitions that :attr:`work` says."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.work = PartitionSchedule({}, self.metrics, shares=True)
        self.server = ControlServer("127.0.0.1", "secret", self.work)
        self.server.renew(MemberId(), 60.0)

    def connect(self) -> ControlConnection:
        return ControlConnection(self.server.address, "secret")


@pytest.fixture
def driver() -> Iterator[Driver]:
    started = Driver()
    yield started
    started.server.close()


def test_schedule_reports_that_there_is_news(driver: Driver) -> None:
    news: list[int] = []
    driver.work.on_news = lambda: news.append(1)
    driver.work.take({"topic": TOPIC}, [PARTITION])
    driver.work.try_again([PARTITION])
    driver.work.add(TOPIC)
    assert len(news) == 3


def test_revoked_partitions_are_not_counted_but_their_records_are() -> None:
    metrics = Metrics()
    metrics.apply(report())
    metrics.apply(report(SECOND, waiting_for="somebody"))
    before = metrics.progress()
    metrics.forget([SECOND])
    after = metrics.progress()
    assert (before.partitions, after.partitions) == (2, 1)
    assert (list(before.waiting), list(after.waiting)) == (["topic-1"], [])
    assert after.records == before.records
    assert after.lag_records == before.lag_records / 2
    metrics.forget([SECOND])
    assert metrics.progress().partitions == 1
    metrics.forget([FIRST])
    assert (metrics.progress().lag_records, metrics.progress().lag_s) == (0, None)
