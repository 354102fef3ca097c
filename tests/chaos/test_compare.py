"""The comparison finds lost, duplicated and reordered records; otherwise every trial would be exact."""

from __future__ import annotations

import pytest

from rig.record import Record
from tests.chaos.compare import compare, compare_at_least_once, mirrored_of, while_stopped


def records(*keys: int) -> list[Record]:
    return [Record(b"%d" % key, b"value", (), 1, offset=offset) for offset, key in enumerate(keys)]


def counts(source: list[Record], destination: list[Record]) -> tuple[int, int, int]:
    found = compare({0: source}, {0: destination})
    assert found.is_exact == (found.lost == found.duplicated == found.reordered == 0)
    assert found.is_exact or found.details
    return found.lost, found.duplicated, found.reordered


def test_equal_records_are_exact() -> None:
    assert counts(records(1, 2, 3), records(1, 2, 3)) == (0, 0, 0)
    assert compare({0: records(1, 2), 1: records(3)}, {0: records(1, 2), 1: records(3)}).records == 3


def test_lost_records_are_counted() -> None:
    assert counts(records(1, 2, 3, 4), records(1, 4)) == (2, 0, 0)
    assert compare({0: records(1), 1: records(2)}, {0: records(1)}).lost == 1


def test_duplicated_records_are_counted() -> None:
    assert counts(records(1, 2), records(1, 2, 2, 1)) == (0, 2, 0)


def test_foreign_records_are_counted() -> None:
    assert counts(records(1, 2), records(1, 9, 2)) == (0, 1, 0)


def test_reordered_records_are_counted() -> None:
    assert counts(records(1, 2, 3), records(2, 1, 3)) == (0, 0, 2)


def test_altered_record_is_lost_and_foreign() -> None:
    altered = [Record(b"1", b"another value", (), 1)]
    assert counts(records(1), altered) == (1, 1, 0)


def test_records_in_another_partition_are_lost() -> None:
    found = compare({0: records(1), 1: []}, {0: [], 1: records(1)})
    assert (found.lost, found.duplicated) == (1, 1)


def test_at_least_once_counts_lost_and_foreign_records() -> None:
    found = compare_at_least_once({0: records(1, 2, 3)}, {0: records(1, 9, 3)})
    assert (found.lost, found.duplicated, found.again, found.is_exact) == (1, 1, 0, False)
    assert found.details


def test_at_least_once_counts_repeated_records_as_exact() -> None:
    found = compare_at_least_once({0: records(1, 2, 3)}, {0: records(1, 2, 1, 2, 3)})
    assert (found.records, found.is_exact, found.again) == (3, True, 2)


@pytest.mark.parametrize(
    ("copy", "has_stopped", "is_kept"),
    [
        (records(1, 2), True, True),
        (records(1, 2, 3), True, True),
        (records(7, 8), False, True),
        (records(), True, True),
        (records(1, 2), False, False),
        (records(1, 7), True, False),
        (records(1, 2, 3, 7, 8), True, False),
        (records(7), False, False),
        (records(8, 7), False, False),
        (records(2, 3), True, False),
    ],
)
def test_stop_at_a_recreated_topic_is_kept_if_no_record_is_mixed(
    copy: list[Record], has_stopped: bool, is_kept: bool
) -> None:
    problems = while_stopped(records(1, 2, 3), records(7, 8), copy, has_stopped=has_stopped)
    assert (problems == []) is is_kept


def test_mirrored_of_returns_the_first_records_in_order() -> None:
    assert [each.key for each in mirrored_of(records(1, 2, 3), records(1, 2, 7))] == [b"1", b"2"]
    assert mirrored_of(records(1, 2, 3), records(2, 3)) == []
