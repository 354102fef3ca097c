"""Preparing a mirror, against embedded brokers that refuse on demand (real ones: tests/integration)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from shoal.broker import Broker
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.errors import BrokerError, ConfigError, Disconnected, ErrorCode
from shoal.mirroring.options import MirrorOptions
from shoal.mirroring.prepare import DEFAULT_PRODUCER_ID_EXPIRATION_MS, Prepared, prepare
from shoal.mirroring.topics import TopicSelection
from shoal.protocol.apis import ApiKey

NOT_ALLOWED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@dataclass
class Sides:
    source: Broker
    destination: Broker

    def prepare(
        self, topics: str, rename: str | None = None, patience_s: float = 10.0, **changes: object
    ) -> Prepared:
        options = MirrorOptions(
            config_of("source", self.source),
            config_of("destination", self.destination),
            TopicSelection(topics, rename=rename),
        )
        options = replace(options, **changes)  # type: ignore[arg-type]
        with Cluster(options.source) as source, Cluster(options.destination) as destination:
            return prepare(options, source, destination, patience_s=patience_s)


def config_of(name: str, broker: Broker) -> ClientConfig:
    config, _ = ClientConfig.from_properties(name, {"bootstrap.servers": broker.bootstrap})
    return config


@pytest.fixture
def sides() -> Iterator[Sides]:
    with Broker() as source, Broker(config={"producer.id.expiration.ms": "5000"}) as destination:
        yield Sides(source, destination)


def test_missing_topics_are_created_under_their_new_names(sides: Sides) -> None:
    sides.source.create_topic("a", partitions=3)
    sides.source.create_topic("b")
    prepared = sides.prepare(".*", rename=r"(.*)=west.\1")
    assert prepared.names == {"a": "west.a", "b": "west.b"}
    assert all(topic.created for topic in prepared.topics.values())
    assert [topic.partitions for topic in prepared.topics.values()] == [3, 1]
    assert prepared.warnings == ()


def test_the_destination_tells_how_long_it_remembers_a_producer_id(sides: Sides) -> None:
    sides.source.create_topic("a")
    assert sides.prepare("a").producer_id_expiration_ms == 5000


def test_the_group_is_named_after_both_clusters_or_as_the_user_says(sides: Sides) -> None:
    sides.source.create_topic("a")
    assert sides.prepare("a").group == f"shoal.{sides.source.cluster_id}.{sides.destination.cluster_id}"
    assert sides.prepare("a", group="mine").group == "mine"


def test_what_may_not_be_described_at_the_source_is_not_created(sides: Sides) -> None:
    sides.source.create_topic("a")
    sides.source.faults.add(ApiKey.DESCRIBE_CONFIGS, times=None, error=NOT_ALLOWED)
    with pytest.raises(ConfigError, match=r"topic a does not exist on the destination .* DESCRIBE_CONFIGS"):
        sides.prepare("a")


@pytest.mark.parametrize("side", ["source", "destination"])
def test_what_may_not_be_described_is_not_compared_and_said_so(sides: Sides, side: str) -> None:
    for broker in (sides.source, sides.destination):
        broker.create_topic("a")
    broker = getattr(sides, side)
    broker.faults.add(ApiKey.DESCRIBE_CONFIGS, times=None, error=NOT_ALLOWED)
    prepared = sides.prepare("a")
    (warning,) = prepared.warnings
    assert warning.startswith(f"topic a of the {side} cluster at {broker.bootstrap} may not be described")
    assert list(prepared.topics) == ["a"]


def test_without_a_look_at_the_brokers_their_default_is_assumed(sides: Sides) -> None:
    for broker in (sides.source, sides.destination):
        broker.create_topic("a")
    sides.destination.faults.add(ApiKey.DESCRIBE_CONFIGS, times=None, error=NOT_ALLOWED)
    assert sides.prepare("a").producer_id_expiration_ms == DEFAULT_PRODUCER_ID_EXPIRATION_MS


def test_a_refused_creation_is_told_with_the_way_out(sides: Sides) -> None:
    sides.source.create_topic("a", partitions=2)
    sides.destination.faults.add(ApiKey.CREATE_TOPICS, error=ErrorCode.POLICY_VIOLATION)
    with pytest.raises(
        ConfigError, match=r"creating topic a on .*POLICY_VIOLATION.* yourself with 2 partitions"
    ):
        sides.prepare("a")


def test_what_time_can_heal_is_tried_again(sides: Sides) -> None:
    sides.source.create_topic("a")
    sides.source.faults.add(ApiKey.DESCRIBE_CONFIGS, error=ErrorCode.LEADER_NOT_AVAILABLE)
    sides.destination.faults.add(ApiKey.CREATE_TOPICS, error=ErrorCode.NOT_CONTROLLER)
    assert sides.prepare("a").topics["a"].created


def test_a_creation_whose_answer_was_lost_is_found_to_be_done(sides: Sides) -> None:
    sides.source.create_topic("a")
    sides.destination.faults.add(ApiKey.CREATE_TOPICS, drop="after")
    assert sides.prepare("a").names == {"a": "a"}


def test_patience_ends(sides: Sides) -> None:
    sides.source.create_topic("a")
    sides.destination.faults.add(ApiKey.CREATE_TOPICS, times=None, error=ErrorCode.NOT_CONTROLLER)
    with pytest.raises(BrokerError, match=r"creating topic a on .*NOT_CONTROLLER"):
        sides.prepare("a", patience_s=0.2)


@pytest.mark.parametrize("side", ["source", "destination"])
def test_a_cluster_that_does_not_answer_is_named(sides: Sides, side: str) -> None:
    sides.source.create_topic("a")
    broker = getattr(sides, side)
    broker.stop()
    with pytest.raises(Disconnected, match=f"the {side} cluster at {broker.bootstrap} does not answer"):
        sides.prepare("a")


def test_many_topics_with_the_same_trouble_are_not_all_named(sides: Sides) -> None:
    for number in range(7):
        sides.source.create_topic(f"a{number}")
        sides.destination.create_topic(f"a{number}", config={"compression.type": "lz4"})
    (warning,) = sides.prepare("a.+").warnings
    assert warning.startswith("topics a0, a1, a2, a3, a4 and 2 more on the destination cluster")
