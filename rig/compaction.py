"""Topics that a broker really compacts: holes in batches, batches without records, tombstones.

A broker never cleans the active segment. It rolls the segment if a record's timestamp is ``segment.ms``
after that of the segment's first record; so the loaders send filler after the records to compact.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import Protocol

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from rig.cluster import KafkaCluster
from rig.dump import DumpedBatch, DumpFailed, dump_partitions
from rig.load import Codec, create_topic, load_aborted_transaction, load_batch, load_committed_transaction
from rig.made_records import FIRST_TIMESTAMP
from rig.old_kafka import MessageFormat, OldKafka
from rig.record import Record
from rig.wait import wait_until

__all__ = [
    "COMPACTED",
    "hasten_cleaner",
    "load_compacted",
    "load_old_compacted",
]

COMPACTED: dict[str, str] = {
    "cleanup.policy": "compact",
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0.001",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "200",
}
"""The config of a topic that is compacted as soon as a segment is closed, and keeps its tombstones.

In a test this is soon after each record of `_wait_for_compaction`.
"""

_RANDOM_RECORDS = 100
_RANDOM_KEYS = 50


class _Cluster(Protocol):
    @property
    def bootstrap(self) -> str: ...

    def partition_dir(self, topic: str, partition: int) -> Path: ...


def load_compacted(
    cluster: KafkaCluster, topics: Mapping[str, Codec], config: Mapping[str, str] | None = None
) -> dict[str, list[DumpedBatch]]:
    """Create topics of one partition, load each by `_load_to_compact`, and wait for their compaction.

    Args:
        cluster: A cluster of one broker.
        topics: The codec of each topic.
        config: Configuration of the topics, over `COMPACTED`.

    Returns:
        The batches that remain of each topic, of a deep dump.
    """
    hasten_cleaner(cluster.bootstrap)

    def load(topic: str) -> None:
        create_topic(cluster.bootstrap, topic, config={**COMPACTED, **(config or {})})
        _load_to_compact(cluster.bootstrap, topic, topics[topic])

    # In parallel, since producer ids and transactions take most of the time.
    with ThreadPoolExecutor(max_workers=len(topics)) as loaders:
        list(loaders.map(load, topics))
    return _wait_for_compaction(cluster, topics)


def load_old_compacted(
    kafka: OldKafka, topics: Mapping[str, tuple[MessageFormat, Codec]]
) -> dict[str, list[DumpedBatch]]:
    """Create and load topics of magic 0 and 1 by `_load_to_compact_old`, and wait for their compaction."""
    for topic, (message_format, codec) in topics.items():
        kafka.create_topic(topic, message_format, config=COMPACTED)
        _load_to_compact_old(kafka.bootstrap, topic, codec)
    return _wait_for_compaction(kafka, topics, _is_old_compacted)


def hasten_cleaner(bootstrap: str) -> None:
    """Make the cleaner of a cluster's only broker look for work ten times a second instead of every 15 s."""
    entry = ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.incremental_alter_configs([resource])[resource].result()


def _load_to_compact(bootstrap: str, topic: str, codec: Codec) -> None:
    """Load partition 0 with batches of which compaction leaves every kind of remains.

    - batches with holes at their beginning, in the middle, at their end, and everywhere, by idempotent,
      plain and transactional producers, in a committed transaction;
    - batches that lose all their records and stay as empty batches: the last of their producer, in a
      committed and in an aborted transaction; and, by a plain producer, one that disappears;
    - tombstones in a whole batch and in one with holes, for which the cleaner sets a delete horizon;
    - a batch that stays whole.
    """
    for idempotent, name in ((True, b"i"), (False, b"p")):
        for keys in ([b"gone1", b"stays1", b"gone2", b"stays2", b"gone3"], [b"gone4", b"gone5"]):
            records = _keyed([name + key for key in keys])
            load_batch(bootstrap, topic, 0, records, codec, idempotent=idempotent)
    ours = f"{topic}-compacted"
    for keys in ([b"tgone1", b"tstays1"], [b"tgone2"]):
        load_committed_transaction(bootstrap, topic, {0: _keyed(keys)}, codec, ours)
    load_aborted_transaction(bootstrap, topic, {0: _keyed([b"aborted1", b"aborted2"])}, codec, ours)
    load_batch(bootstrap, topic, 0, _keyed([b"deleted1", b"deleted2", b"stays3"]), codec)
    load_batch(bootstrap, topic, 0, [_tombstone(b"deleted1"), *_keyed([b"stays4"])], codec)
    load_batch(bootstrap, topic, 0, [_tombstone(b"deleted2"), *_keyed([b"hgone1", b"stays5"])], codec)
    load_batch(bootstrap, topic, 0, _random(), codec)
    load_batch(bootstrap, topic, 0, _keyed([b"whole1", b"whole2", b"whole3"]), codec)
    gone = [name + b"gone%d" % number for name in (b"i", b"p") for number in range(1, 6)]
    load_batch(bootstrap, topic, 0, _keyed([*gone, b"tgone1", b"tgone2", b"hgone1"]), codec)


def _is_compacted(batches: Sequence[DumpedBatch]) -> bool:
    """Return whether a partition of `_load_to_compact` has all kinds of remains."""
    return (
        sum(batch.has_holes for batch in batches) >= 4
        and any(batch.has_holes and batch.is_transactional for batch in batches)
        and any(batch.has_holes and batch.producer_id < 0 for batch in batches)
        and sum(batch.count == 0 for batch in batches) >= 2
        and {batch.has_holes for batch in batches if batch.delete_horizon_ms is not None} == {False, True}
        and any(later.base_offset > earlier.last_offset + 1 for earlier, later in itertools.pairwise(batches))
    )


def _load_to_compact_old(bootstrap: str, topic: str, codec: Codec) -> None:
    """Load partition 0 of an old broker: wrappers with holes at each place, and a tombstone."""
    keyed = partial(_keyed, headers=False)
    for records in (
        keyed([b"gone1", b"stays1", b"gone2", b"stays2", b"gone3"]),
        keyed([b"gone4", b"gone5"]),
        keyed([b"deleted", b"stays3"]),
        [_tombstone(b"deleted"), *keyed([b"stays4"])],
        _random(),
        keyed([b"whole1", b"whole2", b"whole3"]),
        keyed([b"gone%d" % number for number in range(1, 6)]),
    ):
        load_batch(bootstrap, topic, 0, records, codec, idempotent=False)


def _is_old_compacted(batches: Sequence[DumpedBatch]) -> bool:
    """Return whether a partition of `_load_to_compact_old` is cleaned; of a deep dump."""
    left = {record.offset for batch in batches for record in batch.records}
    # The first two batches, and the one of random keys, which begins at 11.
    return left & set(range(7)) == {1, 3} and len(left & set(range(11, 11 + _RANDOM_RECORDS))) <= _RANDOM_KEYS


def _wait_for_compaction(
    cluster: _Cluster,
    topics: Iterable[str],
    is_done: Callable[[Sequence[DumpedBatch]], bool] = _is_compacted,
) -> dict[str, list[DumpedBatch]]:
    """Send filler to partition 0 of the topics until the broker has compacted the records before it.

    Ends if two dumps are alike: the broker compacts nothing more, since the active segment is never cleaned.

    Returns:
        The batches of each topic, of a deep dump.

    Raises:
        TimedOut: The broker did not compact them in time.
    """
    directories = {cluster.partition_dir(topic, 0): topic for topic in topics}
    seconds = itertools.count(1)
    dumped: dict[Path, list[DumpedBatch]] = {}

    def all_are_done() -> bool:
        before = dict(dumped)
        dumped.clear()
        try:
            dumped.update(dump_partitions(list(directories), deep=True))
        except DumpFailed:
            return False  # the cleaner replaced a segment during the dump; more filler could repeat that
        undone = [directories[each] for each, batches in dumped.items() if not is_done(batches)]
        # Later than the transaction markers too, which have today's timestamp.
        later = int(time.time() * 1000) + 1000 * next(seconds)
        for topic in undone:
            load_batch(cluster.bootstrap, topic, 0, [Record(b"filler", b"", (), later)], idempotent=False)
        return not undone and dumped == before

    wait_until(all_are_done, f"compaction of {', '.join(topics)}", 180, interval_s=0.5)
    return {topic: dumped[directory] for directory, topic in directories.items()}


def _keyed(keys: Sequence[bytes], headers: bool = True) -> list[Record]:
    return [
        Record(
            key,
            b"value of " + key * 20,
            (("header", key), ("null", None)) if headers and number % 2 else (),
            FIRST_TIMESTAMP + number,
        )
        for number, key in enumerate(keys)
    ]


def _tombstone(key: bytes) -> Record:
    return Record(key, None, (), FIRST_TIMESTAMP)


def _random() -> list[Record]:
    rng = Random(7)
    return [
        Record(
            b"random-%d" % rng.randrange(_RANDOM_KEYS),
            b"value %d " % number * rng.randrange(1, 40),
            (),
            FIRST_TIMESTAMP + rng.randrange(1000),
        )
        for number in range(_RANDOM_RECORDS)
    ]
