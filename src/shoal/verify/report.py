"""The report of a partition (:mod:`.whole_report` has that of all)."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple

from ..exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_NOT_COMPARED
from ..topic_partition import TopicPartition

__all__ = [
    "ABORTED",
    "Aligned",
    "Alignment",
    "ComparedRange",
    "Difference",
    "DifferenceKind",
    "Elsewhere",
    "NotCompared",
    "OffsetRange",
    "OpenTransaction",
    "Outcome",
    "PartitionReport",
    "Side",
    "as_json",
    "has_destination",
]


#: The detail of an extra range that a copy by a reader with ``read_uncommitted`` has.
ABORTED = "aborted transactions of the source"


class Side(enum.Enum):
    """A cluster's part in the comparison."""

    SOURCE = "source"
    DESTINATION = "destination"


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


class OffsetRange(NamedTuple):
    """Offsets from ``start`` to before ``end``; an empty one is a place between two records."""

    start: int
    end: int

    def __str__(self) -> str:
        """Return the first and the last offset, as a person counts them."""
        return f"{self.start}" if self.end - self.start <= 1 else f"{self.start} to {self.end - 1}"


class DifferenceKind(enum.Enum):
    """How both sides differ in a place."""

    MISSING = "missing"
    EXTRA = "extra"
    ALTERED = "altered"
    REORDERED = "reordered"


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """
    The other half of a fault: records that were sent to the wrong topic or partition.

    Attributes:
        side: The cluster of the other partition.
        partition: Its name. For extra records it is the source partition whose copy misses them, for missing
            ones the destination partition that has them.
        offsets: The first and the last of the records there.
        records: The number of records that both have.
        is_missing: Whether the right copy lacks them. If not, they were sent to both. None if they are in
            no difference of this comparison, and not near their times in the right copy.

    """

    side: Side
    partition: str
    offsets: OffsetRange
    records: int
    is_missing: bool | None = True

    def __str__(self) -> str:
        """Return a phrase for the difference of the first half."""
        size = f"{self.records:,} {'record' if self.records == 1 else 'records'}"
        if self.side is Side.SOURCE:
            copy = {True: ", whose copy lacks them", False: ", whose copy has them, too", None: ""}
            return (
                f"misrouted: {size} of {self.partition}, source offsets {self.offsets}{copy[self.is_missing]}"
            )
        verb = "is" if self.records == 1 else "are"
        return f"misrouted: {size} {verb} at {self.partition}, destination offsets {self.offsets}"


@dataclass(frozen=True, slots=True)
class Difference:
    """
    One range in which both sides differ.

    Attributes:
        kind: How.
        source: The source's offsets; empty for extra records, at the place
            at which the source would have them.
        destination: The destination's offsets; empty for missing records.
            A reordered range is at these instead of in its place.
        records: How many, on the side that has more; if nothing can be decoded,
            the number of offsets.
        damaged: The sides on which a batch does not match its own CRC: the
            bytes in that cluster's log are not those that were written.
        copy_of: The source's offsets that an extra range doubles.
        detail: More, as a phrase: the kind of damage.
        misrouted: The other partition, if records were sent to the wrong one.

    """

    kind: DifferenceKind
    source: OffsetRange
    destination: OffsetRange
    records: int
    damaged: tuple[Side, ...] = ()
    copy_of: OffsetRange | None = None
    detail: str | None = None
    misrouted: Elsewhere | None = None

    def __str__(self) -> str:
        """Return a phrase: kind, offsets, size, what more is known."""
        phrase = f"{self._where()} ({_size(self)})"
        if self.copy_of:
            phrase += f": doubles source offsets {self.copy_of}"
        if self.misrouted:
            phrase += f": {self.misrouted}"
        return f"{phrase}: {self.detail}" if self.detail else phrase

    def _where(self) -> str:
        if self.kind is DifferenceKind.REORDERED:
            return f"reordered: source offsets {self.source} are at destination offsets {self.destination}"
        sides = [
            f"{side.value} offsets {offsets}"
            for side, offsets in ((Side.SOURCE, self.source), (Side.DESTINATION, self.destination))
            if offsets.start < offsets.end
        ]
        return f"{self.kind.value}: {', '.join(sides)}"


@dataclass(frozen=True, slots=True)
class NotCompared:
    """
    A range that could not be compared.

    Attributes:
        records: The number of records, on the side that has more.
        reason: Why, as a phrase.

    """

    source: OffsetRange
    destination: OffsetRange
    records: int
    reason: str

    def __str__(self) -> str:
        return (
            f"not compared: source offsets {self.source}, destination offsets {self.destination} "
            f"({_size(self)}): {self.reason}"
        )


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """
    A transaction that was open when the comparison began: no record behind its first one is compared.

    Attributes:
        side: The cluster that has it.
        offset: Its first offset there, at which the comparison ends.
        log_end: The end of the log there.
        producer_id: Its producer; None if its first batch cannot be read.

    """

    side: Side
    offset: int
    log_end: int
    producer_id: int | None

    def __str__(self) -> str:
        """Return a phrase: the offset and the producer."""
        producer = "" if self.producer_id is None else f" of producer {self.producer_id}"
        return f"not compared from {self.side.value} offset {self.offset} on: an open transaction{producer}"


def _size(each: Difference | NotCompared) -> str:
    return f"{each.records:,} {'record' if each.records == 1 else 'records'}"


class Aligned(enum.Enum):
    """
    The evidence for the offsets at which both sides begin.

    The committed position has the mirror's origin and its progress; content means the
    records themselves; nothing means that one side or both have no record to compare.

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

    """

    by: Aligned
    source_offset: int
    destination_offset: int
    why: str


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
        outcome: Equal, different or not compared; :attr:`verdict` is the word for people.
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
    outcome: Outcome
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
    def verdict(self) -> Outcome:
        """The outcome, but never *equal* if no record was compared."""
        is_nothing = self.outcome is Outcome.EQUAL and not self.records and not self.removed
        return Outcome.NOTHING if is_nothing else self.outcome

    @property
    def is_empty(self) -> bool:
        """Whether both logs were read to their ends, and none has a record."""
        if self.verdict is not Outcome.NOTHING or self.alignment is None or self.ranges is not None:
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
        return has_destination(self.open_transactions)

    @property
    def aborted(self) -> int:
        """How many of the listed extra records are aborted transactions of the source."""
        return sum(each.records for each in self.differences if each.detail == ABORTED)

    def of_kind(self, kind: DifferenceKind) -> list[Difference]:
        """Return the listed differences of one kind."""
        return [each for each in self.differences if each.kind is kind]

    @property
    def missing(self) -> list[OffsetRange]:
        """Source offsets that are not at the destination."""
        return [each.source for each in self.of_kind(DifferenceKind.MISSING)]

    @property
    def extra(self) -> list[OffsetRange]:
        """Destination offsets that are not in the source."""
        return [each.destination for each in self.of_kind(DifferenceKind.EXTRA)]

    @property
    def altered(self) -> list[tuple[OffsetRange, OffsetRange]]:
        """Source and destination offsets that hold different records."""
        return [(each.source, each.destination) for each in self.of_kind(DifferenceKind.ALTERED)]

    @property
    def reordered(self) -> list[tuple[OffsetRange, OffsetRange]]:
        """Source offsets, and the destination offsets that hold them out of order."""
        return [(each.source, each.destination) for each in self.of_kind(DifferenceKind.REORDERED)]

    def to_json_object(self) -> dict[str, Any]:
        """Return the report for ``--json``."""
        return {
            "source": str(self.source),
            "destination": str(self.destination),
            "outcome": self.verdict.value,
            "reason": self.reason,
            "alignment": as_json(self.alignment),
            "records": self.records,
            "batches": self.batches,
            "decoded_records": self.decoded_records,
            "bytes_read": self.bytes_read,
            "differences": as_json(self.differences),
            "differences_omitted": self.differences_omitted,
            "counts": {kind.value: records for kind, records in self.counts.items()},
            "not_compared": as_json(self.not_compared),
            "not_compared_omitted": self.not_compared_omitted,
            "removed": self.removed,
            "not_mirrored": self.not_mirrored,
            "reached": self.reached,
            "source_skipped": self.source_skipped,
            "destination_skipped": self.destination_skipped,
            "ranges": as_json(self.ranges),
            "open_transactions": as_json(self.open_transactions),
        }


def has_destination(found: Iterable[OpenTransaction]) -> bool:
    """Whether one of some open transactions is of the destination."""
    return any(each.side is Side.DESTINATION for each in found)


def as_json(value: object) -> Any:
    """Return a value of the report for JSON: enums by their values, dataclasses by their fields."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, tuple) and not isinstance(value, OffsetRange):
        return [as_json(each) for each in value]
    if is_dataclass(value):
        return {each.name: as_json(getattr(value, each.name)) for each in fields(value)}
    return value
