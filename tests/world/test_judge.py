"""The judge finds each record that is lost and not reported, also after incidents and documented limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest

from shoal.mirroring.model.incidents import IncidentKind
from tests.two_brokers import Content, lose_tail

from .judge import Judge, Loss
from .source import Written
from .tasks import TOPIC, Setup, TaskWorld

WRITTEN = [Written(offset, Content(offset, None, b"value", ())) for offset in range(6)]


@pytest.fixture
def world() -> Iterator[TaskWorld]:
    """A world of one partition, whose mirror continues after any incident."""
    with TaskWorld.started(Setup(continues=True), Random(1)) as world:
        yield world


def _copy_all(world: TaskWorld) -> None:
    ends = [each.end_offset for each in world.closed_ranges()]
    world.check(world.run(), ends)


def _skip_a_record(world: TaskWorld) -> None:
    """Write a record, and commit a position behind it, as a mirror does that loses it."""
    position = world.position(0)
    assert position is not None
    world.partitions[0].small_batches(1)
    world.fencing.leave(world.brokers.settings.group)
    world.brokers.commit(replace(position, source_offset=world.partitions[0].next_offset), TOPIC)


def test_source_that_lost_a_marker_is_readable_once_its_transactions_have_ended(world: TaskWorld) -> None:
    partition = world.partitions[0]
    partition.transaction()
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


def _create_source_again(world: TaskWorld) -> None:
    broker = world.source.nodes[0]
    broker.topics.delete(broker.topics.topic(TOPIC))
    broker.create_topic(TOPIC, 1, {})
    world.loses_acknowledged(0)
    world.partitions[0].was_created_again(broker.log(TOPIC, 0))
    world.expect("source topic is created again", [IncidentKind.SOURCE_RESET], [])


def _overtake_with_retention(world: TaskWorld) -> None:
    world.partitions[0].small_batches(3)
    world.partitions[0].deletes_before(world.partitions[0].next_offset)
    world.expect("source deletes records", [IncidentKind.SOURCE_RETENTION], [])


@pytest.mark.parametrize("incident", [_create_source_again, _overtake_with_retention])
@pytest.mark.parametrize("is_copied_on", [True, False], ids=["copied on", "committed only"])
def test_record_that_is_skipped_after_an_incident_is_found(
    world: TaskWorld, incident: Callable[[TaskWorld], None], is_copied_on: bool
) -> None:
    world.partitions[0].small_batches(5)
    _copy_all(world)
    incident(world)
    world.partitions[0].small_batches(2)
    _copy_all(world)
    assert world.expected  # the incident came to pass
    assert world.problems == []
    _skip_a_record(world)
    if is_copied_on:
        world.partitions[0].small_batches(1)
        _copy_all(world)
    else:
        world.check()
    (problem,) = world.problems
    assert "1 records are missing, and 1 of them were not reported" in problem
