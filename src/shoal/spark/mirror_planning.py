"""
Plan a mirror's own jobs: a single one, or one for each copy window.

Runs in the driver's process, and starts no job.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from functools import partial

from shoal.client.cluster import Cluster, patiently
from shoal.client.coordinator import MemberId
from shoal.client.offsets import EARLIEST, LATEST
from shoal.client.reachable import check_advertised
from shoal.errors import ShoalError, Stopped
from shoal.mirroring.assignment import (
    assign_tasks,
    doubted_sources,
    partitions_of,
    plan_ranges,
    start_offsets,
    tasks_worth_having,
)
from shoal.mirroring.driver.engine import CopyJob
from shoal.mirroring.model.acl_prefixes import by_prefix, prefixes_of
from shoal.mirroring.model.acls import Acl, grant_command
from shoal.mirroring.model.ranges import OPEN_END, CopyRange
from shoal.mirroring.model.reports import left_out_report
from shoal.mirroring.model.window import WindowPlan
from shoal.mirroring.positions import GroupPositions
from shoal.mirroring.prepare.copies import compare_copies
from shoal.mirroring.prepare.descriptions import NOT_ALLOWED
from shoal.spark.options import OffsetBound
from shoal.spark.planning import PATIENCE_S, Starts, leaders_of
from shoal.topic_partition import TopicPartition

__all__ = ["WindowPlanner", "plan_once"]


#: If there are no tasks: the number of looks at the plan before the clusters are asked again.
_LOOKS = 5


def plan_once(job: CopyJob, most_tasks: int) -> list[list[CopyRange]]:
    """
    Return the ranges of each task between the group's positions and the present end offsets.

    Args:
        most_tasks: The number of tasks that can run at a time.

    Raises:
        ShoalError: A cluster does not respond, or the source no longer has a partition's next offset.

    """
    topics = [name for name, topic in job.prepared.topics.items() if topic.deleted is None]
    if not topics:
        return []
    with Cluster(job.options.source) as cluster:
        check_advertised(cluster)  # for the error; if brokers are down now, the plan waits for them
        return patiently(lambda: _plan_once(job, topics, most_tasks, cluster), patience_s=PATIENCE_S)


def _plan_once(job: CopyJob, topics: list[str], most_tasks: int, source: Cluster) -> list[list[CopyRange]]:
    """Return the ranges, if all leaders respond."""
    source.refresh(topics)
    partitions = partitions_of(source, topics)
    level = source.config.isolation_level
    ends = start_offsets(source, partitions, LATEST, level)
    state = GroupPositions(source, job.prepared.group, MemberId).read_state(ends)
    starts = {**start_offsets(source, partitions, _starting(job).timestamp_ms, level), **state.starts}
    positions = {partition: position.source_offset for partition, position in state.positions.items()}
    names = {name: job.options.topics.destination_of(name) for name in topics}
    with Cluster(job.options.destination) as destination:
        destination.refresh(names.values())
        # A copy that differs from its position, or was not seen, needs a task that finds out why.
        copies = {each: TopicPartition(names[each.topic], each.partition) for each in state.positions}
        doubted = list(compare_copies(destination, state.positions, copies))
        doubted += doubted_sources(source, state.positions, ends)
        ranges = plan_ranges(starts, ends, positions, names, doubted)
        leaders = {each.source: leaders_of(each, source, destination) for each in ranges}
    return assign_tasks(ranges, tasks_worth_having(len(ranges), leaders, most_tasks), leaders)


def _starting(job: CopyJob) -> OffsetBound:
    """Return the start of partitions without a position."""
    options = job.options
    # The other partitions have a position. If a partition's leader did not respond at the first start, the
    # partition must not skip records.
    is_settled = options.start.timestamp_ms == LATEST and not job.is_first_start
    return OffsetBound(EARLIEST if is_settled else options.start.timestamp_ms)


class WindowPlanner:
    """
    Assigns a window's partitions to tasks; keeps its connections, and the start offsets that it found.

    Attributes:
        left_out: Partitions whose leader did not return their start offset, with the reason.
        gone: Partitions of deleted topics, with the reason.

    """

    def __init__(self, job: CopyJob, most_tasks: int) -> None:
        """
        Prepare to plan; nothing is asked yet.

        Args:
            most_tasks: The number of tasks that are to run at a time.

        """
        self._control = job.control
        self._group = job.prepared.group
        self._most_tasks = most_tasks
        self._look_s = job.options.timing.plan_look_s
        self._prefixes = prefixes_of(job.options.topics)
        self._takes_over_offsets = job.options.copy.takes_over_offsets
        # A leader that does not respond at once is left out of this window, or asked again.
        self._source = Cluster(job.options.source.impatient())
        self._destination = Cluster(job.options.destination.impatient())
        self._starts = Starts(_starting(job))
        self.left_out: dict[TopicPartition, str] = {}
        self.gone: dict[TopicPartition, str] = {}

    def next_tasks(self, stop: threading.Event) -> list[list[CopyRange]]:
        """
        Wait until there is something to copy, and for the clusters; return the ranges of each task.

        The list is empty if the mirror stops.

        """

        def pause(seconds: float) -> None:
            if self._control.stop_requested or stop.wait(seconds):
                raise Stopped("the mirror was stopped while it waited for its clusters")

        without_tasks, looks = None, 0
        try:
            while (plan := self._control.plan()) is not None:
                looks += 1
                # Partitions that were left out may be available by now; stopped ones will not be.
                is_worth_it = looks > _LOOKS and (self.left_out or self.gone)
                if plan != without_tasks or is_worth_it:
                    tasks = patiently(partial(self._tasks, plan), patience_s=math.inf, pause=pause)
                    self._report_left_out()
                    if tasks:
                        return tasks
                    without_tasks, looks = plan, 0
                pause(self._look_s)
        except Stopped:
            pass
        return []

    def tasks_ahead(self) -> list[list[CopyRange]]:
        """
        Return the ranges of the next window's tasks while the current window lasts.

        The list is empty if there is nothing to copy, or if the clusters do not answer at once: then the next
        window is planned after the end of this one.

        """
        plan = self._control.plan_ahead()
        if plan is None:
            return []
        try:
            tasks = self._tasks(plan)
        except ShoalError:
            tasks = []
        if not tasks or self.left_out:
            self._control.dismiss_next()
            return []
        self._report_left_out()
        return tasks

    def _report_left_out(self) -> None:
        if left_out := self.left_out | self.gone:
            self._control.apply(left_out_report(left_out, assign_again=bool(self.left_out)))

    def close(self) -> None:
        """Close the connections to both clusters."""
        self._source.close()
        self._destination.close()

    def _tasks(self, plan: WindowPlan) -> list[list[CopyRange]]:
        there = None
        if plan.share is not None and not self._starts.has_looked:
            # A partition that is assigned to this mirror later may have existed all the time.
            topics = self._source.refresh().topics.values()
            there = [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]
        self._source.refresh(plan.topics)
        self._destination.refresh({name for name, _ in plan.topics.values()})
        wanted = [each for each in self._partitions(plan) if plan.includes(each)]
        self._find_starts(wanted, there)
        self.left_out = {
            each: f"{self._source} to return its start offset" for each in wanted if each not in self._starts
        }
        self.gone = self._deleted(plan)
        ranges = [
            CopyRange(*each, plan.topics[each.topic][0], self._starts[each], OPEN_END)
            for each in wanted
            if each in self._starts
        ]
        leaders = {each.source: leaders_of(each, self._source, self._destination) for each in ranges}
        most = self._most_tasks
        # Surplus tasks would begin when the window is over, and never copy.
        tasks = min(plan.streams, most) if plan.streams else tasks_worth_having(len(ranges), leaders, most)
        return assign_tasks(ranges, tasks, leaders, plan.weights)

    def _partitions(self, plan: WindowPlan) -> list[TopicPartition]:
        """Return the partitions that are ready at the destination and still exist at the source."""
        topics = self._source.metadata.topics
        return [
            TopicPartition(topic, number)
            for topic, (_, count) in plan.topics.items()
            if topic in topics
            for number in sorted(topics[topic].partitions)
            if number < count
        ]

    def _deleted(self, plan: WindowPlan) -> dict[TopicPartition, str]:
        """Return the partitions that were mirrored and were deleted at the source."""
        topics, errors = self._source.metadata.topics, self._source.metadata.errors
        deleted = "topic {} to be on {} again: it was deleted"
        return {
            TopicPartition(topic, number): (
                self._why_hidden(topic)
                if errors.get(topic) in NOT_ALLOWED
                else deleted.format(topic, self._source)
            )
            for topic, (_, count) in plan.topics.items()
            if topic not in topics
            for number in range(count)
            if plan.includes(TopicPartition(topic, number))
        }

    def _why_hidden(self, topic: str) -> str:
        (acl,) = by_prefix([Acl("source", "topic", topic, "DESCRIBE")], self._prefixes, creates=False)
        return (
            f"topic {topic} of {self._source} to be visible again: this principal is not authorized. As an "
            f"administrator: {grant_command(acl, self._source.config)}"
        )

    def _find_starts(self, wanted: Sequence[TopicPartition], there: Sequence[TopicPartition] | None) -> None:
        """Find the start offsets, by the options, of partitions without a position."""
        unknown = self._starts.look(self._source, wanted, there)
        if not unknown:
            return
        state = GroupPositions(self._source, self._group, MemberId).read_state(unknown)
        positions, others = state.positions, state.others
        # A position takes precedence; if it is lost later, the task searches from the beginning.
        self._starts.add(dict.fromkeys(positions, 0))
        self._starts.add(state.starts)
        if self._takes_over_offsets:
            self._starts.add(others)
            unknown = [each for each in unknown if each not in others]
        level = self._source.config.isolation_level
        without = [each for each in unknown if each not in positions and each not in state.starts]
        for begin_at, partitions in self._starts.begin_at(without):
            found = start_offsets(self._source, partitions, begin_at.timestamp_ms, level, all_of_them=False)
            self._starts.add(found)
