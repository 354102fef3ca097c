"""The effect of each incident, and of each way to find a position, on the offset map."""

from __future__ import annotations

import struct

import pytest

from shoal.mirroring.model.incidents import Delivery, IncidentKind
from shoal.mirroring.model.offset_map import Exactness, Question, Stretch
from tests.mirroring.task.resume.test_adopt import varied
from tests.mirroring.test_incidents import foreign
from tests.world.clusters import TwoBrokers
from tests.world.contents import batches_of
from tests.world.control import Watched, incidents_of
from tests.world.history import ABORT, COMMIT, History
from tests.world.logs import lose_tail

KNOWN, BROKEN, REPEATED = Stretch.KNOWN, Stretch.BROKEN, Stretch.REPEATED


@pytest.fixture
def brokers(brokers: TwoBrokers) -> TwoBrokers:
    return brokers.with_settings(continue_after=frozenset(IncidentKind))


def run(brokers: TwoBrokers) -> None:
    result = brokers.start().result()
    assert (result.complete, result.stopped) == (True, ())


def milestones(brokers: TwoBrokers) -> list[tuple[int, int, Stretch]]:
    """Return those of the committed position; the map must be whole."""
    offsets = brokers.position().offsets
    assert offsets.is_whole
    return list(map(tuple, offsets.milestones))  # type: ignore[arg-type]


def with_transactions(brokers: TwoBrokers, history: History) -> None:
    """Mirror records and transactions: offsets 0 to 14 of the source, 0 to 10 of the destination."""
    history.plain(3)
    run(brokers)
    history.transaction(2, ends=COMMIT).transaction(2, ends=ABORT)
    run(brokers)
    history.plain(6)
    run(brokers)


#: After :func:`with_transactions`.
MIRRORED = [(0, 0, KNOWN), (5, 5, KNOWN), (9, 5, KNOWN), (15, 11, KNOWN)]


def test_records_between_requests_with_other_writers_may_be_repeated(
    brokers: TwoBrokers, history: History
) -> None:
    """They are of other writers, or of a request of a dead task that lands late."""
    brokers = brokers.with_settings(delivery=Delivery.AT_LEAST_ONCE, max_in_flight=1)
    with_transactions(brokers, history)
    history.plain(1, 1, 1, 1)
    control = Watched(4, lambda: foreign(brokers.destination, 3))
    assert brokers.start(control=control).result().complete
    *before, (source, landed, stretch), last = milestones(brokers)
    assert before == [*MIRRORED[:3], (source, source - 4, KNOWN)]
    assert (landed, stretch, last) == (source - 1, REPEATED, (19, 18, KNOWN))


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


def test_late_requests_in_a_cut_copy_are_not_at_their_places(brokers: TwoBrokers, history: History) -> None:
    """An older copy of the broker's disk was put back, and then the mirror's last requests arrived."""
    history.plain(*[1] * 6)
    run(brokers)
    late = [bytes(each.view) for each in batches_of(brokers.destination.log("topic"))[4:]]
    after = lose_tail(brokers.destination, "topic", 2, election=False)
    kept = after.log_end_offset
    for base_offset, each in enumerate(late, kept):
        after.store(memoryview(struct.pack(">q", base_offset) + each[8:]))
    run(brokers)
    assert milestones(brokers) == [(0, 0, KNOWN), (kept, kept, KNOWN), (6, kept + 2, BROKEN)]
    assert brokers.position().offsets.translate(Question(kept + 1, is_source=True)) == (
        kept,
        Exactness.AT_LEAST,
    )


def test_map_too_long_for_the_source_s_limit_is_thinned(brokers: TwoBrokers, history: History) -> None:
    """A cluster may allow less than Kafka's default of offset.metadata.max.bytes."""
    history.plain(1)
    for _ in range(9):
        history.transaction(3, ends=COMMIT)
        run(brokers)
    before = brokers.position()
    assert len(before.offsets.milestones) > 9
    brokers.source.config["offset.metadata.max.bytes"] = str(len(before.to_committed().metadata) - 20)
    history.plain(2)
    run(brokers)
    assert milestones(brokers) == [(0, 0, KNOWN), (39, 30, KNOWN)]


def test_gaps_that_another_isolation_level_left_are_not_counted(
    brokers: TwoBrokers, history: History
) -> None:
    """The source's log has two aborted records that were copied then, and are left out now."""
    varied(history, 3)
    history.transaction(2, ends=ABORT).plain(3)
    uncommitted = brokers.read_uncommitted().with_settings(rules="uncommitted")
    run(uncommitted)
    brokers.forget_pairs()
    run(uncommitted.with_settings(adopt=True))
    assert milestones(brokers) == [(0, 0, KNOWN), (9, 8, KNOWN)]
    history.plain(2)
    run(brokers)
    assert milestones(brokers) == [(0, 0, KNOWN), (9, 8, BROKEN), (11, 10, KNOWN)]
    offsets = brokers.position().offsets
    assert offsets.translate(Question(6, is_source=True)) == (0, Exactness.AT_LEAST)
    assert offsets.around(Question(6, is_source=True)) is None
    assert offsets.translate(Question(10, is_source=True)) == (9, Exactness.EXACT)
