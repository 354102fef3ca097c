"""Plan copy windows: the source half of a mirror without an end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from shoal.client.cluster import Cluster, patiently
from shoal.client.coordinator import MemberId
from shoal.errors import Stopped
from shoal.mirroring.assignment import assign_tasks, start_offsets, tasks_worth_having
from shoal.mirroring.control import ask_starts, planning
from shoal.mirroring.model.ranges import OPEN_END, CopyRange
from shoal.mirroring.model.reports import left_out_report
from shoal.mirroring.model.window import WindowPlan
from shoal.mirroring.positions import GroupPositions
from shoal.spark.first_sentence import sentence_first
from shoal.spark.limits import ReadLimit
from shoal.spark.options import ControlAddress, ReadOptions
from shoal.spark.planning import Starts, TaskPartition, leaders_of, reference_rows
from shoal.spark.unlocking import unlocked
from shoal.topic_partition import TopicPartition

__all__ = ["WindowReader"]

#: A key in the offsets of a mirror's stream, with a number that is new for each window.
_SLICE = "slice"

#: If there are no tasks: the interval and the number of requests to the driver before Spark's next one.
_LOOK_INTERVAL_S = 1.0
_LOOKS = 5


@sentence_first
class WindowReader(DataSourceStreamReader):
    """
    The reader of a mirror's stream: each micro-batch is a copy window, and all of its ranges are open.

    The driver chooses the partitions. The group and former tasks have their positions, so Spark's log only
    counts windows.

    One object serves the whole query, in a process on the driver. Copies of it read in the tasks.

    """

    def __init__(self, options: ReadOptions, control: ControlAddress) -> None:
        self._options = options
        self._driver = (control.host, control.port), control.token
        self._planner: _WindowPlanner | None = None
        self._last: dict[str, Any] = {}
        self._without_tasks: WindowPlan | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks receive only the options. Connections stay on the driver.
        return {"_options": self._options}

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of the stream. Spark calls this once for a checkpoint."""
        return {_SLICE: 0}

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """
        Count one more window, unless there is nothing to copy, or the driver stops.

        The number is the time, in nanoseconds: PySpark before 4.2 does not pass the end of its log.
        """
        start = self._last if start is None else start
        plan = self._plan()
        if plan is not None and plan == self._without_tasks:
            plan = self._await_another(plan)
        if plan is None:
            return start
        self._last = {_SLICE: time.time_ns()}
        return self._last

    def _await_another(self, without_tasks: WindowPlan) -> WindowPlan | None:
        """Wait for a plan that is worth a window; return None if there is none for now."""
        for _ in range(_LOOKS):
            time.sleep(_LOOK_INTERVAL_S)
            plan = self._plan()
            if plan != without_tasks:
                return plan
        # Partitions that were left out may be available by now; stopped ones will not be.
        is_worth_it = self._planner and (self._planner.left_out or self._planner.gone)
        return without_tasks if is_worth_it else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a window. Runs on the driver, once in each window."""
        try:
            if self._planner is None:
                self._planner = _WindowPlanner(unlocked(self._options), ask_starts(*self._driver))
            with planning(*self._driver) as session:
                plan = session.plan
                if plan is None:
                    return []
                tasks = self._planner.tasks(plan, self._pause)
                if (starts := self._planner.starts()) is not None:
                    session.keep_starts(starts)
                if self._planner.left_out or self._planner.gone:
                    left_out = self._planner.left_out | self._planner.gone
                    again = bool(self._planner.left_out)
                    session.report(left_out_report(left_out, assign_again=again))
        except Stopped:
            return []  # the next process plans these partitions
        self._without_tasks = None if tasks else plan
        return tasks

    def stop(self) -> None:
        """Close the connections. Spark does not call this if a query is stopped: it ends the process."""
        if self._planner is not None:
            self._planner.close()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield a task's rows. Runs in the task."""
        return reference_rows(partition)

    def _plan(self) -> WindowPlan | None:
        try:
            with planning(*self._driver) as session:
                return session.plan
        except Stopped:
            return None

    def _pause(self, seconds: float) -> None:
        if self._plan() is None:
            raise Stopped("the mirror was stopped while it waited for its clusters")
        time.sleep(seconds)


class _WindowPlanner:
    """
    Assigns a window's partitions to tasks; keeps its connections, and the start offsets that it found.

    Attributes:
        left_out: Partitions whose leader did not return their start offset, with the reason.
        gone: Partitions of deleted topics, likewise.

    """

    def __init__(self, options: ReadOptions, starts: Any) -> None:
        assert options.destination is not None  # a mirror sets both
        assert options.group is not None
        self._options = options
        self._group = options.group
        # A leader that does not respond at once is left out of this window, or asked again.
        self._source = Cluster(options.source.impatient())
        self._destination = Cluster(options.destination.impatient())
        self._starts = Starts.from_json_object(options.starting, starts)
        self._reported_starts = starts
        self.left_out: dict[TopicPartition, str] = {}
        self.gone: dict[TopicPartition, str] = {}

    def tasks(self, plan: WindowPlan, pause: Callable[[float], object]) -> list[TaskPartition]:
        """Return the tasks of the next window; waits for the clusters until ``pause`` raises."""
        return patiently(lambda: self._tasks(plan), patience_s=math.inf, pause=pause)

    def starts(self) -> Any:
        """Return the start offsets for the driver; None if it has them."""
        starts = self._starts.to_json_object()
        if starts == self._reported_starts:
            return None
        self._reported_starts = starts
        return starts

    def close(self) -> None:
        """Close the connections to both clusters."""
        self._source.close()
        self._destination.close()

    def _tasks(self, plan: WindowPlan) -> list[TaskPartition]:
        there = None
        if plan.share is not None and not self._starts.has_looked:
            # A partition that is assigned to this mirror later may have existed all the time.
            topics = self._source.refresh().topics.values()
            there = [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]
        self._source.refresh(plan.topics)
        self._destination.refresh({name for name, _ in plan.topics.values()})
        wanted = [each for each in self._partitions(plan) if plan.wants(each)]
        self._find_starts(wanted, there)
        self.left_out = {
            each: f"{self._source} to say where it begins" for each in wanted if each not in self._starts
        }
        self.gone = self._deleted(plan)
        ranges = [
            CopyRange(*each, plan.topics[each.topic][0], self._starts[each], OPEN_END)
            for each in wanted
            if each in self._starts
        ]
        leaders = {each.source: leaders_of(each, self._source, self._destination) for each in ranges}
        most = self._options.tasks
        # Surplus tasks would begin when the window is over, and never copy.
        tasks = min(plan.streams, most) if plan.streams else tasks_worth_having(len(ranges), leaders, most)
        return [TaskPartition(each) for each in assign_tasks(ranges, tasks, leaders, plan.weights)]

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
        topics = self._source.metadata.topics
        return {
            TopicPartition(topic, number): f"topic {topic} to be on {self._source} again: it was deleted"
            for topic, (_, count) in plan.topics.items()
            if topic not in topics
            for number in range(count)
            if plan.wants(TopicPartition(topic, number))
        }

    def _find_starts(self, wanted: Sequence[TopicPartition], there: Sequence[TopicPartition] | None) -> None:
        """Find the start offsets, by the options, of partitions without a position."""
        unknown = self._starts.look(self._source, wanted, there)
        if not unknown:
            return
        state = GroupPositions(self._source, self._group, MemberId).read_state(unknown)
        positions, others = state.positions, state.others
        # A position takes precedence; if it is lost later, the task searches from the beginning.
        self._starts.know(dict.fromkeys(positions, 0))
        self._starts.know(state.starts)
        if self._options.takes_over_offsets:
            self._starts.know(others)
            unknown = [each for each in unknown if each not in others]
        level = self._source.config.isolation_level
        without = [each for each in unknown if each not in positions and each not in state.starts]
        for begin_at, partitions in self._starts.begin_at(without):
            found = start_offsets(self._source, partitions, begin_at.timestamp_ms, level, all_of_them=False)
            self._starts.know(found)
