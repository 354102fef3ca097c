"""Offsets of groups after cut-overs there, back and there again: from before, between and behind the cuts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import pytest

from shoal.client.cluster import Cluster
from shoal.client.config import IsolationLevel
from shoal.client.scan import read_decided
from shoal.error_codes import ErrorCode
from shoal.mirroring.model.copy_options import CopySettings, copy_rules
from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.model.offset_map import Exactness, OffsetMap
from shoal.mirroring.sync.report import Direction, GroupOffset
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from tests.mirroring.sync.conftest import Groups
from tests.world.clusters import TwoBrokers
from tests.world.faults import answers
from tests.world.history import ABORT, COMMIT, NOW_MS, History
from tests.world.logs import may_compact
from tests.world.way_back import WayBack, certificate_of, reversed_brokers

THERE, BACK = "shoal.source.destination", "shoal.destination.source"
SIDES = {Direction.FORWARD: ("source", "destination"), Direction.REVERSE: ("destination", "source")}


class Turns:
    """A topic whose producers change sides at each cut-over."""

    def __init__(self, two: TwoBrokers) -> None:
        self.two = two.with_settings(group=THERE, rules=copy_rules(two.settings.source))
        self.two.topic()
        self.cuts: list[dict[str, int]] = []

    def life(self) -> None:
        """Write records of all kinds at the source of the mirror, with a position in the middle, and copy."""
        may_compact(self.two.source)
        # Another time in each life, so that no two records are equal.
        history = History(self.two.source.log("topic"), NOW_MS + 1000 * len(self.cuts))
        history.plain(3, 2).transaction(2, 3, ends=COMMIT).transaction(4, ends=ABORT).plain(5)
        self.two.run()
        history.plain(2).holed(6, [1, 4]).gap(3).transaction(1, ends=ABORT).plain(4)
        history.transaction(1, ends=COMMIT)
        self.two.run()

    def turn(self) -> None:
        """Cut over, and begin the mirror in the other direction."""
        self.cuts.append({broker.cluster_id: broker.log("topic").log_end_offset for broker in self.brokers})
        back = reversed_brokers(self.two, BACK if self.two.settings.group == THERE else THERE)
        way_back = WayBack(self.two, back, certificate_of(self.two))
        assert way_back.begin() == [0]
        self.two = back

    @property
    def brokers(self) -> tuple[Broker, Broker]:
        return self.two.source, self.two.destination


def started(stack: ExitStack, cuts: int = 2) -> Turns:
    """Return a topic that has changed sides so often."""
    turns = Turns(stack.enter_context(TwoBrokers.started()))
    for _ in range(cuts):
        turns.life()
        turns.turn()
    turns.life()
    return turns


@pytest.fixture
def turns() -> Iterator[Turns]:
    with ExitStack() as stack:
        yield started(stack)


def records(cluster: Cluster, settings: CopySettings) -> list[tuple[int, tuple[int, bytes]]]:
    """Return the offset and the content of each committed record."""
    found = []
    partition, level = TopicPartition("topic", 0), IsolationLevel.READ_COMMITTED
    with closing(read_decided(cluster, partition, 0, level, 1 << 20)) as batches:
        for decision, batch in batches:
            if not decision.is_drop:
                decoded = settings.records_to_mirror(batch, 0)
                found += [(each.offset, (each.timestamp, bytes(each.body))) for each in decoded]
    return found


def translated(turns: Turns, direction: Direction) -> list[tuple[GroupOffset, bool]]:
    """Translate each offset of a side; return whether the same records follow at both."""
    here, there = SIDES[direction]
    with ExitStack() as stack:
        source = stack.enter_context(Cluster(turns.two.settings.source))
        destination = stack.enter_context(Cluster(turns.two.settings.destination))
        groups = Groups(turns.two, source, destination)
        end = getattr(turns.two, here).log("topic").log_end_offset
        for offset in range(end + 1):
            groups.commit(here, f"{here} at {offset}", offset)
        report = groups.prove(groups.sync(direction=direction).round(groups.topics, apply=False))
        ours, theirs = (records(getattr(groups, side), turns.two.settings) for side in (here, there))
    assert [content for _, content in ours] == [content for _, content in theirs]
    rows = [each for group in report.groups for each in group.offsets if group.name.startswith(here)]
    assert len(rows) == end + 1
    return [
        (each, bisect_left(ours, (each.committed,)) == bisect_left(theirs, (each.translated,)))
        for each in sorted(rows, key=lambda row: row.committed)
    ]


def of_life(turns: Turns, found: list[tuple[GroupOffset, bool]], life: int) -> set[Exactness | None]:
    """Return how exact the offsets of one life are that were committed at the source."""
    ends = [0, *(cut[turns.two.source.cluster_id] for cut in turns.cuts), found[-1][0].committed]
    return {row.exactness for row, _ in found if ends[life] <= row.committed < ends[life + 1]}


def is_never_wrong(found: list[tuple[GroupOffset, bool]]) -> bool:
    return all(is_same for row, is_same in found if row.exactness is Exactness.EXACT)


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("cuts", [1, 2, 3, 11])
def test_each_offset_after_cuts_there_and_back_is_exact(direction: Direction, cuts: int) -> None:
    with ExitStack() as stack:
        found = translated(started(stack, cuts), direction)
    assert [row for row, is_same in found if row.exactness is not Exactness.EXACT or not is_same] == []
    assert all(row.proof is not None and row.proof.is_same for row, _ in found)


@pytest.mark.parametrize("direction", Direction)
def test_offset_before_many_cuts_is_a_lower_bound_in_the_oldest_lives_alone(direction: Direction) -> None:
    with ExitStack() as stack:
        turns = started(stack, cuts=14)
        found = translated(turns, direction)
    assert is_never_wrong(found)
    side = getattr(turns.two, SIDES[direction][0]).cluster_id
    exact = {row.committed for row, _ in found if row.exactness is Exactness.EXACT}
    assert exact >= set(range(turns.cuts[2][side], found[-1][0].committed + 1))
    assert {row.exactness for row, _ in found} == {Exactness.EXACT, Exactness.AT_LEAST}


@pytest.mark.parametrize("is_deleted", [True, False])
def test_offset_before_both_cuts_is_at_least_if_nothing_shows_that_its_life_still_holds(
    is_deleted: bool,
) -> None:
    with ExitStack() as stack:
        turns = started(stack, cuts=1)
        if is_deleted:
            turns.two.source.groups.delete(BACK)
        else:
            position = turns.two.position()
            first = OffsetMap.begun_at(
                position.source_offset - 1, position.destination_offset, is_whole=False
            )
            turns.two.commit(replace(position, milestones=first))
        turns.turn()
        turns.life()
        found = translated(turns, Direction.FORWARD)
    assert is_never_wrong(found)
    assert of_life(turns, found, 0) == {Exactness.AT_LEAST}
    assert of_life(turns, found, 2) == {Exactness.EXACT}


@pytest.mark.parametrize(
    ("code", "is_kept"),
    [(ErrorCode.GROUP_AUTHORIZATION_FAILED, False), (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True)],
)
def test_mirror_begins_again_without_its_former_map_only_if_it_may_not_read_the_other_group(
    code: ErrorCode, is_kept: bool
) -> None:
    def refuse(response: Any) -> Any:
        for each in response.groups:
            if each.group_id == BACK:
                each.error_code = code
        return response

    with ExitStack() as stack:
        turns = started(stack, cuts=1)
        answers(turns.two.source, ApiKey.OFFSET_FETCH, refuse)
        turns.turn()
        assert (turns.two.position().before_cut is not None) is is_kept


@pytest.mark.parametrize("went_on", [True, False])
def test_offset_before_a_cut_is_at_least_without_the_map_of_the_mirror_that_led_there(went_on: bool) -> None:
    """The map of one that went on ends elsewhere; that of a group may not be for this principal."""

    def refuse(response: Any) -> Any:
        for each in response.groups:
            if each.group_id == THERE:
                each.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return response

    with ExitStack() as stack:
        turns = started(stack, cuts=1)
        if went_on:
            first = reversed_brokers(turns.two, THERE)
            position = first.position()
            first.commit(replace(position, source_offset=position.source_offset + 1))
        else:
            answers(turns.two.destination, ApiKey.OFFSET_FETCH, refuse, times=99)
        found = translated(turns, Direction.FORWARD)
    assert is_never_wrong(found)
    assert of_life(turns, found, 0) == {Exactness.AT_LEAST}


@pytest.mark.parametrize("side", ["source", "destination"])
def test_former_life_ends_with_its_topics(turns: Turns, side: str) -> None:
    topics = getattr(turns.two, side).topics
    topics.delete(topics.topic("topic"))
    getattr(turns.two, side).create_topic("topic")
    turns.two = turns.two.with_settings(continue_after=frozenset(IncidentKind))
    turns.life()
    assert turns.two.position().before_cut is None
