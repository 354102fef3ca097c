"""Topics and partitions that come into being while a mirror runs are prepared, each by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from shoal.client.cluster import Cluster
from shoal.error_codes import ErrorCode
from shoal.errors import ConfigError
from shoal.mirroring.driver.lookout import Discovery, Lookout, refuse_more_partitions
from shoal.mirroring.driver.schedule import PartitionSchedule
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.topics import TopicSelection
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.mirroring.prepare.changes import Prepared, PreparedTopic
from shoal.mirroring.prepare.create import prepare
from shoal.protocol.apis import ApiKey
from shoal.timing import Timing
from tests.running_mirror import running
from tests.world.clusters import TwoBrokers
from tests.world.waiting import wait_until


@dataclass
class Found:
    topics: list[PreparedTopic] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def partitions(self) -> dict[str, int]:
        return {topic.source: topic.partitions for topic in self.topics}


@contextmanager
def discovering(
    brokers: TwoBrokers, held_up: Any = None, metrics: Metrics | None = None, **changes: Any
) -> Iterator[Found]:
    wanted: dict[str, Any] = {
        "topics": TopicSelection("orders.*"),
        "group": "mirror",
        "refresh_s": 0.05,
        "timing": Timing(shortest_refresh_s=0.05),
    }
    mirror = replace(
        MirrorOptions(brokers.settings.source, brokers.settings.destination, wanted.pop("topics")),
        **(wanted | changes),
    )
    with Cluster(mirror.source) as source, Cluster(mirror.destination) as destination:
        prepared = prepare(mirror, source, destination)
    found = Found()
    topics = dict(prepared.topics)
    metrics = metrics or Metrics()
    schedule = PartitionSchedule(topics, metrics)
    if held_up is not None:
        schedule.held_up = held_up  # type: ignore[method-assign]
    parts = running(mirror, schedule, metrics, warn=found.warnings.append)
    with Lookout(parts, Discovery(parts, found.topics.append)):
        yield found


@pytest.fixture
def orders(brokers: TwoBrokers) -> None:
    brokers.source.create_topic("orders", 2)


@pytest.mark.usefixtures("orders")
def test_recreated_topic_is_reported(brokers: TwoBrokers) -> None:
    looked: list[None] = []

    def held_up() -> tuple[()]:
        looked.append(None)
        return ()

    with discovering(brokers, held_up) as found:
        brokers.source.topics.delete(brokers.source.topics.topic("orders"))
        looks = len(looked)
        wait_until(lambda: len(looked) > looks + 1)
        brokers.source.create_topic("orders", 2)
        wait_until(lambda: found.partitions == {"orders": 2})


@pytest.mark.usefixtures("orders")
def test_refused_topic_warns_once_and_does_not_affect_others(brokers: TwoBrokers) -> None:
    with discovering(brokers) as found:
        refused = brokers.destination.faults.add(
            ApiKey.CREATE_TOPICS, times=None, error=ErrorCode.POLICY_VIOLATION, topic="orders-bad"
        )
        brokers.source.create_topic("orders-bad", 1)
        assert brokers.destination.faults.wait_for(refused, 3)  # it is tried again
        brokers.source.create_topic("orders-good", 1)
        wait_until(lambda: "orders-good" in found.partitions)
        brokers.destination.faults.clear()
        wait_until(lambda: "orders-bad" in found.partitions)
    (warning,) = found.warnings
    assert all(each in warning for each in ("orders-bad", "POLICY_VIOLATION"))
    assert "kafka-acls" not in warning


@pytest.mark.usefixtures("orders")
def test_topic_with_the_destination_name_of_another_is_skipped(brokers: TwoBrokers) -> None:
    selection = TopicSelection("orders.*", rename=r"orders.*=orders-copy")
    with discovering(brokers, topics=selection) as found:
        brokers.source.create_topic("orders-new", 1)
        wait_until(lambda: bool(found.warnings))
    assert all(each in found.warnings[0] for each in ("orders-new", "orders-copy", "that of orders"))
    assert not found.topics


@pytest.mark.parametrize("name", ["orders", "__audit.log", "mm2-offsets.west.internal"])
def test_new_partitions_of_a_topic_are_found_whatever_its_name(brokers: TwoBrokers, name: str) -> None:
    brokers.source.create_topic(name, 1)
    with discovering(brokers, topics=TopicSelection(name)) as found:
        brokers.source.topics.grow(brokers.source.topics.topic(name), 2)
        wait_until(lambda: bool(found.partitions) or any("not mirrored" in each for each in found.warnings))
    assert found.partitions == {name: 2}


@pytest.mark.usefixtures("orders")
def test_topic_whose_copy_would_have_an_illegal_name_does_not_affect_others(brokers: TwoBrokers) -> None:
    with discovering(brokers, topics=TopicSelection("orders.*", rename=r"orders-(.*)=\1")) as found:
        brokers.source.create_topic("orders-..", 1)
        brokers.source.create_topic("orders-good", 1)
        wait_until(lambda: "orders-good" in found.partitions)
    (warning,) = found.warnings
    assert warning.startswith("topic orders-.. is not mirrored: --rename ")


@pytest.mark.usefixtures("orders")
def test_silent_source_is_asked_again(brokers: TwoBrokers) -> None:
    with discovering(brokers) as found:
        lost = brokers.source.faults.add(ApiKey.METADATA, times=5, drop="before")
        brokers.source.create_topic("orders-new", 1)
        assert brokers.source.faults.wait_for(lost, 5)
        wait_until(lambda: "orders-new" in found.partitions)
    assert found.warnings == []


@pytest.mark.usefixtures("orders")
def test_warning_of_too_many_partitions_has_the_largest_topics_and_the_bounds(brokers: TwoBrokers) -> None:
    with discovering(brokers, max_new_partitions=1) as found:
        for name, size in (("a", 2), ("b", 9), ("c", 1), ("d", 1)):
            brokers.source.create_topic(f"orders-{name}", size)
        wait_until(lambda: any("13 new partitions" in each for each in found.warnings))
    warning = next(each for each in found.warnings if "13 new partitions" in each)
    expected = "(orders-b: 9, orders-a: 2, orders-c: 1 and 1 more)"
    assert all(each in warning for each in (expected, "1 a look", "10 since", "(--max-new-partitions)"))


@pytest.mark.usefixtures("orders")
def test_bound_since_the_start_is_ten_times_that_of_a_look(brokers: TwoBrokers) -> None:
    with discovering(brokers, max_new_partitions=1) as found:
        for number in range(3, 13):
            brokers.source.topics.grow(brokers.source.topics.topic("orders"), number)
            wait_until(lambda: found.partitions.get("orders") == number)  # noqa: B023
        brokers.source.topics.grow(brokers.source.topics.topic("orders"), 13)
        wait_until(lambda: any(" 0 are left" in each for each in found.warnings))
    assert len(brokers.destination.topics.topic("orders").logs) == 12


def test_partitions_that_came_since_the_look_are_refused() -> None:
    topic = PreparedTopic("orders", "orders", 5, present_partitions=2)
    changes = Prepared("mirror", None, None, {"orders": topic}, (), 0)
    refuse_more_partitions(changes, {"orders": 5})
    with pytest.raises(ConfigError, match=r"orders.* 3 .* 5 "):
        refuse_more_partitions(changes, {"orders": 3})


@pytest.mark.usefixtures("orders")
def test_topic_without_acls_warns_with_the_commands_that_grant_them(brokers: TwoBrokers) -> None:
    with discovering(brokers) as found:
        brokers.destination.faults.add(
            ApiKey.CREATE_TOPICS, times=None, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic="orders-new"
        )
        brokers.source.create_topic("orders-new", 1)
        wait_until(lambda: bool(found.warnings))
    _, _, commands = found.warnings[0].partition(". As an administrator: ")
    source, destination = commands.split(" && ")
    assert f"--bootstrap-server {brokers.source.bootstrap} --add" in source
    assert all(f"--operation {each}" in source for each in ("Read", "DescribeConfigs"))
    assert f"--bootstrap-server {brokers.destination.bootstrap} --add" in destination
    assert "--operation Write" in destination
    assert "--operation Create" in destination
    for command in (source, destination):
        assert "--topic orders " in command
        assert command.endswith("--resource-pattern-type prefixed")
