"""Two readings of a topic, record by record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rig.record import Record

__all__ = ["Comparison", "compare"]

#: So many differences are described.
_DESCRIBED = 5


@dataclass(frozen=True, slots=True)
class Comparison:
    """
    Attributes:
        records: Of the source.
        lost: In the source, not in the destination.
        duplicated: More often in the destination than in the source; what was never in the source
            counts here, too.
        reordered: In both as often, in another order.
        details: The first differences, for people.
    """

    records: int = 0
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    details: tuple[str, ...] = ()

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
        )


def compare(
    source: Mapping[int, Sequence[Record]], destination: Mapping[int, Sequence[Record]]
) -> Comparison:
    """Count what differs in partition, key, value, headers, timestamp or order; offsets may differ."""
    result = Comparison()
    for partition in sorted({*source, *destination}):
        result += _compare(partition, source.get(partition, ()), destination.get(partition, ()))
    return result


def _compare(partition: int, source: Sequence[Record], destination: Sequence[Record]) -> Comparison:
    ours, theirs = [_content(each) for each in source], [_content(each) for each in destination]
    if ours == theirs:
        return Comparison(records=len(ours))
    lost, more = Counter(ours) - Counter(theirs), Counter(theirs) - Counter(ours)
    kept = Counter(ours) & Counter(theirs)
    reordered = sum(a != b for a, b in zip(_only(ours, kept), _only(theirs, kept), strict=True))
    details = [f"partition {partition}: {len(ours)} records in the source, {len(theirs)} in the destination"]
    # Of what is doubled the later ones are the doubles.
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
