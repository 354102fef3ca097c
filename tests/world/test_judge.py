"""The judge finds each record that is lost and not reported, also after incidents and documented limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import pytest

from tests.world.batches import Content
from tests.world.logs import lose_tail

from .clusters import TOPIC
from .judge import Judge, Loss
from .source import Written
from .tasks import Setup, TaskWorld

WRITTEN = [Written(offset, Content(offset, None, b"value", ())) for offset in range(6)]


@pytest.fixture
def world() -> Iterator[TaskWorld]:
    """A world of one partition, whose mirror continues after any incident."""
    with TaskWorld.started(Setup(continues=True), Random(1)) as world:
        yield world


def test_source_that_lost_a_marker_is_readable_once_its_transactions_have_ended(world: TaskWorld) -> None:
    partition = world.partitions[0]
    partition.any_transaction()
    marker = partition.next_offset - 1
    partition.lost_its_tail(lose_tail(world.source.nodes[0], TOPIC, marker))
    assert world.closed_ranges()[0].end_offset == 0
    partition.end_transactions()
    assert world.closed_ranges()[0].end_offset == marker + 1


# Losses


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
    losses: Sequence[Loss], missing: Sequence[int]
) -> None:
    copy = [each.content for number, each in enumerate(WRITTEN) if number not in missing]
    found = Judge().compare(copy, WRITTEN, due=lambda _: True, losses=losses)
    assert found == ([], [WRITTEN[number] for number in missing])


@pytest.mark.parametrize(
    ("losses", "missing", "first"),
    [
        ([], [3], 3),
        ([Loss(1, 6)], [3, 4], 3),
        ([Loss(2, 2), Loss(1, 6)], [3, 4], 3),
        ([Loss(None, 3)], [1, 2, 3], 3),
        ([Loss(None, 3), Loss(1, 6)], [0, 4, 5], 4),
    ],
    ids=["none reported", "fewer reported", "reported before", "unknown before", "unknown and one more"],
)
def test_missing_record_is_wrong_if_it_was_written_after_the_reported_losses(
    losses: Sequence[Loss], missing: Sequence[int], first: int
) -> None:
    copy = [each.content for number, each in enumerate(WRITTEN) if number not in missing]
    (problem,) = Judge().compare(copy, WRITTEN, due=lambda _: True, losses=losses).problems
    assert f"at source offset {first}:" in problem
