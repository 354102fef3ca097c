"""Commits of a worker's positions: what they wait for, and what they leave in doubt."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from shoal.client.config import IsolationLevel
from shoal.client.coordinator import MemberId
from shoal.error_codes import ErrorCode
from shoal.errors import Disconnected
from shoal.mirroring.control import WorkerControl
from shoal.mirroring.model.offset_map import OffsetMap
from shoal.mirroring.model.position import MirrorPosition, ProducerIdentity
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.reports import Assigned
from shoal.mirroring.task.committer import Commits
from shoal.mirroring.task.join_memory import JoinMemory
from shoal.mirroring.task.partition import PartitionCopy
from shoal.protocol.apis import ApiKey
from shoal.protocol.fetch import FetchedPartition
from tests.world import batches
from tests.world.clusters import TwoBrokers
from tests.world.control import Watched
from tests.world.faults import answers
from tests.world.waiting import wait_until

#: A position from which the first record lies behind a gap: its map has to be committed.
POSITION = MirrorPosition(
    0, 0, ProducerIdentity(5, 0), (0, 0), None, None, "rules", OffsetMap.begun_at(0, 0), 0
)


def copy_of(brokers: TwoBrokers, partition: int = 0) -> PartitionCopy:
    """An aligned partition, which has committed its position."""
    copy = PartitionCopy(Assigned(1, CopyRange("topic", partition, "topic", 0, 9)), brokers.settings)
    copy.begin_alignment(0, 0)
    copy.align(POSITION)
    copy.keep_commit(POSITION)
    return copy


def queue_behind_a_gap(copy: PartitionCopy) -> None:
    """Queue a record that the committed map does not lead to."""
    record_set = memoryview(batches.batch([b"one"], base_offset=3))
    fetched = FetchedPartition(*copy.source, 0, 9, 9, 0, [], record_set)
    copy.take(fetched, IsolationLevel.READ_COMMITTED, JoinMemory())
    assert not copy.progress.is_planned(0)


@pytest.fixture
def brokers(brokers: TwoBrokers) -> TwoBrokers:
    brokers.topic("topic", 2)
    return brokers.with_timing(plan_patience_s=0.2, last_commit_patience_s=0.2)


class SlowMember(Watched):
    """A control whose membership is known late, as if a thread waited for something else."""

    def __init__(self) -> None:
        super().__init__()
        self.known = threading.Event()
        self.asked = 0

    def membership(self) -> MemberId:
        self.known.wait(60)
        self.asked += 1
        return super().membership()


def commits_of(brokers: TwoBrokers, control: Any) -> Commits:
    return Commits(brokers.settings, WorkerControl(control), None)


def test_commit_that_is_given_up_before_it_is_sent_is_not_sent_in_a_later_generation(
    brokers: TwoBrokers,
) -> None:
    control, copy = SlowMember(), copy_of(brokers)
    ahead = replace(POSITION, source_offset=3)
    sent: list[object] = []

    def keep(response: object) -> object:
        sent.append(response)
        return response

    answers(brokers.source, ApiKey.OFFSET_COMMIT, keep, times=10)
    with commits_of(brokers, control) as commits:
        with pytest.raises(Disconnected):
            commits.commit_aligned({copy: ahead})
        control.generation += 1
        control.known.set()
        assert not commits.commit_aligned({copy: POSITION})
        wait_until(lambda: control.asked == 2)
    assert len(sent) == 1


def test_commits_before_gaps_follow_at_their_interval(brokers: TwoBrokers) -> None:
    brokers = brokers.with_timing(plan_interval_s=0.5)
    copies = copy_of(brokers), copy_of(brokers, 1)
    for each in copies:
        queue_behind_a_gap(each)
    with commits_of(brokers, Watched()) as commits:
        began_at = time.monotonic()
        for each in copies:
            commits.plan([each])
        assert time.monotonic() - began_at >= 0.5
        assert all(each.progress.is_planned(0) for each in copies)


def test_commit_that_the_coordinator_may_have_appended_is_waited_for_by_a_generation(
    brokers: TwoBrokers,
) -> None:
    control, copy = Watched(), copy_of(brokers)
    brokers.source.faults.add(ApiKey.OFFSET_COMMIT, error=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    with commits_of(brokers, control) as commits:
        queue_behind_a_gap(copy)
        commits.plan([copy])
    assert (control.generation, copy.state.is_aligned) == (1, False)
