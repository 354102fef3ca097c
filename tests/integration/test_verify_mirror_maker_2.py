"""Copies by the real MirrorMaker 2, with its defaults: ``shoal verify`` reports each of them as equal."""

from __future__ import annotations

import itertools
import random
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from bench.mirror_maker_2 import MirrorMaker2
from bench.mover import Job
from rig import CODECS, KafkaCluster, read_topic
from rig.load import (
    Codec,
    await_markers,
    create_topic,
    load_batch,
    load_every_kind,
    send_batch,
    transactional_producer,
)
from rig.made_records import random_records
from rig.read import ReadFailed
from rig.record import Record
from rig.wait import wait_until
from shoal.client.config import ClientConfig, IsolationLevel
from shoal.net.address import parse_bootstrap
from shoal.verify import Outcome, verify

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

PARTITIONS = 3

#: Timestamps without any information: old, repeated, going back.
ODD_TIMES = (1, 978_307_200_000, 978_307_200_000, 2, 1_700_000_000_000, 1)


def _with_times(records: Sequence[Record], times: Iterator[int]) -> list[Record]:
    return [replace(record, timestamp=next(times)) for record in records]


def _load_odd(bootstrap: str, topic: str, *, transactions: bool, seed: int) -> None:
    """Fill a topic with small batches whose timestamps repeat, and with records that are all the same."""
    create_topic(bootstrap, topic, PARTITIONS)
    rng = random.Random(seed)
    times = itertools.cycle(ODD_TIMES)
    same = Record(None, None, (), 1)
    for number, codec in enumerate(CODECS):
        producer = transactional_producer(bootstrap, f"{topic}-{codec}", codec) if transactions else None
        for _ in range(6):
            if producer is not None:
                producer.begin_transaction()
            for partition in range(PARTITIONS):
                records = random_records(rng, rng.randrange(1, 40), 50)
                for batch in ([same] * rng.randrange(1, 9), _with_times(records, times)):
                    if producer is not None:
                        send_batch(producer, topic, partition, batch)
                    else:
                        load_batch(bootstrap, topic, partition, batch, codec, idempotent=number % 2 == 0)
            if producer is not None and rng.random() < 0.5:
                producer.abort_transaction(60)
            elif producer is not None:
                producer.commit_transaction(60)
    await_markers(bootstrap, topic, range(PARTITIONS))


@contextmanager
def _mirror_maker_2(
    source: KafkaCluster, destination: KafkaCluster, topics: Sequence[str], codec: Codec, directory: Path
) -> Iterator[str]:
    """Run MirrorMaker 2; yield the prefix of its topics' names."""
    job = Job(source.bootstrap, destination.bootstrap, ",".join(topics), "", codec, directory)
    # Its default, which copies the records of aborted transactions, too.
    with MirrorMaker2("MirrorMaker 2", isolation_level="read_uncommitted").command(job) as command:
        assert command.copy is not None
        with (directory / "mm2.log").open("wb") as log:
            process = subprocess.Popen(command.arguments, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield command.copy.removesuffix(job.topic)
        finally:
            process.terminate()
            process.wait(60)


def _contents(cluster: KafkaCluster, topic: str) -> dict[int, list[tuple[object, ...]]]:
    found = read_topic(cluster.bootstrap, topic, "read_uncommitted")
    return {
        partition: [(each.key, each.value, each.headers, each.timestamp) for each in records]
        for partition, records in found.items()
    }


@pytest.mark.parametrize("codec", ["none", "lz4", "gzip"])
def test_verify_of_mirror_maker_2_copies_is_equal(
    source_cluster: KafkaCluster, destination_cluster: KafkaCluster, tmp_path: Path, topic: str, codec: Codec
) -> None:
    source, destination = source_cluster, destination_cluster
    names = [f"{topic}-{kind}".replace("[", "-") for kind in ("every", "odd", "odd-transactions")]
    load_every_kind(source.bootstrap, names[0], PARTITIONS, seed=len(codec))
    _load_odd(source.bootstrap, names[1], transactions=False, seed=1)
    _load_odd(source.bootstrap, names[2], transactions=True, seed=2)
    with _mirror_maker_2(source, destination, names, codec, tmp_path) as prefix:
        for name in names:
            wanted = _contents(source, name)

            def is_there(name: str = name, wanted: object = wanted) -> bool:
                with suppress(KafkaException, ReadFailed):
                    return _contents(destination, prefix + name) == wanted
                return False

            wait_until(is_there, f"{prefix}{name} to be an exact copy", 180)
    clusters = [
        ClientConfig(side, tuple(parse_bootstrap(cluster.bootstrap)))
        for side, cluster in (("source", source), ("destination", destination))
    ]
    ours = replace(clusters[0], isolation_level=IsolationLevel.READ_UNCOMMITTED)
    report = verify(ours, clusters[1], {name: prefix + name for name in names}, group="none")
    assert [each for each in report.partitions if each.outcome is not Outcome.EQUAL] == []
    assert len(report.partitions) == PARTITIONS * len(names)
