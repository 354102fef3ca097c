"""Configurations follow their topics while a mirror runs; ACLs are in tests/integration/test_sync_acls.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import pytest

from shoal.client.admin import alter_topic_configs, describe_topic_configs
from shoal.client.cluster import Cluster
from shoal.declare import given
from shoal.errors import ConfigError, Stopped
from shoal.mirroring.driver.following import Following, compare_followers
from shoal.mirroring.driver.lookout import Lookout
from shoal.mirroring.driver.schedule import PartitionSchedule
from shoal.mirroring.model.follow_options import Follower, FollowOptions, Sync
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.mirroring.prepare.changes import PreparedTopic
from shoal.protocol.apis import ApiKey
from shoal.timing import Timing
from tests.running_mirror import running
from tests.world.clusters import TwoBrokers
from tests.world.waiting import wait_until

RETENTION = {"retention.ms": "1000000"}


@dataclass
class Said:
    """The sentences of a mirror, and the registry of its page."""

    warnings: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    metrics: Metrics = field(default_factory=Metrics)

    @property
    def differing(self) -> int | None:
        done = self.metrics.followed.get(Follower.CONFIGS)
        return done.differing if done else None


@contextmanager
def following(brokers: TwoBrokers, **wanted: Any) -> Iterator[tuple[Following, Lookout, Said]]:
    mirror = replace(
        brokers.options("orders"), refresh_s=0.05, timing=Timing(shortest_refresh_s=0.05), **wanted
    )
    said = Said()
    schedule = PartitionSchedule({"orders": PreparedTopic("orders", "copy", 1)}, said.metrics)
    parts = running(mirror, schedule, said.metrics, warn=said.warnings.append, notify=said.notices.append)
    watch = Following(parts)
    yield watch, Lookout(parts, watch), said


@pytest.fixture
def topics(brokers: TwoBrokers) -> None:
    brokers.source.create_topic("orders", 1)
    brokers.destination.create_topic("copy", 1)


def set_at_source(brokers: TwoBrokers, configs: Mapping[str, str | None]) -> None:
    with Cluster(brokers.settings.source) as source:
        assert alter_topic_configs(source, {"orders": configs}) == {}


def retention_of_copy(brokers: TwoBrokers) -> str | None:
    with Cluster(brokers.settings.destination) as destination:
        return describe_topic_configs(destination, ["copy"])["copy"]["retention.ms"].value


@pytest.mark.usefixtures("topics")
def test_changed_configuration_follows_while_the_mirror_runs(brokers: TwoBrokers) -> None:
    with following(brokers, sync="configs") as (_, lookout, said), lookout:
        set_at_source(brokers, RETENTION)
        wait_until(lambda: retention_of_copy(brokers) == "1000000")
        wait_until(lambda: said.differing == 0)
        set_at_source(brokers, {"retention.ms": None})
        wait_until(lambda: retention_of_copy(brokers) == "604800000")
    assert said.warnings == []
    assert said.notices[0].startswith("topic copy: retention.ms=1000000")


@pytest.mark.usefixtures("topics")
def test_difference_without_sync_is_counted_and_stays(brokers: TwoBrokers) -> None:
    set_at_source(brokers, RETENTION)
    with following(brokers) as (watch, _, said):
        watch.look_at_once()
    assert retention_of_copy(brokers) == "604800000"
    assert (said.differing, said.warnings, said.notices) == (1, [], [])
    done = said.metrics.followed[Follower.CONFIGS]
    (sentence,) = done.sentences
    assert sentence.startswith("topic copy: retention.ms=1000000")
    assert not done.is_synced


@pytest.mark.usefixtures("topics")
def test_look_that_compares_nothing_asks_for_nothing(brokers: TwoBrokers) -> None:
    """Every five minutes is enough if no option asks, and the mirror looks more often for other things."""
    with (
        following(brokers) as (watch, _, said),
        Cluster(brokers.settings.source) as source,
        Cluster(brokers.settings.destination) as destination,
    ):
        watch.look_at_once()
        assert said.differing == 0
        both = brokers.source, brokers.destination
        asked = [each.faults.add(ApiKey.METADATA, times=None) for each in both]
        watch.look(source, destination)
        assert [each.hits for each in asked] == [0, 0]


@pytest.mark.usefixtures("topics")
def test_look_that_a_signal_ends_warns_of_nothing(
    brokers: TwoBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> NoReturn:
        raise Stopped("the mirror was stopped before it began")

    monkeypatch.setattr("shoal.mirroring.driver.following.follow_configs", interrupt)
    with following(brokers, sync="configs") as (watch, _, said), pytest.raises(Stopped):
        watch.look_at_once()
    assert said.warnings == []


@pytest.mark.usefixtures("topics")
def test_topic_that_one_cluster_lacks_is_not_compared(brokers: TwoBrokers) -> None:
    brokers.destination.topics.delete(brokers.destination.topics.topic("copy"))
    with following(brokers, sync="configs") as (watch, _, said):
        watch.look_at_once()
    assert (said.differing, said.warnings) == (None, [])


@pytest.mark.usefixtures("topics")
def test_comparison_names_each_difference_and_changes_nothing(brokers: TwoBrokers) -> None:
    set_at_source(brokers, RETENTION)
    options = brokers.options("orders", sync=frozenset({Sync.CONFIGS}))
    with Cluster(options.source) as source, Cluster(options.destination) as destination:
        found = compare_followers(options, "group", source, destination, {"orders": "copy"})
        assert next(found).startswith("topic copy: retention.ms=1000000")
    assert retention_of_copy(brokers) == "604800000"


def test_unknown_kind_of_sync_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"--sync: 'write'.*configs, acls, all-acls"):
        given(FollowOptions, {"sync": "configs,write"})
