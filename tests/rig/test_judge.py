"""The judge finds records that are missing, twice, late or foreign; without it every trial would be exact."""

from __future__ import annotations

import pytest

from rig.judge import Loss, Stay, Verdict, compare, judge, judge_copy
from rig.record import Record


def records(*keys: int) -> list[Record]:
    return [Record(b"%d" % key, b"value", (), 1, offset=offset) for offset, key in enumerate(keys)]


def wrong(source: list[Record], destination: list[Record], *, at_least_once: bool = False) -> dict[str, int]:
    """Return the counts other than 0 of what is wrong with a copy, and of what may come again."""
    found = compare({0: source}, {0: destination}, at_least_once=at_least_once)
    assert found.is_exact == (not found.details)
    assert (found.due, found.arrived) == (len(source), len(destination))
    counts = {name: getattr(found, name) for name in ("missing", "twice", "late", "foreign", "again")}
    return {name: count for name, count in counts.items() if count}


@pytest.mark.parametrize(
    ("copy", "counts"),
    [
        ((1, 2, 3, 4), {}),
        ((1, 4), {"missing": 2}),
        ((), {"missing": 4}),
        ((1, 2, 3, 4, 4, 1), {"twice": 2}),
        ((1, 9, 2, 3, 4), {"foreign": 1}),
        ((2, 1, 3, 4), {"late": 1}),
        ((4, 3, 2, 1), {"late": 3}),
        ((1, 3, 3, 9, 2), {"missing": 1, "twice": 1, "late": 1, "foreign": 1}),
    ],
)
def test_copy_with_wrong_records_is_not_exact(copy: tuple[int, ...], counts: dict[str, int]) -> None:
    assert wrong(records(1, 2, 3, 4), records(*copy)) == counts


@pytest.mark.parametrize(
    ("copy", "counts"),
    [
        ((1, 1, 2, 1), {}),
        ((1, 2, 1), {"missing": 1, "late": 1}),
        ((1, 1, 1, 2), {"late": 1}),
        ((1, 1, 2, 1, 1), {"twice": 1}),
    ],
)
def test_equal_records_are_counted_one_by_one(copy: tuple[int, ...], counts: dict[str, int]) -> None:
    assert wrong(records(1, 1, 2, 1), records(*copy)) == counts


@pytest.mark.parametrize(
    "altered",
    [
        Record(b"1", b"other", (), 1),
        Record(b"", b"value", (), 1),
        Record(b"1", b"value", (("h", None),), 1),
        Record(b"1", b"value", (), 2),
    ],
)
def test_altered_record_is_missing_and_foreign(altered: Record) -> None:
    assert wrong(records(1), [altered]) == {"missing": 1, "foreign": 1}


def test_at_least_once_allows_records_again_and_late_alone() -> None:
    assert wrong(records(1, 2, 3), records(1, 2, 1, 2, 3), at_least_once=True) == {"again": 2}
    assert wrong(records(1, 2, 3), records(2, 1, 3), at_least_once=True) == {}
    assert wrong(records(1, 2, 3), records(1, 9, 3), at_least_once=True) == {"missing": 1, "foreign": 1}


# Losses that were reported

WRITTEN = list(enumerate(b"abcdef"))


def without(missing: list[int], losses: list[Loss]) -> Verdict:
    """Judge a copy that lacks some records."""
    return judge_copy(WRITTEN, [each for each in WRITTEN if each[0] not in missing], losses=losses)


@pytest.mark.parametrize(
    ("losses", "missing"),
    [
        ([Loss(1, 6)], [3]),
        ([Loss(2, 6), Loss(1, 2)], [1, 3, 4]),
        ([Loss(None, 3)], [0, 1, 2]),
        ([Loss(None, 3), Loss(1, 6)], [0, 1, 2, 5]),
    ],
)
def test_missing_records_are_right_if_all_were_reported_as_lost(
    losses: list[Loss], missing: list[int]
) -> None:
    found = without(missing, losses)
    assert found.is_exact
    assert list(found.lacking) == missing


@pytest.mark.parametrize(
    ("losses", "missing", "wrong"),
    [
        ([], [3], [3]),
        ([Loss(1, 6)], [3, 4], [3]),
        ([Loss(2, 2), Loss(1, 6)], [3, 4], [3]),
        ([Loss(None, 3)], [1, 2, 3], [3]),
        ([Loss(None, 3), Loss(1, 6)], [0, 4, 5], [4]),
    ],
    ids=["none reported", "fewer reported", "reported before", "unknown before", "unknown and one more"],
)
def test_missing_record_is_wrong_if_it_was_written_after_the_reported_losses(
    losses: list[Loss], missing: list[int], wrong: list[int]
) -> None:
    found = without(missing, losses)
    assert list(found.details) == [f"missing: {WRITTEN[place][1]} at offset {place}" for place in wrong]
    assert list(found.lacking) == missing


def test_copy_may_lack_records_that_were_deleted_and_no_others() -> None:
    copy = [WRITTEN[0], WRITTEN[3]]
    assert judge_copy(WRITTEN, copy, least=4, may_lack=[1, 2]).is_exact
    assert judge_copy(WRITTEN, copy, least=4, may_lack=[1]).missing == 1
    assert judge_copy(WRITTEN, copy, may_lack=[1, 2]).missing == 2


def test_copy_may_lack_the_first_of_equal_records() -> None:
    again = [(0, "a"), (1, "b"), (2, "a")]
    assert judge_copy(again, [(0, "b"), (1, "a")], may_lack=[0]).is_exact
    assert not judge_copy(again, [(0, "b"), (1, "a")]).is_exact
    assert not judge_copy(again, [(0, "b"), (1, "a"), (2, "a")], may_lack=[0]).is_exact
    assert judge_copy(again, [(0, "a"), (1, "b")], least=2, may_lack=[0]).is_exact


# Readers that move


EXPECTED = range(1, 9)


def stays(*records: range | list[int], exact: bool = True) -> list[Stay]:
    """Return stays at both clusters in turn; the first begins without a translation."""
    sides = ["source", "destination"] * len(records)
    return [
        Stay(side, exact or number == 0, list(each))
        for number, (side, each) in enumerate(zip(sides, records, strict=False))
    ]


def counts(verdict: Verdict) -> tuple[int, int, int, int, int]:
    assert verdict.is_exact == (not verdict.details)
    return verdict.arrived, verdict.missing, verdict.twice, verdict.again, verdict.foreign


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


def test_records_that_the_source_never_had_are_foreign() -> None:
    assert counts(judge(EXPECTED, stays(range(1, 4), [4, 99, *range(5, 9)]))) == (9, 0, 0, 0, 1)


def test_lost_records_may_be_missing_and_no_others() -> None:
    read = stays(range(1, 3), [5, 6])
    assert counts(judge(EXPECTED, read, lost={3, 4, 7, 8})) == (4, 0, 0, 0, 0)
    assert counts(judge(EXPECTED, read, lost={3, 7})) == (4, 2, 0, 0, 0)


def test_lost_record_that_another_cluster_still_has_may_come_late() -> None:
    read = stays(range(1, 3), [5, 6], range(3, 9), exact=False)
    assert counts(judge(EXPECTED, read, lost={3, 4})) == (10, 0, 0, 4, 0)
    assert judge(EXPECTED, read).late == 2


def test_copy_may_lack_equal_records_before_and_behind_those_it_has() -> None:
    again = [(offset, content) for offset, content in enumerate("abababc")]
    lacking = [0, 1, 4, 5]
    assert judge_copy(again, [(0, "a"), (1, "b"), (2, "c")], may_lack=lacking).is_exact
    assert not judge_copy(again, [(0, "b"), (1, "a"), (2, "c")], may_lack=lacking).is_exact
    assert not judge_copy(again, [(0, "a"), (1, "b"), (2, "a"), (3, "c")], may_lack=lacking[:3]).is_exact


def test_copy_that_lacks_records_before_the_later_of_equal_ones_has_the_former() -> None:
    again = list(enumerate("acaxca"))
    assert judge_copy(again, [(0, "c"), (1, "a")], least=0, may_lack=[0, 1, 2]).is_exact


def test_copy_has_as_many_of_equal_records_as_it_can() -> None:
    """Its two are those of the middle, where one may lack: two that may not would leave it one too many."""
    again = list(enumerate("abrab"))
    assert judge_copy(again, [(0, "b"), (1, "a")], may_lack=[1, 3], losses=[Loss(3, 5)]).is_exact
