"""The first place that two logs have in common, found by their records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.verify.common_start import CommonStart, FoundStart, begin_alike, common_starts
from shoal.verify.log_head import LogHead, Neighbourhood, SeenRecord


def stream(contents: Iterable[object], first: int = 0) -> list[SeenRecord]:
    """Return records that hold these; a content of two parts is a body and a time."""
    neighbours = Neighbourhood()
    found = []
    for offset, content in enumerate(contents, first):
        body, time = content if isinstance(content, tuple) else (content, hash(content))
        found.append(SeenRecord(offset, ((hash(body), time),), neighbours.contexts(hash(body))))
    return found


def holed(contents: Iterable[object], first: int = 0) -> list[SeenRecord]:
    """Return records that hold these; None is an offset without a record."""
    found: list[SeenRecord] = []
    follows = first
    for offset, content in enumerate(contents, first):
        if content is not None:
            (record,) = stream([content], offset)
            found.append(record._replace(gap_before=offset - follows))
            follows = offset + 1
    return found


def starts(
    source: Sequence[SeenRecord], destination: Sequence[SeenRecord], *, whole: bool = False
) -> list[FoundStart]:
    heads = LogHead(source), LogHead(destination)
    begin = CommonStart(source[0].offset if source else 0, destination[0].offset if destination else 0)
    return common_starts(heads, source, destination, begin, source_is_whole=whole)


def start(
    source: Iterable[object], destination: Iterable[object], *, whole: bool = False
) -> CommonStart | None:
    found = starts(stream(source), stream(destination), whole=whole)
    return found[0].place if found else None


@given(st.integers(1, 200), st.data())
def test_common_start_after_retention_on_both_sides_is_the_later_log_start(
    length: int, data: st.DataObject
) -> None:
    mirrored_from = data.draw(st.integers(0, length - 1))
    source_from = data.draw(st.integers(0, length - 1))
    destination_from = data.draw(st.integers(mirrored_from, length - 1))
    found = start(range(source_from, length), range(destination_from, length))
    common = max(source_from, destination_from)
    assert found == (common - source_from, common - destination_from)


@pytest.mark.parametrize(
    ("source", "destination", "expected"),
    [
        # The first record is in the source twice: that counts from which on the rest follows.
        ("aabcdefghij", "abcdefghij", (1, 0)),
        # Missing at the very beginning; another writer's record in front.
        ("zabcdefghijklm", "acdefghijklm", (1, 0)),
        ("zabcdefghijklm", "Xabcdefghijklm", (1, 0)),
        # Too short for a proof.
        ("zabc", "bc", (2, 0)),
        ("zabc", "c", (3, 0)),
        ("abcdefghijklm", "xyz", None),
        ("", "a", None),
        ("a", "", None),
        # Nothing but repetition: the first place at which the head is whole.
        ("aaaa", "aa", (0, 0)),
        ("aabbaabbb", "bbb", (6, 0)),
    ],
)
def test_common_start_of_short_logs(source: str, destination: str, expected: tuple[int, int] | None) -> None:
    assert start(source, destination) == expected


def test_common_start_of_an_altered_first_record_is_its_place() -> None:
    source = [("z", 0), ("a", 1), *((letter, 2 + n) for n, letter in enumerate("bcdefghijklm"))]
    destination = [("altered", 1), *source[2:]]
    assert start(source, destination) == (1, 0)


def test_common_start_leaves_out_records_that_the_source_may_have_deleted() -> None:
    assert start("bcdefghijklm", "abcdefghijklm") == (0, 1)
    assert start("bcdefghijklm", "abcdefghijklm", whole=True) == (0, 0)


def test_common_start_of_a_record_sent_twice_is_the_one_that_the_rest_follows() -> None:
    # 40 records twice, as a producer without idempotence sends a batch again.
    source = [*range(40), *range(40), *range(40, 400)]
    assert start(source, [*range(400)]) == (40, 0)


def test_common_starts_of_repetition_include_the_last_place() -> None:
    found = starts(stream("aaaa", first=5), stream("aaaaaa"))
    assert CommonStart(5, 2) in [each.place for each in found]
    assert not any(each.is_proven for each in found)


def test_common_starts_include_a_stream_that_ends_within_the_head() -> None:
    found = starts(stream("aaaaaaaa", first=5), stream("bcaaaa"))
    assert CommonStart(5, 2) in [each.place for each in found]


def test_begin_alike_needs_all_or_a_proof() -> None:
    def begin(source: Iterable[object], destination: Iterable[object]) -> FoundStart | None:
        return begin_alike(LogHead(stream(source)), LogHead(stream(destination)))

    assert begin("abc", "abcd") == FoundStart(CommonStart(0, 0), is_proven=False)
    assert begin("abc", "abd") is None
    assert begin(range(100), [*range(50), *range(51, 100)]) == FoundStart(CommonStart(0, 0), is_proven=True)
    assert begin([1] * 100, [1] * 90) == FoundStart(CommonStart(0, 0), is_proven=False)
    assert begin("", "a") is None


#: Enough records for a proof.
COMMON = range(1000, 1100)


@pytest.mark.parametrize(
    ("source", "destination", "expected"),
    [
        # The cleaner of the source removed the copy's first records, and retention its older ones.
        (holed([*"0123456789", None, None, *COMMON]), holed([*"ab", *COMMON], 50), (10, 50)),
        # The cleaner of the destination removed the source's first record, and retention its older ones.
        (holed(["a", *COMMON], 50), holed([*"0123456789", None, *COMMON]), (50, 10)),
        (holed([*"ab", *COMMON], 50), holed(["0", None, None, *COMMON]), (50, 1)),
        # The same, and the cleaner of the source removed a record behind it.
        (holed(["a", None, *COMMON], 50), holed([*"0123456789", None, "b", *COMMON]), (50, 10)),
    ],
)
def test_common_starts_include_places_beside_gaps(
    source: list[SeenRecord], destination: list[SeenRecord], expected: tuple[int, int]
) -> None:
    found = starts(source, destination)
    assert CommonStart(*expected) in [found[0].place, *found[0].beside_gaps]


def test_common_starts_beside_gaps_that_are_too_small_are_left_out() -> None:
    found = starts(holed([*"0123456789", None, *COMMON]), holed([*"ab", *COMMON], 50))
    assert not any(each.beside_gaps for each in found)


def test_common_starts_with_more_than_half_of_the_records_show_a_copy() -> None:
    def shown(count: int) -> set[tuple[bool, bool]]:
        found = starts(stream(range(40)), stream([*range(100, 131), *range(count)]))
        return {(each.is_proven, each.is_copy) for each in found}

    assert (shown(20), shown(21)) == ({(False, False)}, {(False, True)})


def test_common_starts_read_no_more_than_needed() -> None:
    taken = []

    def counted(side: str, records: Sequence[SeenRecord]) -> Iterator[SeenRecord]:
        for record in records:
            taken.append(side)
            yield record

    source, destination = stream(range(5000)), stream(range(1000, 5000))
    heads = LogHead(source), LogHead(destination)
    found = common_starts(
        heads, counted("source", source), counted("destination", destination), CommonStart(0, 0)
    )
    assert found[0] == FoundStart(CommonStart(1000, 0), is_proven=True, is_copy=True)
    assert taken.count("source") <= 1000 + 256
    assert taken.count("destination") <= 1000 + 256
