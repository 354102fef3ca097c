"""Settings of a source topic that a copy gets, and those that would make it unwritable."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.client.admin import describe_topic_configs
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.net.address import parse_bootstrap
from shoal_broker import Broker
from tests.integration.shared_spark import shoal
from tests.world import batches

pytestmark = pytest.mark.integration

#: A broker of Kafka accepts each of them.
HARMFUL = {"segment.ms": "1", "index.interval.bytes": "0", "segment.index.bytes": "4"}
GOOD = {"segment.ms": "1000", "segment.bytes": "1048576"}


@pytest.fixture
def brokers() -> Iterator[tuple[Broker, Broker]]:
    with Broker(cluster_id="source") as source, Broker(cluster_id="destination") as destination:
        yield source, destination


def create(broker: Broker, topic: str, config: dict[str, str]) -> None:
    broker.create_topic(topic, 1, config)
    broker.log(topic).store(bytes(batches.batch([b"a"])))


def set_on(broker: Broker, topic: str) -> dict[str, str | None]:
    with Cluster(ClientConfig("source", tuple(parse_bootstrap(broker.bootstrap)))) as cluster:
        configs = describe_topic_configs(cluster, [topic])[topic]
    return {name: each.value for name, each in configs.items() if each.set_on_topic}


def mirror(brokers: tuple[Broker, Broker], state: Path, *more: str) -> str:
    source, destination = brokers
    command = [
        "mirror",
        "--from",
        source.bootstrap,
        "--to",
        destination.bootstrap,
        "--topics",
        ".*",
        "--once",
    ]
    done = shoal(*command, *more, state=state)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("follow", [[], ["--sync=configs"]], ids=["created", "synced"])
def test_copy_gets_no_setting_that_makes_it_unwritable(
    brokers: tuple[Broker, Broker], tmp_path: Path, follow: list[str]
) -> None:
    create(brokers[0], "odd", HARMFUL)
    create(brokers[0], "good", GOOD)
    err = mirror(brokers, tmp_path, *follow)
    for name, value in HARMFUL.items():
        assert f"{name}={value} (less than " in err
    assert re.search(r"topic.*copy", err)
    assert "topic good" not in err
    assert not set_on(brokers[1], "odd").keys() & HARMFUL.keys()
    assert set_on(brokers[1], "good").items() >= GOOD.items()


def test_setting_that_becomes_harmful_at_the_source_does_not_follow(
    brokers: tuple[Broker, Broker], tmp_path: Path
) -> None:
    create(brokers[0], "odd", HARMFUL)
    brokers[1].create_topic("odd", 1, {"segment.ms": "5000"})
    err = mirror(brokers, tmp_path, "--sync=configs")
    assert re.search(r"topic.*copy", err)
    assert set_on(brokers[1], "odd")["segment.ms"] == "5000"
    assert "index.interval.bytes" not in set_on(brokers[1], "odd")


def test_copy_with_the_segments_and_batches_of_its_source_is_mirrored(
    brokers: tuple[Broker, Broker], tmp_path: Path
) -> None:
    both = {"segment.bytes": "1048576", "max.message.bytes": "1048588"}
    create(brokers[0], "small", both)
    brokers[1].create_topic("small", 1, both)
    mirror(brokers, tmp_path, "--sync=configs")
    assert brokers[1].log("small").log_end_offset == 1
