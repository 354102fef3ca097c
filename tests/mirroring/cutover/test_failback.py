"""The way back from a cut, from values: what prevents it, and the first positions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.client.config import ClientConfig, IsolationLevel
from shoal.mirroring.cutover.certificate import Certificate, CutCluster, CutLog, CutPartition
from shoal.mirroring.cutover.failback import (
    FailbackLog,
    begins_at_cut,
    cluster_problem,
    failback_problems,
    map_before,
)
from shoal.mirroring.model.copy_options import copy_rules
from shoal.mirroring.model.offset_map import Milestone, OffsetMap, Stretch
from shoal.mirroring.model.position import MirrorPosition, ProducerIdentity
from shoal.net.address import parse_bootstrap
from tests.snapshots import Texts

CUT = CutPartition(
    0, CutLog("orders", "A-id", 0, 11, 3), CutLog("west.orders", "B-id", 0, 9, 5), (0, 0), 9, 4
)
CERTIFICATE = Certificate(
    "", CutCluster("A", ""), CutCluster("B", ""), "g", "rules", {"orders": "west.orders"}, (CUT,), (), {}
)
HERE, THERE = FailbackLog("B-id", 0, 20), FailbackLog("A-id", 0, 11)


@pytest.mark.parametrize(
    ("source_id", "destination_id", "topics"),
    [
        ("B", "A", {"west.orders": "orders"}),
        ("B", "A", {"other": "other"}),
        ("A", "B", {}),
        ("B", "C", {}),
        ("B", "A", {"west.orders": "west.orders"}),
    ],
)
def test_mirror_that_is_not_the_way_back_of_the_cut(
    source_id: str, destination_id: str, topics: dict[str, str], texts: Texts
) -> None:
    problem = cluster_problem(CERTIFICATE, source_id, destination_id, topics)
    texts(problem)


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        (HERE, THERE),
        (replace(HERE, end=9), THERE),
        (replace(HERE, start=9), THERE),
        (replace(HERE, topic_id=None), replace(THERE, topic_id=None)),
        (replace(HERE, cut_epoch_end=9), replace(THERE, cut_epoch_end=11)),
        (replace(HERE, cut_epoch_end=7), replace(THERE, cut_epoch_end=10)),
        (replace(HERE, end=8, cut_epoch_end=7), THERE),
        (None, THERE),
        (replace(HERE, topic_id="new"), THERE),
        (HERE, replace(THERE, topic_id="new")),
        (replace(HERE, start=12), THERE),
        (replace(HERE, end=8), THERE),
        (HERE, replace(THERE, end=12)),
        (HERE, replace(THERE, end=10)),
    ],
)
def test_partition_that_cannot_go_back_has_a_reason(
    source: FailbackLog | None, destination: FailbackLog | None, texts: Texts
) -> None:
    texts(failback_problems(CUT, source, destination))


@pytest.mark.parametrize(
    ("reached", "origin", "expected"),
    [
        (None, (0, 0), True),
        ((9, 11), (9, 11), False),
        ((12, 14), (9, 11), False),
        ((5, 4), (0, 0), True),
        ((9, 4), (0, 0), True),
        ((9, 11), (0, 0), False),
        ((12, 11), (0, 0), False),
        ((9, 12), (0, 0), False),
    ],
)
def test_partition_begins_at_the_cut_unless_it_has_a_position_since(
    reached: tuple[int, int] | None, origin: tuple[int, int], expected: bool
) -> None:
    position = None
    if reached is not None:
        begun = OffsetMap.begun_at(*origin)
        position = MirrorPosition(*reached, ProducerIdentity(1, 0), origin, None, None, "rules", begun)
    assert begins_at_cut(CUT, position) is expected


RULES = {
    level: copy_rules(ClientConfig("source", tuple(parse_bootstrap("a:9092")), isolation_level=level))
    for level in IsolationLevel
}
COMMITTED = RULES[IsolationLevel.READ_COMMITTED]

#: The mirror goes from B to A, as it went before the mirror from A to B that led to the cut.
FORMER = MirrorPosition(
    6,
    5,
    ProducerIdentity(1, 0),
    (0, 0),
    "B-id",
    "A-id",
    COMMITTED,
    milestones=OffsetMap((Milestone(0, 0), Milestone(6, 5))),
)
BETWEEN = MirrorPosition(
    11,
    9,
    ProducerIdentity(2, 0),
    (5, 6),
    "A-id",
    "B-id",
    COMMITTED,
    milestones=OffsetMap((Milestone(5, 6), Milestone(11, 9)), is_whole=False),
)


def test_former_life_is_kept_up_to_the_cut() -> None:
    kept = map_before(CUT, FORMER, BETWEEN, COMMITTED)
    assert kept == OffsetMap((Milestone(0, 0), Milestone(6, 5), Milestone(9, 11, Stretch.BROKEN)))


def test_former_life_ends_at_the_begin_of_the_way_back() -> None:
    """Its last position may lie before markers that it has not passed."""
    kept = map_before(
        CUT, replace(FORMER, source_offset=5, milestones=OffsetMap.begun_at(0, 0)), BETWEEN, COMMITTED
    )
    assert kept is not None
    assert kept.milestones[-2:] == (Milestone(6, 5), Milestone(9, 11, Stretch.BROKEN))


def test_former_life_of_another_isolation_level_has_no_gaps_that_can_be_counted() -> None:
    kept = map_before(CUT, FORMER, BETWEEN, RULES[IsolationLevel.READ_UNCOMMITTED])
    assert kept is not None
    assert kept.milestones[1] == Milestone(6, 5, Stretch.BROKEN)


@pytest.mark.parametrize(
    ("former", "between"),
    [
        (None, BETWEEN),
        (FORMER, None),
        (replace(FORMER, source_topic_id="old"), BETWEEN),
        (replace(FORMER, destination_topic_id="old"), BETWEEN),
        (FORMER, replace(BETWEEN, source_topic_id="old")),
        (FORMER, replace(BETWEEN, destination_topic_id="old")),
        (replace(FORMER, destination_offset=4, milestones=OffsetMap.begun_at(0, 0)), BETWEEN),
        (replace(FORMER, source_offset=7), BETWEEN),
        (FORMER, replace(BETWEEN, milestones=BETWEEN.offsets.cut(4, 5))),
        (FORMER, replace(BETWEEN, milestones=OffsetMap.begun_at(5, 6, is_whole=False, is_repeated=True))),
    ],
)
def test_former_life_that_nothing_shows_to_hold_is_not_kept(
    former: MirrorPosition | None, between: MirrorPosition | None
) -> None:
    assert map_before(CUT, former, between, COMMITTED) is None
