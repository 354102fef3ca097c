"""A copy that lost its tail, and has other writers, is copied again."""

from __future__ import annotations

import pytest

from shoal.mirroring.model.incidents import Delivery, IncidentKind
from shoal.mirroring.model.offset_map import Exactness, Question
from tests.world.clusters import TwoBrokers, die_after
from tests.world.control import Watched, incidents_of
from tests.world.history import ABORT, COMMIT, History
from tests.world.logs import lose_tail


@pytest.fixture
def brokers(brokers: TwoBrokers) -> TwoBrokers:
    return brokers.with_settings(continue_after=frozenset(IncidentKind))


def run(brokers: TwoBrokers) -> None:
    result = brokers.start().result()
    assert (result.complete, result.stopped) == (True, ())


def with_transactions(brokers: TwoBrokers, history: History) -> None:
    """Mirror records and transactions: offsets 0 to 14 of the source, 0 to 10 of the destination."""
    history.plain(3)
    run(brokers)
    history.transaction(2, ends=COMMIT).transaction(2, ends=ABORT)
    run(brokers)
    history.plain(6)
    run(brokers)


@pytest.mark.parametrize(("lost_from", "again_from"), [(8, 9), (4, 3), (0, 0)])
def test_lost_tail_with_other_writers_is_copied_again(
    brokers: TwoBrokers, history: History, lost_from: int, again_from: int
) -> None:
    brokers = brokers.with_settings(delivery=Delivery.AT_LEAST_ONCE)
    with_transactions(brokers, history)
    copied = brokers.copied()
    lose_tail(brokers.destination, "topic", lost_from)
    stopped = brokers.with_settings(continue_after=frozenset()).start().result().stopped
    assert [each.cause for each in stopped] == [IncidentKind.DESTINATION_LOSS]
    control = Watched()
    assert brokers.start(control=control).result().complete
    reasons = [reason for _, reason, *_ in incidents_of(control)]
    assert [f" {again_from} to 14 " in each for each in reasons] == [True]
    assert brokers.destination.log("topic").log_end_offset == 11
    assert brokers.copied() == copied


def test_source_that_lost_its_tail_is_an_incident_with_other_writers_too(
    brokers: TwoBrokers, history: History
) -> None:
    """Though its log has grown beyond the position since."""
    brokers = brokers.with_settings(delivery=Delivery.AT_LEAST_ONCE)
    history.named("old", 10)
    run(brokers)
    log = lose_tail(brokers.source, "topic", 5)
    History(log).named("new", 9)
    stopped = brokers.with_settings(continue_after=frozenset()).start().result().stopped
    assert [each.cause for each in stopped] == [IncidentKind.SOURCE_RESET]
    run(brokers)
    values = [b"old %d" % number for number in range(10)] + [b"new %d" % number for number in range(9)]
    assert [each.value for each in brokers.copied()] == values


@pytest.mark.parametrize("copied_before", [0, 3])
def test_exactly_once_behind_a_dead_at_least_once_repeats_records_behind_the_position(
    brokers: TwoBrokers, history: History, copied_before: int
) -> None:
    """The source has a gap there, so to count records does not show where it continues."""
    with_others = brokers.with_settings(delivery=Delivery.AT_LEAST_ONCE)
    if copied_before:
        history.plain(copied_before)
        run(with_others)
    first = history.next_offset
    history.plain(1).gap(1).plain(1, 1, 1, 1)
    die_after(with_others, 4)
    run(brokers)
    values = [each.value for each in brokers.copied()][copied_before:]
    again = [b"value at %d" % (first + number) for number in (0, 2, 3, 4)]
    assert values == [*again, *again, b"value at %d" % (first + 5)]
    position = brokers.position()
    for number, missed_none in enumerate([4, 5, 5, 6, 7, 8]):
        found = position.offsets.translate(Question(first + number, is_source=True))
        assert found.exactness is Exactness.AT_LEAST
        assert found.offset - copied_before <= missed_none
    history.plain(2)
    run(brokers)
    assert len(brokers.copied()) == copied_before + 11  # exactly once from here on


def test_exactly_once_behind_at_least_once_continues_exactly(brokers: TwoBrokers, history: History) -> None:
    for delivery in [*Delivery, *Delivery]:
        history.transaction(2, ends=COMMIT).plain(1).transaction(1, ends=ABORT)
        run(brokers.with_settings(delivery=delivery))
    brokers.assert_exact(history)
