"""The report of each partition, and of all."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_NOT_COMPARED
from ..json_report import as_json
from ..topic_partition import TopicPartition
from .findings import (
    ABORTED,
    Difference,
    DifferenceKind,
    NotCompared,
    OffsetRange,
    OpenTransaction,
    Place,
    Side,
)
from .state import VerifyState

__all__ = [
    "Aligned",
    "Alignment",
    "ComparedCluster",
    "ComparedRange",
    "Outcome",
    "PartitionReport",
    "VerifyProgress",
    "VerifyReport",
]


class Outcome(enum.Enum):
    """The result; of several, the first that applies is that of the whole."""

    DIFFERENT = "different"
    NOT_COMPARED = "not compared"
    EQUAL = "equal"
    #: No difference, and no record that was compared.
    NOTHING = "nothing to compare"

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return _EXIT_CODES[self]


_EXIT_CODES = {
    Outcome.DIFFERENT: EXIT_FAILED,
    Outcome.NOT_COMPARED: EXIT_NOT_COMPARED,
    Outcome.EQUAL: EXIT_DONE,
    Outcome.NOTHING: EXIT_NOT_COMPARED,
}


class Aligned(enum.Enum):
    """
    The evidence for the offsets at which both sides begin.

    The committed position has the mirror's origin and its progress; content means the
    records themselves; nothing means that neither side has a record.

    """

    BY_ORIGIN = "origin"
    BY_POSITION = "pair"
    BY_CONTENT = "content"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Alignment:
    """
    The offsets at which the comparison began.

    Attributes:
        by: The evidence for them.
        destination_offset: The destination offset that matches it.
        why: The reason, as a phrase.
        is_proven: Whether no other place is possible: differences behind a place that is not certain are no
            differences.

    """

    by: Aligned
    source_offset: int
    destination_offset: int
    why: str
    is_proven: bool = True

    @property
    def place(self) -> Place:
        """The offsets."""
        return Place(self.source_offset, self.destination_offset)


@dataclass(frozen=True, slots=True)
class ComparedRange:
    """
    A part of a partition that was compared, if not all of it was.

    Attributes:
        source: The source's offsets.
        destination: The destination's offsets between the same records.
        records: The number of records that are the same on both sides.

    """

    source: OffsetRange
    destination: OffsetRange
    records: int


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """
    The result for one partition.

    Attributes:
        alignment: The offsets at which the comparison began; None if it did not begin.
        records: The number of records that are the same on both sides.
        batches: The number of batches that are the same by their bytes.
        decoded_records: The number of those records that were compared one by one, since their batches
            differ.
        differences: The first ranges that differ, by place.
        differences_omitted: The number of further ranges that differ.
        counts: The number of records that differ, by kind.
        not_compared: The first ranges that could not be compared, by place.
        not_compared_omitted: The number of further ranges that could not be compared.
        removed: The number of records that only one side has, since the other's log cleaner removed them.
        not_mirrored: The source's offsets that lie behind the mirror: the
            destination lags, which is no difference.
        source_skipped: Offsets before the alignment that only the source has.
        destination_skipped: Offsets before the alignment that only the
            destination has.
        reached: The offsets up to which both sides were compared: the next source record that the copy
            does not have yet, or the source's end, and the destination's end. None if the comparison did not
            come that far.
        reason: The reason that nothing, or nothing further, was compared; None if all was.
        open_transactions: Transactions at which the comparison ended. With one of the destination, the
            partition is not compared, unless it is different.
        bytes_read: The number of bytes read from both clusters.
        may_pass: Whether the reason is a transient error of a broker, so that another comparison may do
            without it.
        ranges: The ranges that were compared, by offset; None if nothing was left out on purpose.

    """

    source: TopicPartition
    destination: TopicPartition
    alignment: Alignment | None = None
    records: int = 0
    batches: int = 0
    decoded_records: int = 0
    differences: tuple[Difference, ...] = ()
    differences_omitted: int = 0
    counts: Mapping[DifferenceKind, int] = field(default_factory=dict)
    not_compared: tuple[NotCompared, ...] = ()
    not_compared_omitted: int = 0
    removed: int = 0
    not_mirrored: OffsetRange | None = None
    source_skipped: OffsetRange | None = None
    destination_skipped: OffsetRange | None = None
    reached: tuple[int, int] | None = None
    reason: str | None = None
    bytes_read: int = 0
    may_pass: bool = False
    ranges: tuple[ComparedRange, ...] | None = None
    open_transactions: tuple[OpenTransaction, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """The result: never *equal* if no record was compared."""
        if self.differences:
            return Outcome.DIFFERENT
        if self.not_compared or self.reason or self.is_held:
            return Outcome.NOT_COMPARED
        return Outcome.EQUAL if self.records or self.removed else Outcome.NOTHING

    @property
    def is_empty(self) -> bool:
        """Whether both logs were read to their ends, and none has a record."""
        if self.outcome is not Outcome.NOTHING or self.alignment is None or self.ranges is not None:
            return False
        is_part = self.not_mirrored or self.open_transactions or self.reached is None
        # Without any record, the comparison begins at the ends.
        skipped = self.source_skipped or self.destination_skipped
        return not is_part and (self.alignment.by is Aligned.NOTHING or not skipped)

    @property
    def why(self) -> str:
        """The reason that nothing, or nothing further, was compared; empty if all was."""
        return self.reason or ", ".join(str(each) for each in self.open_transactions)

    @property
    def is_held(self) -> bool:
        """Whether the destination's log was compared up to an open transaction only."""
        return any(each.side is Side.DESTINATION for each in self.open_transactions)

    @property
    def aborted(self) -> int:
        """How many of the listed extra records are aborted transactions of the source."""
        return sum(each.records for each in self.differences if each.detail == ABORTED)

    def to_json_object(self) -> dict[str, Any]:
        """Return the report for ``--json``."""
        return {**as_json(self), "outcome": self.outcome.value}


#: The version of the JSON (docs/verify-report.schema.json). Later shoals may add names to it.
LAYOUT = 2


@dataclass(frozen=True, slots=True)
class ComparedCluster:
    """
    One of the two clusters.

    Attributes:
        cluster_id: Its id; None before Kafka 0.10.1.
        servers: Its bootstrap servers, as they were given.

    """

    cluster_id: str | None
    servers: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """
    The result of a verification.

    Attributes:
        group: The consumer group whose positions were used; None if no name
            could be made.
        partitions: The partitions' results, by topic and number.
        warnings: Sentences with the remedy.
        elapsed_s: The duration, from start to end.
        extent: The part of the topics that was to be compared, as a phrase; None for all of it.
        at: The time of the start, in UTC (ISO 8601); None if it is not known.
        source: The source cluster; None if it is not known.
        destination: The destination cluster; None if it is not known.
        state: How far the copies are equal, for the next comparison. It is not in the JSON.

    """

    group: str | None
    partitions: tuple[PartitionReport, ...]
    warnings: tuple[str, ...]
    elapsed_s: float
    extent: str | None = None
    at: str | None = None
    source: ComparedCluster | None = None
    destination: ComparedCluster | None = None
    state: VerifyState | None = None

    @property
    def outcome(self) -> Outcome:
        """Different if any partition is; else not compared if any was not; else equal if any record is."""
        found = {partition.outcome for partition in self.partitions}
        return next((outcome for outcome in Outcome if outcome in found), Outcome.NOTHING)

    @property
    def is_empty(self) -> bool:
        """Whether both sides of all partitions were read to their ends, and none has a record."""
        return bool(self.partitions) and all(each.is_empty for each in self.partitions)

    @property
    def equal(self) -> bool:
        """Whether all was compared, and no difference found."""
        return self.outcome is Outcome.EQUAL

    @property
    def exit_code(self) -> int:
        """0 equal, or empty on both sides; 1 different; 3 could not compare, or nothing was compared."""
        return EXIT_DONE if self.is_empty else self.outcome.exit_code

    @property
    def records(self) -> int:
        """The number of records that are the same on both sides."""
        return sum(partition.records for partition in self.partitions)

    @property
    def batches(self) -> int:
        """The number of the source's batches that are the same on both sides."""
        return sum(partition.batches for partition in self.partitions)

    @property
    def decoded_records(self) -> int:
        """The number of those records that were compared one by one."""
        return sum(partition.decoded_records for partition in self.partitions)

    @property
    def bytes_read(self) -> int:
        """The number of bytes read from both clusters."""
        return sum(partition.bytes_read for partition in self.partitions)

    def to_json_object(self) -> dict[str, Any]:
        """Return the report for ``--json``."""
        fields = as_json(self)
        del fields["state"]
        return {
            "type": "verify",
            "version": LAYOUT,
            **fields,
            "outcome": self.outcome.value,
            "exit_code": self.exit_code,
            "records": self.records,
            "batches": self.batches,
            "decoded_records": self.decoded_records,
            "bytes_read": self.bytes_read,
            "partitions": [partition.to_json_object() for partition in self.partitions],
        }


@dataclass(frozen=True, slots=True)
class VerifyProgress:
    """
    How far a verification is. Totals are since its start.

    Attributes:
        partitions: The number of partitions to compare.
        done: The number of partitions that are compared.
        records: The number of records that are the same on both sides.
        bytes_read: The number of bytes read from both clusters.
        differences: The number of ranges in which both sides differ.
        fraction: The share of the source's offsets that is compared, 0 to 1.

    """

    partitions: int
    done: int
    records: int
    bytes_read: int
    differences: int
    fraction: float
