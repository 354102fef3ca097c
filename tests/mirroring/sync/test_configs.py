"""Which configurations of a copy follow its source."""

from __future__ import annotations

import pytest

from shoal.client.admin import ConfigEntry
from shoal.mirroring.sync.configs import config_drift

DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
    "retention.ms": "604800000",
    "segment.ms": "604800000",
}


def topic(**changes: str) -> dict[str, ConfigEntry]:
    """A topic with Kafka's defaults, and what is set on it; ``_`` for the dots."""
    entries = {name: ConfigEntry(value, set_on_topic=False) for name, value in DEFAULTS.items()}
    return entries | {
        name.replace("_", "."): ConfigEntry(value, set_on_topic=True) for name, value in changes.items()
    }


def drift(source: dict[str, ConfigEntry], destination: dict[str, ConfigEntry]) -> dict[str, str | None]:
    return config_drift(source, destination)


@pytest.mark.parametrize(
    ("source", "destination", "expected"),
    [
        pytest.param(topic(), topic(), {}, id="equal"),
        pytest.param(topic(segment_ms="5000"), topic(segment_ms="5000"), {}, id="set alike"),
        pytest.param(topic(segment_ms="5000"), topic(), {"segment.ms": "5000"}, id="set at the source"),
        pytest.param(
            topic(segment_ms="5000"), topic(segment_ms="6000"), {"segment.ms": "5000"}, id="changed"
        ),
        pytest.param(topic(), topic(segment_ms="6000"), {"segment.ms": None}, id="removed at the source"),
        pytest.param(topic(min_insync_replicas="2"), topic(), {}, id="excluded at the source"),
        pytest.param(topic(), topic(min_insync_replicas="2"), {}, id="excluded at the destination"),
        pytest.param(topic(message_timestamp_type="LogAppendTime"), topic(), {}, id="time type"),
        pytest.param(topic(compression_type="gzip"), topic(), {}, id="compression of the source"),
        pytest.param(topic(), topic(compression_type="producer"), {}, id="compression of a copy"),
        pytest.param(topic(new_name="1"), topic(), {}, id="name that the destination lacks"),
    ],
)
def test_config_drift_is_the_change_that_makes_a_copy_equal(
    source: dict[str, ConfigEntry], destination: dict[str, ConfigEntry], expected: dict[str, str | None]
) -> None:
    assert drift(source, destination) == expected


def test_config_drift_of_retention_follows_the_default_of_the_source_too() -> None:
    source = topic() | {"retention.ms": ConfigEntry("86400000", set_on_topic=False)}
    assert drift(source, topic(retention_ms="604800000")) == {"retention.ms": "86400000"}
    assert drift(source, topic(retention_ms="86400000")) == {}


def test_config_drift_never_has_the_compression_of_the_source() -> None:
    assert drift(topic(compression_type="gzip"), topic()) == {}
