"""A broker with topics, and a client's view of it."""

from collections.abc import Iterator

import pytest

from shoal.client.cluster import Cluster
from shoal_broker import Broker
from tests.world.clusters import config_of


@pytest.fixture
def broker(broker: Broker) -> Broker:
    broker.create_topic("topic", 2)
    broker.create_topic("other")
    return broker


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(config_of("source", broker)) as cluster:
        cluster.refresh()
        yield cluster
