"""Offsets from before a cut-over, translated by the map of the mirror that led there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from shoal.client.cluster import Cluster
from shoal.client.config import IsolationLevel
from shoal.error_codes import ErrorCode
from shoal.mirroring.model.copy_options import COPY_DEFAULTS, copy_rules
from shoal.mirroring.model.offset_map import Exactness
from shoal.mirroring.sync.report import Direction, GroupsReport
from shoal.protocol.apis import ApiKey
from tests.mirroring.sync.conftest import Groups, row_of
from tests.two_brokers import ABORT, COMMIT, History, TwoBrokers, answers
from tests.way_back import WayBack, certificate_of, reversed_brokers

THERE = "shoal.source.destination"

#: The offsets of the old source up to the cut, in :func:`gone_back`.
CUT = 33
MARKERS = {10, 15, 26, 32}
ABORTED = range(11, 15)


class Back(Groups):
    """The groups of a mirror that goes back, and of one that led to the cut."""

    def round(self, *, direction: Direction = Direction.FORWARD, **_: object) -> GroupsReport:
        sync = self.sync(direction=direction)
        report = sync.round(self.topics, apply=False)
        return self.prove(report)


def gone_back(stack: ExitStack, *, uncommitted: bool = False) -> Back:
    """Mirror records of all kinds, cut, and mirror other records back."""
    two = stack.enter_context(TwoBrokers.started()).with_settings(group=THERE)
    if uncommitted:
        source = replace(two.settings.source, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        two = two.with_settings(source=source, rules=copy_rules(source, COPY_DEFAULTS))
    else:
        two = two.with_settings(rules=copy_rules(two.settings.source, COPY_DEFAULTS))
    (history,) = two.topic()
    history.plain(3, 2).transaction(2, 3, ends=COMMIT).transaction(4, ends=ABORT).plain(5)
    two.run()
    history.plain(2).transaction(1, 2, ends=COMMIT).plain(4).transaction(1, ends=COMMIT)
    two.run()
    back = reversed_brokers(two)
    assert WayBack(two, back, certificate_of(two)).begin() == [0]
    History(back.source.log("topic")).plain(3).transaction(2, ends=COMMIT).plain(2)
    back.run()
    read = stack.enter_context(Cluster(back.settings.source))
    return Back(back, read, stack.enter_context(Cluster(back.settings.destination)))


@pytest.fixture
def back() -> Iterator[Back]:
    with ExitStack() as stack:
        yield gone_back(stack)


@pytest.mark.parametrize("uncommitted", [False, True])
def test_each_offset_on_both_sides_of_the_cut_is_exact(uncommitted: bool) -> None:
    with ExitStack() as stack:
        back = gone_back(stack, uncommitted=uncommitted)
        back_again = translations(back, Direction.FORWARD)
        there = translations(back, Direction.REVERSE)
    copied = [
        offset for offset in range(CUT) if offset not in MARKERS and (uncommitted or offset not in ABORTED)
    ]
    for offset in range(CUT):
        assert there[offset] == len([each for each in copied if each < offset])
    assert back_again[len(copied)] == CUT


def translations(back: Back, direction: Direction) -> dict[int, int]:
    """Translate each offset of a side; all are exact, and those to the destination are proved."""
    side = "source" if direction is Direction.FORWARD else "destination"
    end = getattr(back.two, side).log("topic").log_end_offset
    for offset in range(end + 1):
        back.commit(side, f"{side} at {offset}", offset)
    report = back.round(direction=direction)
    rows = [each for group in report.groups for each in group.offsets if each.group.startswith(side)]
    assert [each.committed for each in rows if each.exactness is not Exactness.EXACT] == []
    if direction is Direction.FORWARD:
        assert all(each.proof is not None and each.proof.is_same for each in rows)
    found = {each.committed: each.translated for each in rows if each.translated is not None}
    assert len(found) == end + 1
    return found


def test_offset_before_the_cut_is_at_least_once_the_first_position_expired(back: Back) -> None:
    back.commit("source", "g", 4)
    assert row_of(back.round()).exactness is Exactness.EXACT
    back.two.destination.groups.delete(THERE)
    assert row_of(back.round()).exactness is Exactness.AT_LEAST


def test_offset_before_the_cut_is_at_least_if_the_first_group_may_not_be_read(back: Back) -> None:
    back.commit("source", "g", 4)

    def refuse(response: Any) -> Any:
        for each in response.groups:
            if each.group_id == THERE:
                each.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return response

    answers(back.two.destination, ApiKey.OFFSET_FETCH, refuse, times=10)
    assert row_of(back.round()).exactness is Exactness.AT_LEAST


def test_offset_before_the_cut_is_at_least_if_the_first_mirror_went_on(back: Back) -> None:
    """Its map then ends elsewhere: it is not the mirror that led to this cut."""
    first = reversed_brokers(back.two, THERE)
    back.commit("source", "g", 4)
    position = first.position()
    first.commit(replace(position, source_offset=position.source_offset + 1))
    assert row_of(back.round()).exactness is Exactness.AT_LEAST
