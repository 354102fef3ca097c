"""A broker with topics, and a client's view of it."""

from collections.abc import Iterator

import pytest

from shoal.client.cluster import Cluster
from shoal_broker import Broker
from tests.world.clusters import config_of


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("topic", 2)
        running.create_topic("other")
        yield running


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(config_of("source", broker)) as cluster:
        cluster.refresh()
        yield cluster
