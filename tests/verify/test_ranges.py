"""Records joined to ranges."""

from __future__ import annotations

from shoal.verify import DifferenceKind, OffsetRange
from shoal.verify.ranges import Explanation, Ranges, one

MISSING = Explanation(DifferenceKind.MISSING)
UNKNOWN = Explanation(None, "no key")


def place(offset: int) -> OffsetRange:
    return OffsetRange(offset, offset)


def test_records_that_follow_each_other_are_one_range_in_any_order_of_adding() -> None:
    ranges = Ranges()
    for offset in (3, 1, 2, 7):
        ranges.add(MISSING, one(offset), place(0))
    assert [(each.source, each.records) for each in ranges.differences()] == [((1, 4), 3), ((7, 8), 1)]


def test_ranges_that_could_not_be_compared_are_counted_once() -> None:
    ranges = Ranges()
    for offset in (2, 1):
        ranges.add(UNKNOWN, one(offset), place(0))
    ranges.add(MISSING, one(3), place(0))
    assert len(ranges.differences()) == 1
    assert [(each.source, each.records) for each in ranges.not_compared()] == [((1, 3), 2)]


def test_doubles_of_records_elsewhere_are_other_ranges() -> None:
    ranges = Ranges()
    for there, here in ((5, 1), (6, 2), (7, 9)):
        ranges.add(Explanation(DifferenceKind.EXTRA), place(4), one(there), copy_of=one(here))
    found = [(each.destination, each.copy_of) for each in ranges.differences()]
    assert found == [((5, 7), (1, 3)), ((7, 8), (9, 10))]
