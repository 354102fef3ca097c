"""A comparison that did not see what is lost, doubled or out of order would make every trial exact."""

from __future__ import annotations

from chaos.compare import compare

from rig.record import Record


def records(*keys: int) -> list[Record]:
    return [Record(b"%d" % key, b"value", (), 1, offset=offset) for offset, key in enumerate(keys)]


def counts(source: list[Record], destination: list[Record]) -> tuple[int, int, int]:
    found = compare({0: source}, {0: destination})
    assert found.is_exact == (found.lost == found.duplicated == found.reordered == 0)
    assert found.is_exact or found.details
    return found.lost, found.duplicated, found.reordered


def test_what_is_equal_is_exact() -> None:
    assert counts(records(1, 2, 3), records(1, 2, 3)) == (0, 0, 0)
    assert compare({0: records(1, 2), 1: records(3)}, {0: records(1, 2), 1: records(3)}).records == 3


def test_what_is_lost_is_counted() -> None:
    assert counts(records(1, 2, 3, 4), records(1, 4)) == (2, 0, 0)
    assert compare({0: records(1), 1: records(2)}, {0: records(1)}).lost == 1


def test_what_is_doubled_is_counted() -> None:
    assert counts(records(1, 2), records(1, 2, 2, 1)) == (0, 2, 0)


def test_what_was_never_in_the_source_is_counted() -> None:
    assert counts(records(1, 2), records(1, 9, 2)) == (0, 1, 0)


def test_what_is_out_of_order_is_counted() -> None:
    assert counts(records(1, 2, 3), records(2, 1, 3)) == (0, 0, 2)


def test_what_is_altered_is_lost_and_more() -> None:
    altered = [Record(b"1", b"another value", (), 1)]
    assert counts(records(1), altered) == (1, 1, 0)


def test_records_in_another_partition_are_lost_there() -> None:
    found = compare({0: records(1), 1: []}, {0: [], 1: records(1)})
    assert (found.lost, found.duplicated) == (1, 1)
