"""The facts of one topic, and the values that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..json_report import as_json
from ..topic_partition import TopicPartition
from .facts import Facts, ProducerFacts

__all__ = ["OpenTransaction", "TopicReport", "half_below"]

#: The producers of a topic in the JSON object: those with the most batches.
_MOST_PRODUCERS = 100

#: The values in the JSON object that follow from counts, and their decimal places.
_DERIVED = {"share_read": 6, "bytes_a_batch": 1, "records_a_batch": 2, "ratio": 3}


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


@dataclass(frozen=True, slots=True)
class TopicReport:
    """
    The facts of a topic, as far as they were read.

    Attributes:
        topic: The topic's name.
        facts: The counts of all its partitions.
        open_transactions: The transactions without a marker; of all partitions, also in a sample.

    """

    topic: str
    facts: Facts
    open_transactions: tuple[OpenTransaction, ...] = ()

    @property
    def share_read(self) -> float:
        """The share of the offsets that were read, from 0 to 1."""
        return min(1.0, self.facts.offsets_read / self.facts.offsets) if self.facts.offsets else 1.0

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
    def producer_ids(self) -> int:
        """The number of producer ids that are counted one by one."""
        return len(self.facts.producers.keys() - {-1})

    @property
    def ratio(self) -> float | None:
        """
        The bytes of records, uncompressed to stored, of what was read.

        None if a codec has no measured batch. Batches without a codec count as they are.
        """
        uncompressed = float(self.facts.codec_sizes["none"])
        for codec, size in self.facts.codec_sizes.items():
            sample = self.facts.ratios.get(codec)
            if codec != "none":
                if sample is None or not sample.compressed:
                    return None
                uncompressed += size * sample.uncompressed / sample.compressed
        return uncompressed / self.facts.size if self.facts.size else None

    def producers(self, most: int) -> list[tuple[int, ProducerFacts]]:
        """Return the producers with the most batches."""
        return sorted(self.facts.producers.items(), key=lambda each: (-each[1].batches, each[0]))[:most]

    def to_json_object(self) -> dict[str, Any]:
        """Return the report for JSON: the counts, and what follows from them."""
        facts = {name: each for name, each in as_json(self.facts).items() if not name.startswith("_")}
        derived = {name: getattr(self, name) for name in _DERIVED}
        return {
            **facts,
            "topic": self.topic,
            "open_transactions": as_json(self.open_transactions),
            "producers": {str(each): as_json(counts) for each, counts in self.producers(_MOST_PRODUCERS)},
            "producer_ids": self.producer_ids,
            **{
                name: None if value is None else round(value, _DERIVED[name])
                for name, value in derived.items()
            },
        }


def half_below(buckets: Mapping[int, int]) -> int:
    """Return the power of two below which at least half of the values are, by their buckets."""
    total, seen = sum(buckets.values()), 0
    for bits, count in sorted(buckets.items()):
        seen += count
        if 2 * seen >= total:
            return 1 << bits
    return 0
