"""
Facts of a partition or a topic, counted from the headers of its batches, and what follows from them.

:class:`Facts` takes one header after the other and keeps counts, so its size does not depend on the
log's. Facts of several partitions are added. All counts are independent of the order of the runs, except
:attr:`Facts.backward_batches`: it compares neighbours in a run.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ..json_report import as_json
from ..records import BatchHeader, Codec, Decision, decide
from ..records.aborted import Marker
from ..topic_partition import TopicPartition

__all__ = [
    "FUTURE_MS",
    "MOST_PRODUCERS",
    "Facts",
    "OpenTransaction",
    "ProducerFacts",
    "RatioSample",
    "codec_name",
    "half_below",
]

#: A timestamp so far ahead of the clock lies in the future. Kafka 4 refuses such records: it is the default
#: of ``message.timestamp.after.max.ms`` (KIP-937).
FUTURE_MS = 3_600_000

#: The producers that are kept by id: the first of a partition, and of a sum those with the most batches.
#: Batches of others are counted together, so that memory is bounded.
MOST_PRODUCERS = 10_000


def codec_name(codec_id: int) -> str:
    """Return a codec's name as in ``compression.type``."""
    return Codec(codec_id).name.lower() if codec_id <= Codec.ZSTD else f"unknown ({codec_id})"


def _oldest(*times_ms: int | None) -> int | None:
    return min((each for each in times_ms if each is not None), default=None)


def _newest(*times_ms: int | None) -> int | None:
    return max((each for each in times_ms if each is not None), default=None)


#: How the values of a field are added, if they are no sums.
_LARGEST, _UNION = {"merge": max}, {"merge": operator.or_}
_OLDEST, _NEWEST = {"merge": _oldest}, {"merge": _newest}
#: The field stays, or is added in another way.
_OURS = {"merge": None}

#: The producers of a topic in the JSON object: those with the most batches.
_MOST_PRODUCERS = 100

#: The values in the JSON object that follow from counts.
_DERIVED = "producer_ids", "share_read", "bytes_a_batch", "records_a_batch", "ratio"


@dataclass(slots=True)
class ProducerFacts:
    """
    Counts of the batches of one producer id.

    Attributes:
        batches: The number of its batches.
        records: The number of records in them.
        size: Their bytes, as they are stored.
        transactional: The number of its transactional batches.

    """

    batches: int = 0
    records: int = 0
    size: int = 0
    transactional: int = 0

    def add(self, other: ProducerFacts) -> None:
        """Add the counts of other batches."""
        self.batches += other.batches
        self.records += other.records
        self.size += other.size
        self.transactional += other.transactional


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


@dataclass(slots=True)
class RatioSample:
    """
    Batches that were decompressed to measure their ratio, which no header has.

    Attributes:
        batches: The number of batches.
        compressed: The bytes of their records as they are stored.
        uncompressed: The bytes of their records.

    """

    batches: int = 0
    compressed: int = 0
    uncompressed: int = 0

    def add(self, other: RatioSample) -> None:
        """Add other batches."""
        self.batches += other.batches
        self.compressed += other.compressed
        self.uncompressed += other.uncompressed


@dataclass(slots=True)
class Facts:
    """
    Counts of batches.

    Attributes:
        topic: The topic's name.
        now_ms: The time that timestamps are compared with, in milliseconds since 1970.
        batches: The number of batches with records of users. Messages of magic 0 and 1 count as batches.
        records: The number of their records. A compressed message of magic 0 or 1 does not show its number of
            records, so its offsets behind the message before it count.
        size: The bytes of these batches, as they are stored, headers included.
        control_batches: The number of transaction markers.
        control_size: Their bytes.
        commits: The number of markers that commit.
        aborts: The number of markers that abort.
        emptied: The number of batches that compaction left without records.
        removed_inside: The number of offsets without a record inside of batches.
        idempotent: The number of batches with a producer id.
        transactional: The number of batches of transactions.
        future_batches: The number of batches with a timestamp more than :data:`FUTURE_MS` ahead.
        most_ahead_ms: The largest lead of a timestamp over ``now_ms``.
        backward_batches: The number of batches whose largest timestamp is before that of the batch in front
            of them.
        most_backward_ms: The largest step back.
        oldest_ms: The smallest of the batches' largest timestamps; None without any.
        newest_ms: The largest timestamp that does not lie in the future; None without any.
        codecs: The number of batches by codec.
        codec_sizes: The bytes of batches by codec.
        magics: The number of batches by format.
        leader_epochs: The leader epochs of batches.
        sizes: The number of batches by the number of bits of their bytes: ``k`` has the sizes from
            ``2**(k-1)`` to ``2**k - 1``.
        counts: The number of batches by the number of bits of their number of records.
        producers: Counts by producer id; -1 is for batches without one.
        other_batches: The number of batches of ids beyond :data:`MOST_PRODUCERS`.
        ratios: The decompressed batches by codec.
        opened: The number of batches by codec that were decompressed, or could not be.
        runs: The offsets that were read: first, and first after the run. Those of a sum are of one partition.
        spanned: The number of offsets that batches span.
        partitions: The number of partitions that were read, as the following counts from :meth:`end` on.
        offsets: The number of offsets in their logs.
        offsets_read: The number of offsets in all runs, gaps included.
        removed_between: The number of offsets between batches that no batch spans: compaction removed whole
            batches.

    """

    topic: str = field(default="", metadata=_OURS)
    now_ms: int = field(default=0, metadata=_OURS)
    batches: int = 0
    records: int = 0
    size: int = 0
    control_batches: int = 0
    control_size: int = 0
    commits: int = 0
    aborts: int = 0
    emptied: int = 0
    removed_inside: int = 0
    idempotent: int = 0
    transactional: int = 0
    future_batches: int = 0
    most_ahead_ms: int = field(default=0, metadata=_LARGEST)
    backward_batches: int = 0
    most_backward_ms: int = field(default=0, metadata=_LARGEST)
    oldest_ms: int | None = field(default=None, metadata=_OLDEST)
    newest_ms: int | None = field(default=None, metadata=_NEWEST)
    codecs: Counter[str] = field(default_factory=Counter)
    codec_sizes: Counter[str] = field(default_factory=Counter)
    magics: Counter[int] = field(default_factory=Counter)
    leader_epochs: set[int] = field(default_factory=set, metadata=_UNION)
    sizes: Counter[int] = field(default_factory=Counter)
    counts: Counter[int] = field(default_factory=Counter)
    producers: dict[int, ProducerFacts] = field(default_factory=dict, metadata=_OURS)
    other_batches: int = 0
    ratios: dict[str, RatioSample] = field(default_factory=dict, metadata=_OURS)
    opened: Counter[str] = field(default_factory=Counter)
    runs: list[tuple[int, int]] = field(default_factory=list, metadata=_OURS)
    spanned: int = 0
    partitions: int = 0
    offsets: int = 0
    offsets_read: int = 0
    removed_between: int = 0
    open_transactions: list[OpenTransaction] = field(default_factory=list)
    _previous_ms: int | None = field(default=None, metadata=_OURS)

    def begin_run(self, first: int) -> None:
        """Begin to read at an offset. A run that continues the one before it is the same run."""
        if not self.runs or self.runs[-1][1] != first:
            self.runs.append((first, first))
            self._previous_ms = None

    def end_run(self, end: int) -> None:
        """Count offsets without batches up to an end as read."""
        start, reached = self.runs[-1]
        self.runs[-1] = (start, max(reached, end))

    def see(self, header: BatchHeader, marker: int | None = None) -> None:
        """
        Count the next batch of the run.

        Args:
            header: The batch, which begins or ends behind the batches before it.
            marker: The type of a control batch's record (:class:`~shoal.records.aborted.Marker`).

        """
        start, reached = self.runs[-1]
        if start == reached:
            # A run may begin inside of its first batch, all of which is counted.
            start = reached = min(start, header.base_offset)
        first, next_offset = max(header.begins_at(reached), reached), header.next_offset
        self.runs[-1] = (start, max(next_offset, reached))
        self.spanned += max(0, next_offset - first)
        decision = decide(header, 0, None)
        self.leader_epochs.add(header.leader_epoch)
        if decision is Decision.DROP_CONTROL:
            self._see_control(header, marker)
        elif decision is Decision.DROP_EMPTY:
            self.emptied += 1
            self.removed_inside += header.last_offset_delta + 1
        else:
            self._see_data(header, next_offset - first)

    def _see_control(self, header: BatchHeader, marker: int | None) -> None:
        self.control_batches += 1
        self.control_size += header.size
        self.commits += marker == Marker.COMMIT
        self.aborts += marker == Marker.ABORT

    def _see_data(self, header: BatchHeader, span: int) -> None:
        size, is_old = header.size, header.magic < 2
        records = span if is_old else header.records_count
        self.batches += 1
        self.records += records
        self.size += size
        if not is_old:
            self.removed_inside += header.last_offset_delta + 1 - records
        codec = codec_name(header.codec_id)
        self.codecs[codec] += 1
        self.codec_sizes[codec] += size
        self.magics[header.magic] += 1
        self.sizes[size.bit_length()] += 1
        self.counts[records.bit_length()] += 1
        self.idempotent += header.producer_id >= 0
        self.transactional += header.is_transactional
        if header.max_timestamp >= 0:
            self._see_time(header.max_timestamp)
        self._see_producer(header.producer_id, ProducerFacts(1, records, size, int(header.is_transactional)))

    def _see_time(self, timestamp_ms: int) -> None:
        ahead_ms = timestamp_ms - self.now_ms
        self.most_ahead_ms = max(self.most_ahead_ms, ahead_ms)
        if self._previous_ms is not None:
            step_ms = timestamp_ms - self._previous_ms
            if step_ms < 0:
                self.backward_batches += 1
                self.most_backward_ms = max(self.most_backward_ms, -step_ms)
        self._previous_ms = timestamp_ms
        self.oldest_ms = _oldest(self.oldest_ms, timestamp_ms)
        if ahead_ms > FUTURE_MS:
            self.future_batches += 1
        else:
            self.newest_ms = _newest(self.newest_ms, timestamp_ms)

    def _see_producer(self, producer_id: int, counts: ProducerFacts) -> None:
        if producer_id in self.producers:
            self.producers[producer_id].add(counts)
        elif len(self.producers) < MOST_PRODUCERS:
            self.producers[producer_id] = counts
        else:
            self.other_batches += counts.batches

    def measure(self, codec: str, measured: RatioSample) -> None:
        """Count batches that were decompressed for their ratio."""
        self.ratios.setdefault(codec, RatioSample()).add(measured)

    def end(self, offsets: int) -> None:
        """Count the partition, which has so many offsets: all of it, or of a sample, was read."""
        self.partitions, self.offsets = 1, offsets
        self.offsets_read = sum(end - start for start, end in self.runs)
        self.removed_between = max(0, self.offsets_read - self.spanned)

    def add(self, other: Facts) -> None:
        """Add the facts of one more partition, field by field."""
        for each in fields(self):
            if (merge := each.metadata.get("merge", operator.add)) is not None:
                setattr(self, each.name, merge(getattr(self, each.name), getattr(other, each.name)))
        for producer_id, counts in other.producers.items():
            self.producers.setdefault(producer_id, ProducerFacts()).add(counts)
        if len(self.producers) > MOST_PRODUCERS:
            self.producers = dict(self.most_producers(MOST_PRODUCERS))
            self.other_batches = self.batches - sum(each.batches for each in self.producers.values())
        for codec, measured in other.ratios.items():
            self.measure(codec, measured)

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
        return self.size / self.batches if self.batches else 0.0

    @property
    def records_a_batch(self) -> float:
        """The mean number of records in a batch."""
        return self.records / self.batches if self.batches else 0.0

    @property
    def producer_ids(self) -> int:
        """The number of producer ids that are counted one by one."""
        return len(self.producers.keys() - {-1})

    @property
    def codec_shares(self) -> str:
        """The codecs, and their shares of the batches if there are several."""
        if len(self.codecs) == 1:
            return next(iter(self.codecs))
        return ", ".join(f"{name} {count / self.batches:.0%}" for name, count in self.codecs.most_common())

    @property
    def ratio(self) -> float | None:
        """
        The bytes of records, uncompressed to stored, of what was read.

        None if a codec has no measured batch. Batches without a codec count as they are.
        """
        uncompressed = float(self.codec_sizes["none"])
        for codec, size in self.codec_sizes.items():
            sample = self.ratios.get(codec)
            if codec != "none":
                if sample is None or not sample.compressed:
                    return None
                uncompressed += size * sample.uncompressed / sample.compressed
        return uncompressed / self.size if self.size else None

    def most_producers(self, most: int) -> list[tuple[int, ProducerFacts]]:
        """Return the producers with the most batches."""
        return sorted(self.producers.items(), key=lambda each: (-each[1].batches, each[0]))[:most]

    def to_json_object(self) -> dict[str, Any]:
        """Return the counts for JSON, and what follows from them."""
        counts = {name: each for name, each in as_json(self).items() if not name.startswith("_")}
        producers = as_json(dict(self.most_producers(_MOST_PRODUCERS)))
        return {**counts, "producers": producers, **{name: getattr(self, name) for name in _DERIVED}}


def half_below(buckets: Mapping[int, int]) -> int:
    """Return the power of two below which at least half of the values are, by their buckets."""
    total, seen = sum(buckets.values()), 0
    for bits, count in sorted(buckets.items()):
        seen += count
        if 2 * seen >= total:
            return 1 << bits
    return 0
