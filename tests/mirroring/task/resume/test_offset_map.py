"""The effect of each incident, and of each way to find a position, on the offset map."""

from __future__ import annotations

import pytest

from shoal.mirroring.model.copy_options import Rebatch
from shoal.mirroring.model.incidents import Delivery, IncidentKind
from shoal.mirroring.model.offset_map import Exactness, Stretch
from shoal.records import Codec
from tests import batches
from tests.mirroring.task.resume.test_adopt import varied
from tests.mirroring.test_incidents import foreign
from tests.two_brokers import (
    ABORT,
    COMMIT,
    Acting,
    History,
    TwoBrokers,
    Watched,
    die_after,
    lose_tail,
)

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


def test_acknowledged_drops_and_rebuilt_batches_end_no_stretch(brokers: TwoBrokers, history: History) -> None:
    with_transactions(brokers, history)
    history.holed(5, [1, 3]).empty(2).gap(4).plain(1)
    history.store(batches.message(1, b"old", offset=history.next_offset))
    run(brokers.with_settings(rebatch=Rebatch(10_000, Codec.GZIP)))
    # Both edges of each gap are milestones.
    gaps = [(16, 12), (17, 12), (18, 13), (19, 13), (20, 14), (26, 14), (28, 16)]
    assert milestones(brokers) == [*MIRRORED[:3], *((*each, KNOWN) for each in gaps)]


def test_foreign_records_end_the_stretch_at_their_place(brokers: TwoBrokers, history: History) -> None:
    with_transactions(brokers, history)
    foreign(brokers.destination, 3)
    history.plain(2)
    run(brokers)
    assert milestones(brokers) == [*MIRRORED, (15, 14, BROKEN), (17, 16, KNOWN)]


def test_foreign_records_between_requests_end_the_stretch_at_their_place(
    brokers: TwoBrokers, history: History
) -> None:
    with_transactions(brokers, history)
    history.plain(1, 1, 1, 1)
    control = Acting(4, lambda: foreign(brokers.destination, 3))
    small = brokers.with_settings(max_in_flight=1)
    assert small.start(control=control).result().complete
    *before, (source, landed, _), last = milestones(brokers)
    assert 15 < source < 19
    # The record that landed behind the foreign ones is in the stretch that is not trusted.
    assert before == [*MIRRORED[:3], (source - 1, source - 5, KNOWN)]
    assert (landed, last) == (source - 1, (19, 18, KNOWN))


def test_records_between_requests_with_other_writers_may_be_repeated(
    brokers: TwoBrokers, history: History
) -> None:
    """They are of other writers, or of a request of a dead task that lands late."""
    brokers = brokers.with_settings(delivery=Delivery.AT_LEAST_ONCE, max_in_flight=1)
    with_transactions(brokers, history)
    history.plain(1, 1, 1, 1)
    control = Acting(4, lambda: foreign(brokers.destination, 3))
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
    reports = [each for report in control.reports for each in report["partitions"]]
    reasons = [incident[1] for each in reports for incident in each["incidents"]]
    assert [f"copies source offsets {again_from} to 14 again" in each for each in reasons] == [True]
    assert brokers.destination.log("topic").log_end_offset == 11
    assert brokers.copied() == copied


def test_lost_tail_that_others_overwrote_is_not_trusted(brokers: TwoBrokers, history: History) -> None:
    with_transactions(brokers, history)
    lose_tail(brokers.destination, "topic", 5)
    foreign(brokers.destination, 6)
    run(brokers)
    assert milestones(brokers) == [*MIRRORED[:3], (9, 11, BROKEN), (15, 17, KNOWN)]


def test_lost_tail_of_the_source_cuts_the_map(brokers: TwoBrokers, history: History) -> None:
    with_transactions(brokers, history)
    after = History(lose_tail(brokers.source, "topic", 9))
    run(brokers)
    assert milestones(brokers) == [*MIRRORED[:3], (9, 11, BROKEN)]
    after.store(batches.patched(after.batch(4), 12, after.log.leader_epoch.to_bytes(4)))
    run(brokers)
    assert milestones(brokers) == [*MIRRORED[:3], (9, 11, BROKEN), (13, 15, KNOWN)]


def test_records_deleted_before_they_were_mirrored_leave_a_known_gap(
    brokers: TwoBrokers, history: History
) -> None:
    with_transactions(brokers, history)
    history.plain(5).plain(2)
    history.log.delete_records(20)
    run(brokers)
    assert milestones(brokers) == [*MIRRORED, (20, 11, BROKEN), (22, 13, KNOWN)]


def test_refused_batch_leaves_a_known_gap(brokers: TwoBrokers) -> None:
    (history,) = brokers.topic(max_message_bytes="500")
    history.plain(2)
    history.store(batches.batch([b"x" * 1000] * 3, base_offset=2, base_timestamp=history.base_timestamp))
    history.plain(4)
    run(brokers)
    assert milestones(brokers) == [(0, 0, KNOWN), (2, 2, KNOWN), (5, 2, BROKEN), (9, 6, KNOWN)]


def test_uncommitted_records_are_known_if_the_source_still_has_them(
    brokers: TwoBrokers, history: History
) -> None:
    with_transactions(brokers, history)
    history.plain(1, 2).transaction(2, ends=COMMIT).plain(1)
    die_after(brokers, 3)
    run(brokers)
    assert milestones(brokers) == [*MIRRORED[:3], (20, 16, KNOWN), (21, 16, KNOWN), (22, 17, KNOWN)]


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
    assert offsets.to_destination(6) == (0, Exactness.AT_LEAST)
    assert offsets.around(6, is_source=True) is None
    assert offsets.to_destination(10) == (9, Exactness.EXACT)
