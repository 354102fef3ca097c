"""Findings of one partition, added up; memory is bounded whatever is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from .digest import Digest
from .finding import Finding, Kind
from .report import Difference, DifferenceKind, NotCompared, OffsetRange, Side

__all__ = ["MOST_RANGES", "Ranges", "Tally"]

#: So many ranges are listed for a partition; the others are counted.
MOST_RANGES = 100

R = TypeVar("R", Difference, NotCompared)


class Ranges(Generic[R]):
    """
    Ranges joined where they follow each other; the first so many of them.

    Attributes:
        omitted: How many more there were.

    """

    def __init__(self) -> None:
        self.omitted = 0
        self._listed: list[R] = []
        self._last: R | None = None

    def __len__(self) -> int:
        return len(self._listed) + self.omitted + (self._last is not None)

    def add(self, new: R, follows: tuple[int, int]) -> None:
        """
        Add a range.

        Args:
            new: The range; it is joined with the last where it is of the same sort.
            follows: Where the batch before its first one ends, in the source
                and at the destination: between the two nothing was compared.

        """
        joined = _join(self._last, new, follows) if self._last else None
        if joined is None:
            self._list_last()
        self._last = joined or new

    def listed(self) -> tuple[R, ...]:
        """Return the ranges by place; nothing is joined to them any more."""
        self._list_last()
        return tuple(sorted(self._listed, key=lambda each: (each.source, each.destination)))

    def _list_last(self) -> None:
        if self._last is not None and len(self._listed) < MOST_RANGES:
            self._listed.append(self._last)
        elif self._last is not None:
            self.omitted += 1
        self._last = None


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
        batches=last.batches + new.batches,
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
    What was found so far in one partition.

    Attributes:
        records: That are the same on both sides.
        batches: Likewise; the source's.
        decoded_records: Those of them that were compared one by one.
        decoded_batches: Likewise.
        source_offset: How far the source is compared.
        destination_offset: How far the destination is compared.
        differences: Ranges in which both sides differ.
        counts: Batches and records that differ, by kind.
        not_compared: Ranges that could not be compared.

    """

    def __init__(self) -> None:
        self.records = 0
        self.batches = 0
        self.decoded_records = 0
        self.decoded_batches = 0
        self._same_until = -1
        self._is_whole = False
        self.source_offset = 0
        self.destination_offset = 0
        self.differences = Ranges[Difference]()
        self.counts: dict[DifferenceKind, tuple[int, int]] = {}
        self.not_compared = Ranges[NotCompared]()

    def add(self, finding: Finding) -> None:
        """Count a finding; not for ``NOT_MIRRORED`` and ``DIVERGED``, which end a comparison."""
        if finding.source:
            self.source_offset = max(self.source_offset, finding.source[-1].next_offset)
        if finding.destination:
            self.destination_offset = max(self.destination_offset, finding.destination[-1].next_offset)
        if finding.kind is Kind.SAME and not finding.source[0].is_record:
            self.batches += 1
            self.records += finding.source[0].records
            self._same_until, self._is_whole = finding.source[0].next_offset, True
        elif finding.kind in (Kind.SAME, Kind.DECODED):
            self._add_decoded(finding)
        elif finding.kind in _DIFFERENCES:
            self._add_finding(finding, _DIFFERENCES[finding.kind])
        else:
            self._add_not_compared(finding)

    def _add_decoded(self, finding: Finding) -> None:
        if not finding.source:
            return
        (batch,) = finding.source
        self.records += batch.records
        self.decoded_records += batch.records
        # Of records, those that follow each other up to the last make a batch.
        self._is_whole = not batch.is_record or (self._is_whole and batch.follows == self._same_until)
        if self._is_whole and (batch.is_last or not batch.is_record):
            self.batches += 1
            self.decoded_batches += 1
        self._same_until = batch.next_offset

    def add_difference(self, difference: Difference, follows: tuple[int, int]) -> None:
        """Count a range in which both sides differ; see :meth:`Ranges.add`."""
        self.differences.add(difference, follows)
        batches, records = self.counts.get(difference.kind, (0, 0))
        self.counts[difference.kind] = batches + difference.batches, records + difference.records

    def _add_finding(self, finding: Finding, kind: DifferenceKind) -> None:
        damage = _damage(finding)
        copied = finding.copy_of
        difference = Difference(
            kind,
            *_offsets(finding),
            *_size(finding),
            tuple(damage),
            OffsetRange(copied.base_offset, copied.next_offset) if copied else None,
            next(iter(damage.values()), None) or _only_time(finding),
        )
        self.add_difference(difference, _follows(finding))

    def _add_not_compared(self, finding: Finding) -> None:
        not_compared = NotCompared(*_offsets(finding), *_size(finding), _why_not(finding))
        self.not_compared.add(not_compared, _follows(finding))


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


def _range(batches: Sequence[Digest], place: int) -> OffsetRange:
    return (
        OffsetRange(batches[0].base_offset, batches[-1].next_offset) if batches else OffsetRange(place, place)
    )


def _size(finding: Finding) -> tuple[int, int]:
    return (
        0 if _is_of_records(finding) else max(len(finding.source), len(finding.destination)),
        max(sum(batch.records for batch in side) for side in (finding.source, finding.destination)),
    )


def _is_of_records(finding: Finding) -> bool:
    return any(batch.is_record for batch in (*finding.source, *finding.destination))


def _follows(finding: Finding) -> tuple[int, int]:
    return (
        finding.source[0].follows if finding.source else finding.source_place,
        finding.destination[0].follows if finding.destination else finding.destination_place,
    )


def _damage(finding: Finding) -> dict[Side, str]:
    """Say of each side that has a damaged batch which one and how."""
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
    if not source.is_record or source.fingerprint is None or destination.fingerprint is None:
        return None
    is_equal = source.fingerprint[:2] == destination.fingerprint[:2]
    return _ONLY_TIME if is_equal else None


def _why_not(finding: Finding) -> str:
    if finding.kind is Kind.COMPACTED:
        side = Side.DESTINATION if finding.source else Side.SOURCE
        return f"compaction took it away in the {side.value} cluster since it was copied"
    reasons = (batch.undecoded for batch in (*finding.source, *finding.destination))
    return next(reason for reason in reasons if reason)
