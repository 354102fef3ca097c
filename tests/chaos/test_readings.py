"""The verdict on consumers finds records that were read twice, missed or invented, and whose fault it is."""

from __future__ import annotations

import pytest

from tests.chaos.readings import Reading, Stay, judge

EXPECTED = range(1, 9)


def stays(*records: range | list[int], exact: bool = True) -> list[Stay]:
    """Return stays at both clusters in turn; the first begins without a translation."""
    sides = ["source", "destination"] * len(records)
    return [
        Stay(side, exact or number == 0, list(each))
        for number, (side, each) in enumerate(zip(sides, records, strict=False))
    ]


def counts(reading: Reading) -> tuple[int, int, int, int, int]:
    assert reading.is_kept == (not reading.details)
    return reading.records, reading.missing, reading.twice, reading.again, reading.foreign


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    "read",
    [
        [range(1, 9)],
        [range(1, 4), range(4, 9)],
        [range(1, 1), range(1, 9)],
        [range(1, 4), range(4, 6), range(6, 6), range(6, 9)],
        [range(1, 9), range(9, 9)],
    ],
)
def test_records_read_once_in_order_are_right(read: list[range], exact: bool) -> None:
    assert counts(judge(EXPECTED, stays(*read, exact=exact))) == (8, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("read", "records", "missing"),
    [
        ([range(1, 4), range(5, 9)], 7, 1),
        ([range(1, 4), range(4, 8)], 7, 1),
        ([range(3, 5), range(6, 9)], 5, 3),
        ([[], []], 0, 8),
    ],
)
@pytest.mark.parametrize("exact", [True, False])
def test_skipped_records_are_missing_however_exact_the_translation(
    read: list[range | list[int]], records: int, missing: int, exact: bool
) -> None:
    assert counts(judge(EXPECTED, stays(*read, exact=exact))) == (records, missing, 0, 0, 0)


@pytest.mark.parametrize(("exact", "twice", "again"), [(True, 2, 0), (False, 0, 2)])
def test_repeated_records_are_wrong_after_an_exact_translation(exact: bool, twice: int, again: int) -> None:
    found = judge(EXPECTED, stays(range(1, 6), range(4, 9), exact=exact))
    assert counts(found) == (10, 0, twice, again, 0)


def test_repeated_records_within_the_first_stay_are_wrong() -> None:
    found = judge(EXPECTED, stays([1, 2, 3, 3], range(4, 9), exact=False))
    assert counts(found) == (9, 0, 1, 0, 0)


def test_records_that_the_source_never_had_are_foreign() -> None:
    assert counts(judge(EXPECTED, stays(range(1, 4), [4, 99, *range(5, 9)]))) == (9, 0, 0, 0, 1)


def test_group_moved_by_an_operator_begins_at_its_new_offset() -> None:
    assert counts(judge(EXPECTED, stays(range(5, 9)), first=4)) == (4, 0, 0, 0, 0)
    assert counts(judge(EXPECTED, stays(range(1, 4)), to_end=False)) == (3, 0, 0, 0, 0)


def test_lost_records_may_be_missing_and_no_others() -> None:
    read = stays(range(1, 3), [5, 6])
    assert counts(judge(EXPECTED, read, lost={3, 4, 7, 8})) == (4, 0, 0, 0, 0)
    assert counts(judge(EXPECTED, read, lost={3, 7})) == (4, 2, 0, 0, 0)


def test_readings_add_up() -> None:
    right, wrong = Reading(records=3), Reading(2, 1, 1, 1, 1, ("a detail",))
    assert right + wrong == Reading(5, 1, 1, 1, 1, ("a detail",))
    assert str(right + wrong) == "5 records read by consumers that moved, 1 twice, 1 missing, 1 again"
