"""The facts of one topic, and the values that follow from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..json_report import as_json
from ..topic_partition import TopicPartition
from .facts import Facts, ProducerFacts

__all__ = ["Inspected", "OpenTransaction", "TopicReport"]

#: The producers of a topic in the JSON object: those with the most batches.
_MOST_PRODUCERS = 100


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """
    A transaction without a marker, which holds back readers with ``read_committed``.

    Attributes:
        partition: The partition.
        producer_id: The producer that began it.
        first_offset: The offset of its first record.
        last_ms: The timestamp of its producer's last batch, in milliseconds since 1970; -1 if unknown.
        is_hanging: Whether its coordinator does not have it, so that no marker will come.
        held_back: The number of offsets behind its first one.

    """

    partition: TopicPartition
    producer_id: int
    first_offset: int
    last_ms: int
    is_hanging: bool
    held_back: int


class Inspected(NamedTuple):
    """
    A partition that was read.

    Attributes:
        partition: The partition.
        offsets: The number of offsets in its log.
        facts: The counts of its batches.
        open_transactions: Its transactions without a marker.

    """

    partition: TopicPartition
    offsets: int
    facts: Facts
    open_transactions: tuple[OpenTransaction, ...]


@dataclass(frozen=True, slots=True)
class TopicReport:
    """
    The facts of a topic, as far as they were read.

    Attributes:
        topic: The topic's name.
        partitions: The number of its partitions.
        busy_partitions: The number of partitions with batches among those that were read.
        offsets: The number of offsets in its logs.
        offsets_read: The number of offsets that were read.
        removed_between: The number of offsets between batches that no batch spans.
        producer_places: The number of pairs of a producer id and a partition.
        facts: The counts of the batches that were read.
        open_transactions: The transactions without a marker; of all partitions, also in a sample.

    """

    topic: str
    partitions: int
    busy_partitions: int
    offsets: int
    offsets_read: int
    removed_between: int
    producer_places: int
    facts: Facts
    open_transactions: tuple[OpenTransaction, ...] = ()

    @classmethod
    def of(cls, partitions: Sequence[Inspected], now_ms: int) -> TopicReport:
        """Return the report of a topic from its partitions."""
        facts = Facts(now_ms)
        for each in partitions:
            facts.add(each.facts)
        return cls(
            partitions[0].partition.topic,
            len(partitions),
            sum(each.facts.batches > 0 for each in partitions),
            sum(each.offsets for each in partitions),
            sum(each.facts.offsets_read for each in partitions),
            sum(each.facts.removed_between for each in partitions),
            sum(len(each.facts.producers.keys() - {-1}) for each in partitions),
            facts,
            tuple(open_ for each in partitions for open_ in each.open_transactions),
        )

    @property
    def share_read(self) -> float:
        """The share of the offsets that were read, from 0 to 1."""
        return min(1.0, self.offsets_read / self.offsets) if self.offsets else 1.0

    @property
    def scale(self) -> float:
        """The factor from what was read to all of the topic."""
        return 1 / self.share_read if self.share_read else 0.0

    @property
    def bytes_a_batch(self) -> float:
        """The mean size of a batch, as it is stored."""
        return self.facts.size / self.facts.batches if self.facts.batches else 0.0

    @property
    def records_a_batch(self) -> float:
        """The mean number of records in a batch."""
        return self.facts.records / self.facts.batches if self.facts.batches else 0.0

    @property
    def median_below(self) -> int:
        """The power of two below which half of the batches are, in bytes."""
        return half_below(self.facts.sizes)

    @property
    def producer_ids(self) -> int:
        """The number of producer ids that are counted one by one."""
        return len(self.facts.producers) - (-1 in self.facts.producers)

    @property
    def has_nameless_producers(self) -> bool:
        """Whether there are batches without a producer id."""
        return -1 in self.facts.producers

    @property
    def ratio(self) -> float | None:
        """The bytes of records, uncompressed to stored, of what was read; None if it was not measured."""
        return _ratio(self.facts)

    @property
    def bytes_a_second(self) -> float | None:
        """The mean rate of a partition in the time of its records; None without two timestamps."""
        if not self.facts.elapsed_ms:
            return None
        return self.facts.size / (self.facts.elapsed_ms / 1000)

    @property
    def producers_a_partition(self) -> float:
        """The mean number of producer ids in a partition."""
        return self.producer_places / self.busy_partitions if self.busy_partitions else 0.0

    def producers(self) -> list[tuple[int, ProducerFacts]]:
        """Return the producers with the most batches first."""
        return sorted(self.facts.producers.items(), key=lambda each: (-each[1].batches, each[0]))

    def to_json_object(self) -> dict[str, Any]:
        """Return the report for JSON: the counts, and what follows from them."""
        facts = as_json(self.facts)
        return {
            **{name: facts[name] for name in facts if not name.startswith("_")},
            **{name: value for name, value in as_json(self).items() if name != "facts"},
            "producers": {
                str(producer_id): as_json(each) for producer_id, each in self.producers()[:_MOST_PRODUCERS]
            },
            "producer_ids": self.producer_ids,
            "share_read": round(self.share_read, 6),
            "bytes_a_batch": round(self.bytes_a_batch, 1),
            "records_a_batch": round(self.records_a_batch, 2),
            "ratio": None if self.ratio is None else round(self.ratio, 3),
            "bytes_a_second": None if self.bytes_a_second is None else round(self.bytes_a_second, 1),
        }


def half_below(buckets: Mapping[int, int]) -> int:
    """Return the power of two below which at least half of the values are, by their buckets."""
    total, seen = sum(buckets.values()), 0
    for bits, count in sorted(buckets.items()):
        seen += count
        if 2 * seen >= total:
            return 1 << bits
    return 0


def _ratio(facts: Facts) -> float | None:
    """
    Return the uncompressed bytes of records by the stored ones, over all batches.

    A codec without a measured batch makes the ratio unknown. Batches without a codec count as they are.
    """
    uncompressed = 0.0
    for codec, size in facts.codec_sizes.items():
        sample = facts.ratios.get(codec)
        if codec == "none":
            uncompressed += size
        elif sample is None or not sample.compressed:
            return None
        else:
            uncompressed += size * sample.uncompressed / sample.compressed
    return uncompressed / facts.size if facts.size else None
