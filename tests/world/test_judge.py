"""The judge finds each record that is lost, doubled, reordered, altered or misplaced."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from random import Random

import pytest

from shoal.mirroring.model.incidents import Delivery, IncidentKind

from . import batches
from .batches import Content
from .clusters import TOPIC, TwoBrokers
from .contents import batches_of
from .control import Watched, incidents_of
from .copies import check_copies, check_places
from .history import History, Written
from .judge import Judge
from .logs import lose_tail
from .tasks import Setup, TaskWorld
from .verifying import cut, lay_out

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


def test_mirror_may_copy_again_up_to_a_marker_that_the_source_has_lost(world: TaskWorld) -> None:
    partition, destination = world.partitions[0], world.brokers.destination
    partition.any_batch()
    partition.any_transaction()
    assert world.run().is_complete
    world.expect("both lose", [IncidentKind.SOURCE_RESET, IncidentKind.DESTINATION_LOSS], [])
    world.loses_acknowledged(0)
    partition.lost_its_tail(lose_tail(world.brokers.source, TOPIC, partition.next_offset - 1))
    destination.topics.delete(destination.topics.topic(TOPIC))
    destination.create_topic(TOPIC, 1)
    control = Watched()
    world.run(control)
    ((_, reason, _, _),) = incidents_of(control)
    assert f" 0 to {partition.longest - 1} " in reason
    assert world.problems == []


# Copies that are wrong in one way

Copy = list[Content]

WRONG: dict[str, tuple[Callable[[Copy], Copy], str]] = {
    "lost": (lambda copy: [*copy[:2], *copy[3:]], "missing"),
    "lost at the end": (lambda copy: copy[:-1], "missing"),
    "doubled": (lambda copy: [*copy[:3], *copy[2:]], "read twice"),
    "reordered": (lambda copy: [*copy[:2], copy[3], copy[2], *copy[4:]], "late"),
    "altered": (lambda copy: [*copy[:2], copy[2]._replace(value=b"other"), *copy[3:]], "foreign"),
    "of another partition": (lambda copy: [*copy, Content(9, None, b"there", ())], "foreign"),
}


def test_record_of_an_aborted_transaction_is_wrong_unless_all_are_read() -> None:
    written = [*WRITTEN, Written(6, Content(6, None, b"aborted", ()), is_shown=False)]
    copy = [each.content for each in written]
    assert Judge().compare(copy, written, due=lambda record: True).problems != []
    assert Judge(reads_committed=False).compare(copy, written, due=lambda record: True).problems == []


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_copy_in_a_log_is_found_by_both_worlds(
    brokers: TwoBrokers, history: History, world: TaskWorld, wrong: str
) -> None:
    history.plain(2, 4)
    brokers.run()
    brokers.assert_exact(history)
    lay_out(brokers, cut(WRONG[wrong][0](history.committed)))
    with pytest.raises(AssertionError, match=WRONG[wrong][1]):
        brokers.assert_exact(history)

    partition = world.partitions[0]
    while len(partition.committed) < 6:
        partition.small_batches(1)
    ends = [partition.next_offset]
    outcome = world.run()
    check_copies(world, outcome, ends)
    assert world.problems == []
    lay_out(world.brokers, cut(WRONG[wrong][0](partition.committed)))
    check_copies(world, outcome, ends)
    assert any(WRONG[wrong][1] in each for each in world.problems), world.problems


def test_copy_in_another_place_than_its_position_says_is_found(world: TaskWorld) -> None:
    partition, control = world.partitions[0], Watched()
    partition.small_batches(6)
    world.run(control)
    check_places(world, control)
    assert world.problems == []
    lay_out(world.brokers, cut([Content(0, None, b"before", ()), *partition.committed]))
    check_places(world, control)
    assert any("the position says" in each for each in world.problems)
    assert any("and the mirror reported" in each for each in world.problems)


@pytest.mark.parametrize("of_former", [True, False], ids=["late", "another program's"])
def test_request_from_before_a_reset_is_foreign_and_another_program_is_not(
    world: TaskWorld, of_former: bool
) -> None:
    partition, source = world.partitions[0], world.brokers.source
    partition.plain(2)
    assert world.run().is_complete
    partition.plain(3)  # which the mirror sends, and the broker has not taken when the topic is deleted
    sent = batches_of(partition.log)[-1].view
    writer = batches_of(world.copy_log(0))[0].header.producer_id if of_former else 9_999
    world.expect("source topic is created again", [IncidentKind.SOURCE_RESET], [])
    world.loses_acknowledged(0)
    world.note_writers()
    source.topics.delete(source.topics.topic(TOPIC))
    source.create_topic(TOPIC, 1)
    partition.was_created_again(source.log(TOPIC))
    partition.plain(2)
    check_copies(world, world.run(), [2])
    assert world.problems == []

    late = batches.patched(bytes(sent), 43, struct.pack(">qhi", writer, 0, 2))
    assert world.copy_log(0).append(batches.view(late)).base_offset == 4
    check_copies(world)
    world.run(control := Watched())
    assert [kind for kind, *_ in incidents_of(control)] == [IncidentKind.FOREIGN_RECORDS.value]
    assert any("read twice" in each for each in world.problems) is not of_former
    assert any("out of nothing" in each for each in world.problems) is not of_former


def test_group_misses_only_refused_records_of_a_second_copy() -> None:
    with TaskWorld.started(Setup(continues=True, delivery=Delivery.AT_LEAST_ONCE), Random(1)) as world:
        partition, topics, control = world.partitions[0], world.destination.nodes[0].topics, Watched()
        partition.plain(2)
        partition.store(partition.batch([b"large" * 100, b"record" * 100]), shown=True)
        partition.plain(2)
        assert world.run().is_complete
        world.fencing.leave(world.brokers.settings.group)
        world.brokers.forget_pairs()
        world.expect("offsets 2 and 3 are refused", [IncidentKind.SEND_FAILURE], [])
        topics.alter(topics.topic(TOPIC), {"max.message.bytes": "700"})
        check_copies(world, world.run(control), [partition.next_offset])
        check_places(world, control)
        assert [lost for _, _, lost, _ in incidents_of(control)] == [2]
        assert world.problems == []
        partition.records[3].was_refused = False
        check_places(world, control)
        assert world.problems != []
        assert all("behind 1 records from source offset 3 on" in each for each in world.problems)
