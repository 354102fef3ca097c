"""Real Kafka clusters that all integration tests of a run share: two, one with logins, and an old one.

If Kafka cannot be fetched or started, these fixtures fail; they never skip. If a test kills or
restarts brokers, it starts its own cluster (`rig.KafkaCluster`).
"""

import re
from collections.abc import Iterator
from itertools import count

import pytest

from rig import KafkaCluster, OldKafka, two_clusters
from rig.locked import LockedKafka, locked_kafka

_numbers = count()


@pytest.fixture(scope="session")
def both_clusters() -> Iterator[tuple[KafkaCluster, KafkaCluster]]:
    with two_clusters() as position:
        yield position


@pytest.fixture(scope="session")
def source_cluster(both_clusters: tuple[KafkaCluster, KafkaCluster]) -> KafkaCluster:
    return both_clusters[0]


@pytest.fixture(scope="session")
def destination_cluster(both_clusters: tuple[KafkaCluster, KafkaCluster]) -> KafkaCluster:
    return both_clusters[1]


@pytest.fixture(scope="session")
def locked_cluster() -> Iterator[LockedKafka]:
    """A cluster with logins and ACLs, for tests whose ACLs name their own topics or are removed."""
    with locked_kafka() as running:
        yield running


@pytest.fixture(scope="session")
def old_kafka() -> Iterator[OldKafka]:
    """A broker that writes messages of magic 0 and 1."""
    with OldKafka() as kafka:
        yield kafka


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name for this test only; the topic is not created."""
    name = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)
    return f"{name[:100]}-{next(_numbers)}"
