"""Findings of one partition, added up in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from .digest import DigestRun, Entry
from .finding import AnyFinding, Finding, Kind, Part, SameBatches, SameRecords, SameRun
from .report import Difference, DifferenceKind, NotCompared, OffsetRange, Side

__all__ = ["MOST_RANGES", "Ranges", "Tally"]

#: The most ranges that are listed for a partition; the others are counted.
MOST_RANGES = 100

R = TypeVar("R", Difference, NotCompared)


class Ranges(Generic[R]):
    """
    Ranges, joined if they follow each other; the first so many of them.

    Attributes:
        omitted: How many more there were.
        batches: How many whole batches all of them have, by kind of difference.

    """

    def __init__(self) -> None:
        self.omitted = 0
        self.batches = Counter[DifferenceKind]()
        self._listed: list[R] = []
        self._last: R | None = None
        self._size = _BatchCount()

    def __len__(self) -> int:
        return len(self._listed) + self.omitted + (self._last is not None)

    def add(self, new: R, follows: tuple[int, int], finding: Finding | None = None) -> None:
        """
        Add a range.

        Args:
            new: The range; it is joined with the last if it is of the same sort.
            follows: Where the record before its first one ends, in the source
                and at the destination: between the two nothing was compared.
            finding: Its batches or records, to count the batches.

        """
        joined = _join(self._last, new, follows) if self._last else None
        if joined is None:
            self._list_last()
        self._last = joined or new
        self._size.add(finding)

    def listed(self) -> tuple[R, ...]:
        """Return the ranges by place; nothing is joined to them any more."""
        self._list_last()
        return tuple(sorted(self._listed, key=lambda each: (each.source, each.destination)))

    def _list_last(self) -> None:
        last, size, self._last, self._size = self._last, self._size, None, _BatchCount()
        if last is None:
            return
        if isinstance(last, Difference):
            self.batches[last.kind] += size.batches
        if len(self._listed) < MOST_RANGES:
            self._listed.append(replace(last, batches=size.batches))
        else:
            self.omitted += 1


class _BatchCount:
    """Counts the batches of a range, on the side that has more."""

    def __init__(self) -> None:
        self._sides = _WholeBatches(), _WholeBatches()

    def add(self, finding: Finding | None) -> None:
        for side, parts in zip(
            self._sides, (finding.source, finding.destination) if finding else ((), ()), strict=True
        ):
            for part in parts:
                side.add(part)

    @property
    def batches(self) -> int:
        """0 if a batch is only partly in the range: its records were compared one by one."""
        return max(side.count for side in self._sides) if all(side.are_whole for side in self._sides) else 0


class _WholeBatches:
    """Batches of one side that follow each other, from their first record to their last."""

    def __init__(self) -> None:
        self.count = 0
        self._is_begun = False
        self._is_torn = False

    def add(self, part: Part) -> None:
        self._is_torn |= part.is_first == self._is_begun
        self._is_begun = not part.is_last
        self.count += part.is_last

    @property
    def are_whole(self) -> bool:
        return not (self._is_torn or self._is_begun)


def _join(last: R, new: R, follows: tuple[int, int]) -> R | None:
    if not (
        _sort(last) == _sort(new)
        and _is_next(last.source, new.source, follows[0])
        and _is_next(last.destination, new.destination, follows[1])
    ):
        return None
    joined = replace(
        last,
        source=OffsetRange(last.source.start, new.source.end),
        destination=OffsetRange(last.destination.start, new.destination.end),
        records=last.records + new.records,
    )
    if isinstance(joined, Difference) and isinstance(new, Difference):
        return _join_doubles(joined, new)
    return joined


def _sort(each: Difference | NotCompared) -> object:
    if isinstance(each, NotCompared):
        return each.reason
    return each.kind, each.damaged, each.copy_of is None, each.detail == _ONLY_TIME


def _is_next(last: OffsetRange, new: OffsetRange, follows: int) -> bool:
    """Whether there is nothing between two ranges; empty ones are places, and must be the same."""
    if last.start == last.end or new.start == new.end:
        return last == new
    return last.end == follows


def _join_doubles(joined: Difference, new: Difference) -> Difference | None:
    if joined.copy_of is None or new.copy_of is None:
        return joined
    if joined.copy_of.end != new.copy_of.start:
        return None
    return replace(joined, copy_of=OffsetRange(joined.copy_of.start, new.copy_of.end))


class Tally:
    """
    The findings so far in one partition.

    Attributes:
        records: The number of records that are the same on both sides.
        batches: The number of the source's batches that are the same.
        decoded_records: Those of them that were compared one by one.
        decoded_batches: The number of these batches that were decoded for it.
        source_offset: How far the source is compared.
        destination_offset: How far the destination is compared.
        differences: Ranges in which both sides differ.
        not_compared: Ranges that could not be compared.
        doubled: The number of extra records that double others.
        first_same: The destination's first offset of records that are the same; None if there are none.
        same_end: The destination's offset behind the last of these; 0 if there are none.
        behind_same: The number of the destination's records behind that offset.
        removed: The number of records that only one side has, since the other's log cleaner removed them.

    """

    def __init__(self) -> None:
        self.records = 0
        self.batches = 0
        self.decoded_records = 0
        self.decoded_batches = 0
        self.source_offset = 0
        self.destination_offset = 0
        self.differences = Ranges[Difference]()
        self.not_compared = Ranges[NotCompared]()
        self.removed = 0
        self.doubled = 0
        self.first_same: int | None = None
        self.same_end = 0
        self.behind_same = 0
        self._records_by_kind: dict[DifferenceKind, int] = {}

    @property
    def counts(self) -> dict[DifferenceKind, tuple[int, int]]:
        """Batches and records that differ, by kind."""
        batches = self.differences.batches
        return {kind: (batches[kind], records) for kind, records in self._records_by_kind.items()}

    def add(self, finding: AnyFinding) -> None:
        """Count a finding; not for ``NOT_MIRRORED`` and ``DIVERGED``, which end a comparison."""
        if isinstance(finding, SameBatches):
            self._add_same_batches(finding)
            return
        if isinstance(finding, SameRecords):
            self._add_same_records(finding)
            return
        self.reach(finding)
        if finding.kind is Kind.SAME:
            self._note_same(finding.destination[0])
            self.batches += 1
            self.records += finding.source[0].records
        elif finding.kind in _DIFFERENCES:
            self._add_finding(finding, _DIFFERENCES[finding.kind])
        else:
            self.add_not_compared(finding)

    def add_removed(self, finding: Finding) -> None:
        """Count records that one side lacks since its log cleaner has removed them."""
        self.removed += _records(finding)

    def reach(self, finding: Finding) -> None:
        """Note how far both sides are compared."""
        if finding.source:
            self.source_offset = max(self.source_offset, finding.source[-1].next_offset)
        if finding.destination:
            self.destination_offset = max(self.destination_offset, finding.destination[-1].next_offset)
        self.behind_same += sum(
            each.records for each in finding.destination if each.base_offset >= self.same_end
        )

    @property
    def extra_before_same(self) -> int:
        """The number of extra records before the first that is the same, without doubles."""
        if self.first_same is None:
            return 0
        return sum(
            each.records
            for each in self.differences.listed()
            if each.kind is DifferenceKind.EXTRA
            and each.copy_of is None
            and each.destination.end <= self.first_same
        )

    def _note_same(self, same: Part | DigestRun | SameRun) -> None:
        if self.first_same is None:
            self.first_same = same.base_offset
        if same.next_offset > self.same_end:
            self.same_end = same.next_offset
            self.behind_same = 0

    def _reach(self, same: SameBatches | SameRecords) -> None:
        self._note_same(same.destination)
        self.source_offset = max(self.source_offset, same.source.next_offset)
        self.destination_offset = max(self.destination_offset, same.destination.next_offset)
        self.records += same.source.records

    def _add_same_batches(self, same: SameBatches) -> None:
        self._reach(same)
        self.batches += len(same.source)

    def _add_same_records(self, same: SameRecords) -> None:
        self._reach(same)
        run = same.source
        self.decoded_records += run.records
        self.batches += run.is_batch_done
        self.decoded_batches += run.is_batch_done

    def add_difference(
        self, difference: Difference, follows: tuple[int, int], finding: Finding | None = None
    ) -> None:
        """Count a range in which both sides differ; see :meth:`Ranges.add`."""
        self.differences.add(difference, follows, finding)
        records = self._records_by_kind.get(difference.kind, 0)
        self._records_by_kind[difference.kind] = records + difference.records

    def _add_finding(self, finding: Finding, kind: DifferenceKind) -> None:
        damage = _damage(finding)
        copied = finding.copy_of
        if copied is not None:
            self.doubled += _records(finding)
        difference = Difference(
            kind,
            *_offsets(finding),
            0,
            _records(finding),
            tuple(damage),
            None if copied is None else OffsetRange(copied, copied + _length(finding.destination)),
            next(iter(damage.values()), None) or _only_time(finding),
        )
        self.add_difference(difference, _follows(finding), finding)

    def add_not_compared(self, finding: Finding, reason: str | None = None) -> None:
        """Count records that cannot be compared; the reason is by default that of the finding."""
        not_compared = NotCompared(*_offsets(finding), 0, _records(finding), reason or _why_not(finding))
        self.not_compared.add(not_compared, _follows(finding), finding)


_DIFFERENCES = {
    Kind.MISSING: DifferenceKind.MISSING,
    Kind.EXTRA: DifferenceKind.EXTRA,
    Kind.ALTERED: DifferenceKind.ALTERED,
    Kind.REORDERED: DifferenceKind.REORDERED,
}


def _offsets(finding: Finding) -> tuple[OffsetRange, OffsetRange]:
    return (
        _range(finding.source, finding.source_place),
        _range(finding.destination, finding.destination_place),
    )


def _range(parts: Sequence[Part], place: int) -> OffsetRange:
    return OffsetRange(parts[0].base_offset, parts[-1].next_offset) if parts else OffsetRange(place, place)


def _length(parts: Sequence[Part]) -> int:
    return parts[-1].next_offset - parts[0].base_offset


def _records(finding: Finding) -> int:
    return max(sum(part.records for part in side) for side in (finding.source, finding.destination))


def _follows(finding: Finding) -> tuple[int, int]:
    return (
        finding.source[0].follows if finding.source else finding.source_place,
        finding.destination[0].follows if finding.destination else finding.destination_place,
    )


def _damage(finding: Finding) -> dict[Side, str]:
    """Describe the damaged batch of each side."""
    return {
        side: f"the {side.value}'s batch at offset {batch.base_offset} is damaged: {batch.damage}"
        for side, batches in ((Side.DESTINATION, finding.destination), (Side.SOURCE, finding.source))
        for batch in reversed(batches)
        if batch.damage
    }


_ONLY_TIME = "only the timestamp is another"


def _only_time(finding: Finding) -> str | None:
    """Say of an altered record if nothing but its timestamp is."""
    if finding.kind is not Kind.ALTERED or len(finding.source) != 1 or len(finding.destination) != 1:
        return None
    (source,), (destination,) = finding.source, finding.destination
    if not isinstance(source, Entry) or source.fingerprint is None or destination.fingerprint is None:
        return None
    is_equal = source.fingerprint[:2] == destination.fingerprint[:2]
    return _ONLY_TIME if is_equal else None


def _why_not(finding: Finding) -> str:
    if finding.kind is Kind.COMPACTED:
        side = Side.DESTINATION if finding.source else Side.SOURCE
        return f"compaction took it away in the {side.value} cluster since it was copied"
    reasons = (batch.undecoded for batch in (*finding.source, *finding.destination))
    return next(reason for reason in reasons if reason)
