"""Topics of an embedded broker to inspect, and the report about them."""

from __future__ import annotations

from typing import Any

from shoal.client.config import ClientConfig
from shoal.inspect import ClusterReport, Facts, InspectOptions, inspect
from shoal_broker import Broker
from tests.world.history import History

__all__ = ["NOW_MS", "config_of", "history", "inspected", "topic"]

#: 2026-03-01 12:00 UTC.
NOW_MS = 1_772_366_400_000


def history(broker: Broker, topic: str = "orders", partitions: int = 1, partition: int = 0) -> History:
    """Create a topic if it is missing, and return the history of one partition, a minute old."""
    if broker.topics.get(topic) is None:
        broker.create_topic(topic, partitions)
    return History(broker.log(topic, partition), NOW_MS - 60_000)


def config_of(broker: Broker) -> ClientConfig:
    # A broker may wait so long for records behind a gap.
    properties = {"bootstrap.servers": broker.bootstrap, "request.timeout.ms": "5000"}
    config, _ = ClientConfig.from_properties("source", properties, where=None)
    return config


def inspected(broker: Broker, *topics: str, **options: Any) -> ClusterReport:
    """Inspect all of some topics, or what the options say, at :data:`NOW_MS`."""
    given = {"sample": None, **options}
    return inspect(config_of(broker), topics or ("orders",), InspectOptions(**given), now_ms=NOW_MS)


def topic(broker: Broker, name: str = "orders", **options: Any) -> Facts:
    """Return the report about one topic."""
    (report,) = inspected(broker, name, **options).topics
    return report
