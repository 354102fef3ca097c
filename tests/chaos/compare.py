"""Compare two readings of a topic, record by record."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rig.record import Record

__all__ = ["Comparison", "compare", "compare_at_least_once", "mirrored_of", "while_stopped"]

#: Number of differences to describe.
_DESCRIBED = 5


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences between two readings.

    Attributes:
        records: Number of records in the source.
        lost: Records in the source but not in the destination.
        duplicated: Surplus records in the destination, including records that were never in the source.
        reordered: Records that occur equally often in both, in another order.
        details: Descriptions of the first differences.
        again: Surplus records in the destination, as `compare_at_least_once` allows.
    """

    records: int = 0
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    details: tuple[str, ...] = ()
    again: int = 0

    @property
    def is_exact(self) -> bool:
        return not (self.lost or self.duplicated or self.reordered)

    def __add__(self, other: Comparison) -> Comparison:
        return Comparison(
            self.records + other.records,
            self.lost + other.lost,
            self.duplicated + other.duplicated,
            self.reordered + other.reordered,
            self.details + other.details,
            self.again + other.again,
        )


def compare(
    source: Mapping[int, Sequence[Record]], destination: Mapping[int, Sequence[Record]]
) -> Comparison:
    """Count differences in partition, key, value, headers, timestamp or order; offsets may differ."""
    result = Comparison()
    for partition in sorted({*source, *destination}):
        result += _compare(partition, source.get(partition, ()), destination.get(partition, ()))
    return result


def compare_at_least_once(
    source: Mapping[int, Sequence[Record]], destination: Mapping[int, Sequence[Record]]
) -> Comparison:
    """Count records that are lost or were never in the source; a repeated record is no difference.

    Nor is its order: a first copy may come late.
    """
    result = Comparison()
    for partition in sorted({*source, *destination}):
        ours, theirs = source.get(partition, ()), destination.get(partition, ())
        wanted = {_content(each) for each in ours}
        held = {_content(each) for each in theirs}
        lost = [each for each in ours if _content(each) not in held]
        foreign = [each for each in theirs if _content(each) not in wanted]
        details = [f"partition {partition}: lost: key {each.key!r}" for each in lost[:_DESCRIBED]]
        details += [f"partition {partition}: foreign: key {each.key!r}" for each in foreign[:_DESCRIBED]]
        again = len(theirs) - len(foreign) - len(held & wanted)
        result += Comparison(len(ours), len(lost), len(foreign), 0, tuple(details), again)
    return result


def mirrored_of(former: Sequence[Record], copy: Sequence[Record]) -> list[Record]:
    """Return the copied records of a topic that was deleted: the first ones of a partition's copy."""
    both = zip(former, copy, strict=False)
    same = itertools.takewhile(lambda position: _content(position[0]) == _content(position[1]), both)
    return [record for record, _ in same]


def while_stopped(
    former: Sequence[Record], now: Sequence[Record], copy: Sequence[Record], *, has_stopped: bool
) -> list[str]:
    """Describe how a mirror that must stop at a recreated topic mixed both topics, or did not stop.

    If a partition's copy has any record of the former topic, it must have none of the new one; otherwise it
    must have all of them.
    """
    mirrored = mirrored_of(former, copy)
    of_new = [_content(each) for each in copy[len(mirrored) :]]
    if mirrored and of_new:
        return [f"{len(of_new)} records are behind the {len(mirrored)} of the former topic"]
    if mirrored and not has_stopped:
        return [f"it did not stop, and has {len(mirrored)} records of the former topic"]
    if not mirrored and of_new != ([] if has_stopped else [_content(each) for each in now]):
        return [f"it has {len(of_new)} records, not the new topic's {len(now)}"]
    return []


def _compare(partition: int, source: Sequence[Record], destination: Sequence[Record]) -> Comparison:
    ours, theirs = [_content(each) for each in source], [_content(each) for each in destination]
    if ours == theirs:
        return Comparison(records=len(ours))
    lost, more = Counter(ours) - Counter(theirs), Counter(theirs) - Counter(ours)
    kept = Counter(ours) & Counter(theirs)
    reordered = sum(a != b for a, b in zip(_only(ours, kept), _only(theirs, kept), strict=True))
    details = [f"partition {partition}: {len(ours)} records in the source, {len(theirs)} in the destination"]
    # Of duplicates, the later ones are surplus.
    for what, which, where in (("lost", lost, source), ("duplicated", more, destination[::-1])):
        found = [each for each in where if _content(each) in which]
        details += [f"  {what}: key {each.key!r} at offset {each.offset}" for each in found[:_DESCRIBED]]
    return Comparison(len(ours), lost.total(), more.total(), reordered, tuple(details))


def _content(record: Record) -> tuple[object, ...]:
    return (record.key, record.value, record.headers, record.timestamp)


def _only(contents: Sequence[tuple[object, ...]], kept: Counter[tuple[object, ...]]) -> list[object]:
    """Return the first occurrences that both sides have, in their order."""
    left = Counter(kept)
    found: list[object] = []
    for each in contents:
        if left[each] > 0:
            left[each] -= 1
            found.append(each)
    return found
