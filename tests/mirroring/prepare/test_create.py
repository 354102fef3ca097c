"""Preparing a mirror, against embedded brokers that refuse on demand (real ones: tests/integration)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError, ConfigError, Disconnected
from shoal.mirroring.model.copy_options import DEFAULT_PRODUCER_ID_EXPIRATION_MS
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.topics import TopicSelection
from shoal.mirroring.prepare.changes import Prepared
from shoal.mirroring.prepare.create import prepare
from shoal.mirroring.prepare.inspect import inspect_topics
from shoal.protocol.apis import ApiKey
from shoal.timing import DEFAULT_TIMING, Timing
from shoal_broker import Broker

NOT_ALLOWED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _names(prepared: Prepared) -> dict[str, str]:
    return {name: topic.destination for name, topic in prepared.topics.items()}


@dataclass
class Sides:
    source: Broker
    destination: Broker
    timing: Timing = DEFAULT_TIMING

    def prepare(self, topics: str, rename: str | None = None, **changes: Any) -> Prepared:
        options = self._options(topics, rename, **changes)
        with Cluster(options.source) as source, Cluster(options.destination) as destination:
            return prepare(options, source, destination)

    def inspect(self, topics: str, rename: str | None = None, **changes: Any) -> Prepared:
        options = self._options(topics, rename, **changes)
        with Cluster(options.source) as source, Cluster(options.destination) as destination:
            return inspect_topics(options, source, destination)

    def _options(self, topics: str, rename: str | None, **changes: Any) -> MirrorOptions:
        options = MirrorOptions(
            config_of("source", self.source, self.timing),
            config_of("destination", self.destination, self.timing),
            TopicSelection(topics, rename=rename),
        )
        return replace(options, **changes)


def config_of(name: str, broker: Broker, timing: Timing = DEFAULT_TIMING) -> ClientConfig:
    config, _ = ClientConfig.from_properties(name, {"bootstrap.servers": broker.bootstrap})
    return replace(config, timing=timing)


@pytest.fixture
def sides() -> Iterator[Sides]:
    with Broker() as source, Broker(config={"producer.id.expiration.ms": "5000"}) as destination:
        yield Sides(source, destination)


def test_topic_undescribable_at_the_source_is_not_created(sides: Sides) -> None:
    sides.source.create_topic("a")
    sides.source.faults.add(ApiKey.DESCRIBE_CONFIGS, times=None, error=NOT_ALLOWED)
    with pytest.raises(ConfigError, match="DESCRIBE_CONFIGS"):
        sides.prepare("a")


@pytest.mark.parametrize("side", ["source", "destination"])
def test_topic_undescribable_on_one_side_warns_and_is_not_compared(sides: Sides, side: str) -> None:
    for broker in (sides.source, sides.destination):
        broker.create_topic("a")
    broker = getattr(sides, side)
    broker.faults.add(ApiKey.DESCRIBE_CONFIGS, times=None, error=NOT_ALLOWED)
    prepared = sides.prepare("a")
    *others, warning = prepared.warnings
    assert all(each in warning for each in ("topic a of", side, broker.bootstrap, "described"))
    if side == "destination":
        assert all(each in others[0] for each in ("the brokers of", side, broker.bootstrap))
    assert list(prepared.topics) == ["a"]


def test_undescribable_broker_setting_is_assumed_default(sides: Sides) -> None:
    for broker in (sides.source, sides.destination):
        broker.create_topic("a")
    sides.destination.faults.add(ApiKey.DESCRIBE_CONFIGS, times=None, error=NOT_ALLOWED)
    assert sides.prepare("a").producer_id_expiration_ms == DEFAULT_PRODUCER_ID_EXPIRATION_MS


def test_refused_creation_is_reported_with_a_remedy(sides: Sides) -> None:
    sides.source.create_topic("a", partitions=2)
    sides.destination.faults.add(ApiKey.CREATE_TOPICS, error=ErrorCode.POLICY_VIOLATION)
    with pytest.raises(ConfigError, match=r"POLICY_VIOLATION.*2"):
        sides.prepare("a")


def test_transient_errors_are_retried(sides: Sides) -> None:
    sides.source.create_topic("a")
    sides.source.faults.add(ApiKey.DESCRIBE_CONFIGS, error=ErrorCode.LEADER_NOT_AVAILABLE)
    sides.destination.faults.add(ApiKey.CREATE_TOPICS, error=ErrorCode.NOT_CONTROLLER)
    assert sides.prepare("a").topics["a"].creation is not None


def test_creation_with_lost_response_is_found_done(sides: Sides) -> None:
    sides.source.create_topic("a")
    sides.destination.faults.add(ApiKey.CREATE_TOPICS, delay_s=0.001)  # the one that only validates
    lost = sides.destination.faults.add(ApiKey.CREATE_TOPICS, drop="after")
    assert _names(sides.prepare("a")) == {"a": "a"}
    assert lost.hits == 1


def test_preparation_ends_after_its_patience(sides: Sides) -> None:
    sides.source.create_topic("a")
    sides.destination.faults.add(ApiKey.CREATE_TOPICS, times=None, error=ErrorCode.NOT_CONTROLLER)
    with pytest.raises(BrokerError, match=r"NOT_CONTROLLER"):
        replace(sides, timing=Timing(patience_s=0.2)).prepare("a")


@pytest.mark.parametrize("side", ["source", "destination"])
def test_unreachable_cluster_is_named(sides: Sides, side: str) -> None:
    sides.source.create_topic("a")
    broker = getattr(sides, side)
    broker.stop()
    with pytest.raises(Disconnected, match=rf"{side}.*{broker.bootstrap}"):
        sides.prepare("a")


def test_topics_with_one_problem_are_counted_after_the_first(sides: Sides) -> None:
    for number in range(7):
        sides.source.create_topic(f"a{number}")
        sides.destination.create_topic(f"a{number}", config={"compression.type": "lz4"})
    (warning,) = sides.prepare("a.+").warnings
    assert re.search(r"a0, a1, a2, a3, a4 and 2\b", warning)


def test_missing_partitions_are_added_and_reported(sides: Sides) -> None:
    sides.source.create_topic("a", partitions=3)
    sides.destination.create_topic("a", partitions=1)
    prepared = sides.prepare("a")
    assert prepared.topics["a"].creation is None
    (warning,) = prepared.warnings
    assert all(each in warning for each in ("topic a on", "fewer partitions", "added"))
    assert len(sides.destination.topics.topic("a").logs) == 3
    assert sides.prepare("a").warnings == ()


def test_refused_partitions_are_reported_before_any_creation(sides: Sides) -> None:
    sides.source.create_topic("a", partitions=3)
    sides.source.create_topic("b")
    sides.destination.create_topic("a", partitions=1)
    sides.destination.faults.add(ApiKey.CREATE_PARTITIONS, times=None, error=NOT_ALLOWED)
    with pytest.raises(ConfigError, match=r"1.*partitions.*3.*ALTER.*3\)"):
        sides.prepare("a,b")
    assert [topic.name for topic in sides.destination.topics] == ["a"]


def test_partitions_added_concurrently_are_accepted(sides: Sides) -> None:
    sides.source.create_topic("a", partitions=2)
    sides.destination.create_topic("a", partitions=1)
    sides.destination.faults.add(ApiKey.CREATE_PARTITIONS, delay_s=0.001)  # the one that only validates
    lost = sides.destination.faults.add(ApiKey.CREATE_PARTITIONS, drop="after")
    assert sides.prepare("a").topics["a"].partitions == 2
    assert lost.hits == 1


def test_unsuitable_existing_topic_prevents_any_creation(sides: Sides) -> None:
    sides.source.create_topic("a")
    sides.source.create_topic("b")
    sides.destination.create_topic("b", config={"max.message.bytes": "1000"})
    with pytest.raises(ConfigError, match=r"\bb\b.*max\.message\.bytes.*\b1000\b"):
        sides.prepare("a,b")
    assert [topic.name for topic in sides.destination.topics] == ["b"]


@pytest.mark.parametrize(
    ("topics", "rename"), [("a", "a=b"), ("(a.*)", r"(.*)=west.\1"), ("[^.]*", r"(.*)=west.\1")]
)
def test_mirror_into_the_same_cluster_with_separating_rename_is_allowed(
    sides: Sides, topics: str, rename: str
) -> None:
    sides.destination = sides.source
    sides.source.create_topic("a")
    for _ in range(2):
        (copy,) = _names(sides.prepare(topics, rename)).values()
        assert copy in ("b", "west.a")
