"""
Facts of one partition, counted from the headers of its batches.

:class:`Facts` takes one header after the other and keeps counts, so its size does not depend on the
log's. Facts of several partitions are added. All counts are independent of the order of the runs, except
:attr:`Facts.backward_batches`: it compares neighbours in a run.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Self

from ..records import BatchHeader, Codec, Decision, decide
from ..records.aborted import Marker

__all__ = ["FUTURE_MS", "MOST_PRODUCERS", "Facts", "ProducerFacts", "RatioSample", "codec_name"]

#: A timestamp so far ahead of the clock lies in the future. Kafka 4 refuses such records: it is the default
#: of ``message.timestamp.after.max.ms`` (KIP-937).
FUTURE_MS = 3_600_000

#: The producers that are kept by id. Batches of others are counted together, so that memory is bounded.
MOST_PRODUCERS = 10_000


def codec_name(codec_id: int) -> str:
    """Return a codec's name as in ``compression.type``."""
    return Codec(codec_id).name.lower() if codec_id <= Codec.ZSTD else f"unknown ({codec_id})"


class _Counts:
    """Counts that are added field by field: sums, unless a field has another way."""

    __slots__ = ()

    def add(self, other: Self) -> None:
        """Add the counts of other batches."""
        for each in fields(self):  # type: ignore[arg-type]
            merge = each.metadata.get("merge", operator.add)
            setattr(self, each.name, merge(getattr(self, each.name), getattr(other, each.name)))


def _by_key(ours: dict[Any, Any], theirs: dict[Any, Any]) -> dict[Any, Any]:
    for key, counts in theirs.items():
        if key in ours:
            ours[key].add(counts)
        else:
            ours[key] = counts
    return ours


def _known(choose: Callable[[Iterable[int]], int]) -> Callable[[int | None, int | None], int | None]:
    def chosen(one: int | None, other: int | None) -> int | None:
        known = [each for each in (one, other) if each is not None]
        return choose(known) if known else None

    return chosen


def _first(one: Any, other: Any) -> Any:
    return one


#: How the values of a field are added, if they are no sums.
_LARGEST = {"merge": max}
_FIRST = {"merge": _first}
_UNION = {"merge": operator.or_}
_BY_KEY = {"merge": _by_key}
_OLDEST = {"merge": _known(min)}
_NEWEST = {"merge": _known(max)}


@dataclass(slots=True)
class ProducerFacts(_Counts):
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


@dataclass(slots=True)
class RatioSample(_Counts):
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


@dataclass(slots=True)
class Facts(_Counts):
    """
    Counts of batches.

    Attributes:
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

    now_ms: int = field(default=0, metadata=_FIRST)
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
    producers: dict[int, ProducerFacts] = field(default_factory=dict, metadata=_BY_KEY)
    other_batches: int = 0
    ratios: dict[str, RatioSample] = field(default_factory=dict, metadata=_BY_KEY)
    opened: Counter[str] = field(default_factory=Counter)
    runs: list[tuple[int, int]] = field(default_factory=list, metadata=_FIRST)
    spanned: int = 0
    partitions: int = 0
    offsets: int = 0
    offsets_read: int = 0
    removed_between: int = 0
    _previous_ms: int | None = field(default=None, metadata=_FIRST)

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
        self._see_producer(header, records)

    def _see_time(self, timestamp_ms: int) -> None:
        ahead_ms = timestamp_ms - self.now_ms
        self.most_ahead_ms = max(self.most_ahead_ms, ahead_ms)
        if self._previous_ms is not None:
            step_ms = timestamp_ms - self._previous_ms
            if step_ms < 0:
                self.backward_batches += 1
                self.most_backward_ms = max(self.most_backward_ms, -step_ms)
        self._previous_ms = timestamp_ms
        self.oldest_ms = timestamp_ms if self.oldest_ms is None else min(self.oldest_ms, timestamp_ms)
        if ahead_ms > FUTURE_MS:
            self.future_batches += 1
        else:
            self.newest_ms = timestamp_ms if self.newest_ms is None else max(self.newest_ms, timestamp_ms)

    def _see_producer(self, header: BatchHeader, records: int) -> None:
        facts = self.producers.get(header.producer_id)
        if facts is None and len(self.producers) >= MOST_PRODUCERS:
            self.other_batches += 1
            return
        if facts is None:
            self.producers[header.producer_id] = facts = ProducerFacts()
        facts.batches += 1
        facts.records += records
        facts.size += header.size
        facts.transactional += header.is_transactional

    def measure(self, codec: str, compressed: int, uncompressed: int) -> None:
        """Count a batch that was decompressed for its ratio."""
        self.ratios.setdefault(codec, RatioSample()).add(RatioSample(1, compressed, uncompressed))

    def end(self, offsets: int) -> None:
        """Count the partition, which has so many offsets: all of it, or of a sample, was read."""
        self.partitions, self.offsets = 1, offsets
        self.offsets_read = sum(end - start for start, end in self.runs)
        self.removed_between = max(0, self.offsets_read - self.spanned)

    def add(self, other: Facts) -> None:
        """Add the facts of one more partition; of producers, those with the most batches stay."""
        super(Facts, self).add(other)
        if len(self.producers) > MOST_PRODUCERS:
            most = Counter({each: facts.batches for each, facts in self.producers.items()})
            kept = dict(most.most_common(MOST_PRODUCERS))
            self.other_batches += most.total() - sum(kept.values())
            self.producers = {each: self.producers[each] for each in kept}
