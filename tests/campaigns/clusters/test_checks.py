"""The judge of copies between real clusters finds what is wrong with a partition, and with its position."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rig.record import Record
from shoal.mirroring.model.offset_map import OffsetMap
from shoal.mirroring.model.position import MirrorPosition, ProducerIdentity
from tests.campaigns.clusters.checks import Copy
from tests.campaigns.clusters.topics import mirrored_of


def records(*keys: int) -> list[Record]:
    return [Record(b"%d" % key, b"value", (), 1, offset=offset) for offset, key in enumerate(keys)]


def position(source_offset: int, destination_offset: int) -> MirrorPosition:
    begun = OffsetMap.begun_at(0, 0)
    return MirrorPosition(
        source_offset, destination_offset, ProducerIdentity(1, 0), (0, 0), None, None, "rules", begun
    )


def by_way_of(source_offset: int, destination_offset: int) -> MirrorPosition:
    """A right position, whose map has one more place."""
    begun = OffsetMap.begun_at(0, 0).reached(source_offset, destination_offset)
    return replace(position(3, 3), milestones=begun)


#: Half of a partition, with a position before its end.
HALF = Copy(now=records(1, 2, 3, 4), copy=records(1, 2, 3), position=position(2, 2))


def test_mirrored_of_returns_the_first_records_in_order() -> None:
    assert [each.key for each in mirrored_of(records(1, 2, 3), records(1, 2, 7))] == [b"1", b"2"]
    assert mirrored_of(records(1, 2, 3), records(2, 3)) == []


def is_right(copy: Copy) -> bool:
    return copy.verdict().is_exact and not list(copy.problems())


@pytest.mark.parametrize(
    ("copy", "is_kept"),
    [
        (HALF, True),
        (replace(HALF, copy=records(1, 2)), True),
        (replace(HALF, copy=records(1)), False),
        (replace(HALF, copy=records(1, 2, 2)), False),
        (replace(HALF, copy=records(1, 2, 4)), False),
        (replace(HALF, copy=records(2, 1, 3)), False),
        (replace(HALF, copy=records(1, 2, 9)), False),
        (replace(HALF, position=position(2, 4)), False),
        (replace(HALF, position=position(2, 1)), False),
        (replace(HALF, position=position(4, 3)), False),
        (replace(HALF, position=by_way_of(1, 1)), True),
        (replace(HALF, position=by_way_of(1, 2)), False),
        (replace(HALF, position=None, copy=[]), True),
        (replace(HALF, reached=3), True),
        (replace(HALF, reached=4), False),
        (replace(HALF, reached=4, has_stopped=True), True),
        (replace(HALF, copy=records(1, 2, 1), at_least_once=True), True),
        (replace(HALF, copy=records(1), at_least_once=True), False),
        (replace(HALF, copy=records(1, 2, 1), position=position(2, 3), at_least_once=True), True),
        (replace(HALF, copy=records(1, 2, 1), position=position(2, 4), at_least_once=True), False),
        (replace(HALF, copy=records(1, 1, 2), position=position(2, 1), at_least_once=True), False),
    ],
)
def test_copy_is_right_if_it_begins_as_the_source_and_has_all_promised(copy: Copy, is_kept: bool) -> None:
    assert is_right(copy) is is_kept


#: The former topic had 7, 8 and 9; 7 and 8 of them are in the copy.
AGAIN = Copy(
    now=records(1, 2),
    copy=records(7, 8, 1),
    mirrored=records(7, 8),
    was_created_again=True,
    continues=True,
    has_counted=True,
)


@pytest.mark.parametrize(
    ("copy", "is_kept"),
    [
        (AGAIN, True),
        (replace(AGAIN, has_counted=False), False),
        (replace(AGAIN, has_counted=False, copy=records(7, 8)), True),
        (replace(AGAIN, reached=1), True),
        (replace(AGAIN, reached=2), False),
        (replace(AGAIN, copy=records(7, 8, 2)), False),
        (replace(AGAIN, continues=False, reached=2, has_stopped=True), False),
        (replace(AGAIN, continues=False, reached=2, has_stopped=True, copy=records(7, 8)), True),
        (replace(AGAIN, continues=False, reached=2, copy=records(7, 8)), False),
        (replace(AGAIN, continues=False, mirrored=[], reached=2, copy=records(1, 2)), True),
        (replace(AGAIN, continues=False, mirrored=[], reached=2, copy=records(2, 1)), False),
    ],
)
def test_copy_of_a_topic_that_was_created_again_continues_only_with_an_incident(
    copy: Copy, is_kept: bool
) -> None:
    assert is_right(copy) is is_kept
