"""The judge finds each record that is lost, doubled, reordered, altered or misplaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

import pytest

from shoal.mirroring.model.incidents import IncidentKind

from .batches import Content
from .clusters import TOPIC, TwoBrokers
from .control import Watched, incidents_of
from .copies import check_copies, check_places
from .history import History, Written
from .judge import Judge, Loss
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
    assert reason.endswith(f"source offsets 0 to {partition.longest - 1} again")
    assert world.problems == []


# Copies that are wrong in one way

Copy = list[Content]

WRONG: dict[str, tuple[Callable[[Copy], Copy], str]] = {
    "lost": (lambda copy: [*copy[:2], *copy[3:]], "missing"),
    "lost at the end": (lambda copy: copy[:-1], "missing"),
    "doubled": (lambda copy: [*copy[:3], *copy[2:]], "there twice"),
    "reordered": (lambda copy: [*copy[:2], copy[3], copy[2], *copy[4:]], "out of order"),
    "altered": (lambda copy: [*copy[:2], copy[2]._replace(value=b"other"), *copy[3:]], "none that a reader"),
    "of another partition": (lambda copy: [*copy, Content(9, None, b"there", ())], "none that a reader"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_copy_that_is_wrong_in_one_way_is_found(wrong: str) -> None:
    change, sentence = WRONG[wrong]
    copy = [each.content for each in WRITTEN]
    judge = Judge()
    assert judge.compare(copy, WRITTEN, due=lambda record: True).problems == []
    (problem,) = judge.compare(change(copy), WRITTEN, due=lambda record: True).problems
    assert sentence in problem


@pytest.mark.parametrize("wrong", ["lost", "lost at the end", "doubled", "altered"])
def test_copy_of_equal_records_that_is_wrong_in_one_way_is_found(wrong: str) -> None:
    written = [Written(offset, Content(0, None, b"value", ())) for offset in range(6)]
    copy = WRONG[wrong][0]([each.content for each in written])
    assert Judge(are_same=True).compare(copy, written, due=lambda record: True).problems != []


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


# Losses


def copy_without(missing: Sequence[int]) -> Copy:
    return [each.content for number, each in enumerate(WRITTEN) if number not in missing]


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
    found = Judge().compare(copy_without(missing), WRITTEN, due=lambda _: True, losses=losses)
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
    found = Judge().compare(copy_without(missing), WRITTEN, due=lambda _: True, losses=losses)
    (problem,) = found.problems
    assert f"at source offset {first}:" in problem
