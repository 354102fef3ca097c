"""``--adopt`` takes over a copy that the real MirrorMaker 2 made, and continues exactly once."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from rig import KafkaCluster, read_topic, wait_until
from rig.load import load_batch, load_every_kind
from rig.made_records import random_records
from rig.mirror_maker import MirrorMaker2
from rig.read import assert_same_records
from tests.integration.shared_spark import shoal

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def test_adopted_copy_of_mirror_maker_2_continues_exactly_once(
    source_cluster: KafkaCluster, destination_cluster: KafkaCluster, topic: str, tmp_path: Path
) -> None:
    source, destination, copy = source_cluster.bootstrap, destination_cluster.bootstrap, f"source.{topic}"
    load_every_kind(source, topic, partitions=2)
    everything = read_topic(source, topic, isolation="read_uncommitted")
    with MirrorMaker2(source, destination, topic) as mirror_maker:

        def is_copied() -> bool:
            with suppress(KafkaException):  # a broker may not lead a topic yet that was created just now
                found = counts_of(destination, copy)
                return found == {number: len(records) for number, records in everything.items()}
            return False

        try:
            wait_until(is_copied, "MirrorMaker 2's copy", 180, interval_s=1)
        except Exception as error:
            raise AssertionError(mirror_maker.output(60)) from error
        mirror_maker.stop()
    load_batch(source, topic, 0, random_records(Random(1), 50, 500))
    between = ["--from", source, "--to", destination, "--topics", topic, "--rename", r"(.*)=source.\1"]

    # MirrorMaker 2 copied aborted records, too: if a mirror excludes these, the copy is not faithful.
    refused = shoal("mirror", *between, "--once", "--adopt", state=tmp_path)
    assert refused.returncode == 1
    assert re.search(r"faithful.*extra", " ".join(refused.stderr.split()))
    assert "isolation.level=read_uncommitted" in refused.stderr + refused.stdout
    assert counts_of(destination, copy) == {number: len(records) for number, records in everything.items()}

    properties = tmp_path / "source.properties"
    properties.write_text("isolation.level=read_uncommitted\n", encoding="utf-8")
    between += ["--from-config", str(properties)]
    adopted = shoal("mirror", *between, "--once", "--adopt", state=tmp_path)
    assert adopted.returncode == 0, adopted.stderr
    load_batch(source, topic, 1, random_records(Random(2), 50, 500))
    again = shoal("mirror", *between, "--once", state=tmp_path)
    assert again.returncode == 0, again.stderr

    expected = read_topic(source, topic, isolation="read_uncommitted")
    assert sum(map(len, expected.values())) == sum(map(len, everything.values())) + 100
    assert_same_records(expected, read_topic(destination, copy, isolation="read_uncommitted"))
    verified = shoal("verify", *between, state=tmp_path)
    assert verified.returncode == 0, verified.stdout + verified.stderr


def counts_of(bootstrap: str, topic: str) -> dict[int, int]:
    """Return the number of offsets in each partition of a topic; empty if it does not exist yet."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "counts"})
    try:
        described = consumer.list_topics(topic, timeout=30).topics[topic]
        return {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[1]
            for number in (() if described.error else described.partitions)
        }
    finally:
        consumer.close()
