"""Topics of every kind of batch, as brokers of three versions really write them.

Some are complete before any mirror starts: a broker compacts in its own time, and records that it removes
after they were copied are another subject. The others grow while the mirrors run, so that these keep many
milestones.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rig import (
    CODECS,
    OLD_CODECS,
    KafkaCluster,
    OldKafka,
    Record,
    create_topic,
    load_aborted_transaction,
    load_batch,
    load_batches,
    load_committed_transaction,
    load_compacted,
    load_every_kind,
    load_old_batch,
    load_old_compacted,
    load_plain,
    load_without_timestamps,
)
from rig.load import FIRST_TIMESTAMP, Codec, random_records
from rig.old_kafka import MessageFormat

__all__ = ["BatchKinds", "Source", "new_kinds", "old_kinds"]

_COMPACTED = "kinds.compacted"
_APPENDED = "kinds.append-time"
_TRANSACTIONS = "kinds.transactions"
_LONG = "kinds.long"

_EVERY_KIND_PARTITIONS = 8
_TRANSACTION_PARTITIONS = 8
_LONG_PARTITIONS = 4


class Source(Protocol):
    """A source cluster."""

    @property
    def bootstrap(self) -> str: ...


@dataclass
class BatchKinds:
    """The topics of one source.

    Attributes:
        partitions: The number of partitions of each topic.
        grow: Sends the records that come while the mirrors run.
        complete: The topics that have all their records before. Their copies must not be compacted.
    """

    partitions: dict[str, int]
    grow: Callable[[], None]
    complete: set[str] = field(default_factory=set)


def new_kinds(source: KafkaCluster, scale: float) -> BatchKinds:
    """Create the topics that a current broker can have.

    Batches of all codecs and sizes, with committed and aborted transactions, also small ones behind each
    other; holes, tombstones and empty batches of compaction; append times; and long partitions of small
    batches.
    """
    bootstrap = source.bootstrap
    codecs = CODECS[: max(1, round(scale * len(CODECS)))]
    compacted: Mapping[str, Codec] = {f"{_COMPACTED}-{codec}": codec for codec in codecs}
    load_compacted(source, compacted)
    every = {f"kinds.every-{seed}": _EVERY_KIND_PARTITIONS for seed in range(max(1, round(scale * 3)))}
    partitions = {**every, _TRANSACTIONS: _TRANSACTION_PARTITIONS, _LONG: _LONG_PARTITIONS}
    for topic, count in partitions.items():
        create_topic(bootstrap, topic, count)
    partitions[_APPENDED] = len(codecs)
    create_topic(bootstrap, _APPENDED, len(codecs), config={"message.timestamp.type": "LogAppendTime"})

    def grow() -> None:
        rng = random.Random(1)
        megabytes = max(1, round(scale * 40))
        load_plain(bootstrap, _LONG, "lz4", 16, megabytes * 1_000_000, _LONG_PARTITIONS, create=False)
        for seed, topic in enumerate(every):
            load_every_kind(bootstrap, topic, _EVERY_KIND_PARTITIONS, seed, codecs, create=False)
        for count in (1, 20, 200):
            appended = ((number, random_records(rng, count, 100), each) for number, each in enumerate(codecs))
            load_batches(bootstrap, _APPENDED, appended, idempotent=True)
        for number in range(max(2, round(scale * 20))):
            _grow_transactions(bootstrap, rng, number, codecs[number % len(codecs)])

    return BatchKinds({**dict.fromkeys(compacted, 1), **partitions}, grow, set(compacted))


def _grow_transactions(bootstrap: str, rng: random.Random, number: int, codec: Codec) -> None:
    """Add small batches to each partition: plain ones, of a committed and of an aborted transaction."""

    def some() -> dict[int, list[Record]]:
        sizes = {partition: rng.randint(1, 9) for partition in range(_TRANSACTION_PARTITIONS)}
        return {partition: random_records(rng, size, 100) for partition, size in sizes.items()}

    load_batches(bootstrap, _TRANSACTIONS, ((partition, each, codec) for partition, each in some().items()))
    load_committed_transaction(bootstrap, _TRANSACTIONS, some(), codec, f"committed-{number}")
    load_aborted_transaction(bootstrap, _TRANSACTIONS, some(), codec, f"aborted-{number}")


def old_kinds(source: OldKafka, scale: float) -> BatchKinds:
    """Create the topics of message formats 0 and 1, which no newer broker can write.

    Messages are alone and in wrappers of each codec, with and without times, with append times, or compacted.
    One topic was upgraded from each format to the next.
    """
    bootstrap = source.bootstrap
    codecs = OLD_CODECS[: max(1, round(scale * len(OLD_CODECS)))]
    formats: Sequence[MessageFormat] = (0, 1)
    each_format = [(magic, codec) for magic in formats for codec in codecs]
    load_old_compacted(source, {f"{_COMPACTED}-{m}-{codec}": (m, codec) for m, codec in each_format})
    complete = {f"{_COMPACTED}-{magic}-{codec}" for magic, codec in each_format}
    for magic, codec in each_format:
        source.create_topic(f"kinds.magic-{magic}-{codec}", magic)
    for codec in codecs:
        source.create_topic(f"{_APPENDED}-{codec}", 1, timestamp_type="LogAppendTime")
        source.create_topic(f"kinds.without-times-{codec}", 1)
    source.create_topic("kinds.upgraded", 0)
    growing = [
        *(f"kinds.magic-{magic}-{codec}" for magic, codec in each_format),
        *(f"{kind}-{codec}" for codec in codecs for kind in (_APPENDED, "kinds.without-times")),
        "kinds.upgraded",
    ]

    def grow() -> None:
        rng = random.Random(2)
        for count in (1, 20, *[200] * max(1, round(scale * 4))):
            for magic, codec in each_format:
                load_old_batch(
                    bootstrap, f"kinds.magic-{magic}-{codec}", 0, _old_records(rng, count), codec, magic
                )
            for codec in codecs:
                load_old_batch(bootstrap, f"{_APPENDED}-{codec}", 0, _old_records(rng, count), codec, 1)
                load_without_timestamps(
                    bootstrap, f"kinds.without-times-{codec}", 0, _old_records(rng, count), codec
                )
        steps: Sequence[MessageFormat] = (0, 1, 2)
        for step in steps:
            if step > 0:
                source.change_format("kinds.upgraded", step)
            for codec in codecs:
                load_old_batch(bootstrap, "kinds.upgraded", 0, _old_records(rng, 20), codec, step)
        load_batch(bootstrap, "kinds.upgraded", 0, _old_records(rng, 20), "zstd")

    return BatchKinds(dict.fromkeys([*complete, *growing], 1), grow, complete)


def _old_records(rng: random.Random, count: int) -> list[Record]:
    """Make records that compress, without headers, which came with format 2."""
    return [
        Record(
            rng.choice([None, b"key %d" % number]),
            rng.choice([None, rng.randbytes(30) + b"shoal " * 5, b"value %d" % number]),
            (),
            FIRST_TIMESTAMP + number,
        )
        for number in range(count)
    ]
