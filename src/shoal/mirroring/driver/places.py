"""
The work of a mirror's tasks: each partition with its place to begin, its end, leaders and weight.

A thread asks both clusters at the start, when the schedule has news, and now and then, since leaders move and
partitions become busy. It passes the result to the control server, which assigns it to tasks. A leader that
does not answer at once delays no other partition: its partition is left out, and asked for again.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Self

from ...client.cluster import Cluster, patiently
from ...client.coordinator import MemberId
from ...client.metadata import leader_in
from ...client.offsets import EARLIEST, LATEST
from ...errors import ShoalError
from ...topic_partition import TopicPartition
from ..assignment import Wanted, start_offsets, tasks_worth_having, window_ends
from ..control import ControlServer
from ..model.acl_prefixes import by_prefix, prefixes_of
from ..model.acls import Acl, grant_command
from ..model.options import MirrorOptions
from ..model.ranges import OPEN_END, CopyRange
from ..model.reports import left_out_report
from ..positions import GroupPositions
from ..prepare.descriptions import NOT_ALLOWED
from .schedule import PartitionSchedule, Plan

__all__ = ["Places"]

#: The time for which the plan of a mirror with an end waits for brokers that do not respond.
_PATIENCE_S = 60.0


class Places:
    """Looks for the places, from the first task to the end of the ``with`` block."""

    def __init__(
        self,
        options: MirrorOptions,
        group: str,
        schedule: PartitionSchedule,
        control: ControlServer,
        *,
        is_first_start: bool,
    ) -> None:
        """
        Prepare; nothing is asked yet.

        Args:
            options: The options of the mirror.
            group: Its group.
            schedule: The partitions to copy.
            control: Assigns them to tasks.
            is_first_start: Whether this run is the group's first: ``--start latest`` then holds for each
                partition.

        """
        self._once = options.once
        self._until = options.until
        self._group = group
        self._schedule = schedule
        self._control = control
        self._timing = options.timing
        self._topics = options.topics
        self._takes_over_offsets = options.takes_over_offsets
        self._source = Cluster(options.source.impatient())
        self._destination = Cluster(options.destination.impatient())
        # The other partitions have a position. If a partition's leader did not respond at the first start, it
        # must not skip records.
        is_settled = options.start.timestamp_ms == LATEST and not is_first_start
        self._starts = _Starts(EARLIEST if is_settled else options.start.timestamp_ms)
        self._ends: dict[TopicPartition, int] = {}
        self._wanted: Mapping[TopicPartition, Wanted] = {}
        self._streams: int | None = None
        self._left_out: Mapping[TopicPartition, str] = {}
        #: Whether the ends do not move on, and tasks have them: nothing has to be looked up again.
        self._has_ends = False
        self._over = threading.Event()
        self._news = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shoal-places", daemon=True)

    def __enter__(self) -> Self:
        """Begin to look now and then."""
        self._schedule.on_news = self._news.set
        if self._once:  # it does not wait for what is stopped
            self._schedule.on_stopped = self._news.set
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._news.set()
        self._thread.join()
        self._close()

    def _close(self) -> None:
        self._source.close()
        self._destination.close()

    def begin(self) -> None:
        """
        Find the places and ends of a mirror with an end.

        Raises:
            ShoalError: A cluster does not answer. Nothing is left open.

        """
        if not self._once:
            return
        try:
            patiently(self._look, patience_s=_PATIENCE_S)
        except BaseException:
            self._close()
            raise

    def tasks_of_use(self, most: int) -> int:
        """Return the number of tasks to have, of those that can run at a time."""
        wanted = self._wanted
        if not wanted:
            return 0
        if self._streams is not None:
            return min(self._streams, most)
        leaders = {partition: each.leaders for partition, each in wanted.items()}
        return tasks_worth_having(len(wanted), leaders, most)

    @property
    def is_done(self) -> bool:
        """Whether everything is copied up to its end, but for what is stopped."""
        return self._has_ends and self._control.is_done

    # In its thread

    def _run(self) -> None:
        while not self._over.is_set():
            self._news.clear()
            is_complete = False
            try:
                self._look()
                is_complete = not self._left_out and not (self._once and not self._has_ends)
            except ShoalError:
                pass  # all partitions stay where they are; the watch of the clusters reports the silence
            self._news.wait(self._timing.places_look_s if is_complete else self._timing.plan_look_s)

    def _look(self) -> None:
        plan = self._schedule.plan()
        self._streams = plan.streams
        if self._has_ends:
            self._want({each: wanted for each, wanted in self._wanted.items() if plan.includes(each)})
            return
        there = None
        if plan.share is not None and not self._starts.has_looked:
            # A partition that is assigned to this mirror later may have existed all the time.
            topics = self._source.refresh().topics.values()
            there = [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]
        self._source.refresh(plan.topics)
        self._destination.refresh({name for name, _ in plan.topics.values()})
        found = [each for each in self._existing(plan) if plan.includes(each)]
        asked_at_s = time.time()
        positions = self._find_starts(found, there)
        ends = self._find_ends(found, positions)
        self._left_out = {
            each: f"{self._source} to return its start offset" for each in found if each not in self._starts
        }
        wanted = {}
        for each in found:
            if each in self._starts:
                copied = CopyRange(
                    *each, plan.topics[each.topic][0], self._starts[each], ends.get(each, OPEN_END)
                )
                wanted[each] = Wanted(copied, self._leaders_of(copied), plan.weights.get(each, 0))
        self._want(wanted)
        if self._once:
            self._has_ends = self._until is None or self._until.is_known(asked_at_s, ends.values())
        if reasons := {**self._left_out, **self._deleted(plan)}:
            self._schedule.apply(left_out_report(reasons))

    def _want(self, wanted: Mapping[TopicPartition, Wanted]) -> None:
        self._wanted = wanted
        self._control.want(wanted)

    def _existing(self, plan: Plan) -> list[TopicPartition]:
        """Return the partitions that are ready at the destination and still exist at the source."""
        topics = self._source.metadata.topics
        return [
            TopicPartition(topic, number)
            for topic, (_, count) in plan.topics.items()
            if topic in topics
            for number in sorted(topics[topic].partitions)
            if number < count
        ]

    def _deleted(self, plan: Plan) -> dict[TopicPartition, str]:
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
        (acl,) = by_prefix(
            [Acl("source", "topic", topic, "DESCRIBE")], prefixes_of(self._topics), creates=False
        )
        return (
            f"topic {topic} of {self._source} to be visible again: this principal is not authorized. As an "
            f"administrator: {grant_command(acl, self._source.config)}"
        )

    def _find_starts(
        self, wanted: Sequence[TopicPartition], there: Sequence[TopicPartition] | None
    ) -> Mapping[TopicPartition, int]:
        """Find the start offsets, by the options, of partitions without a position; return positions."""
        unknown = self._starts.look(self._source, wanted, there)
        if not unknown:
            return {}
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
            found = start_offsets(self._source, partitions, begin_at, level, all_of_them=self._once)
            self._starts.add(found)
        return {partition: position.source_offset for partition, position in positions.items()}

    def _find_ends(
        self, wanted: Sequence[TopicPartition], positions: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        """Return where the ranges of a mirror with an end do; they grow until it has come."""
        if not self._once:
            return {}
        known = self._ends
        ends = window_ends(self._source, wanted, self._until, self._source.config.isolation_level)
        self._ends = known | {
            each: max(end, known.get(each, 0), positions.get(each, 0), self._starts[each])
            for each, end in ends.items()
        }
        return self._ends

    def _leaders_of(self, each: CopyRange) -> tuple[int, int]:
        """Return the leaders on both sides by the clusters' metadata; -1 for both if one has no leader."""
        source = leader_in(self._source.known, each.source)
        destination = leader_in(self._destination.known, each.destination)
        return (-1, -1) if source is None or destination is None else (source, destination)


class _Starts:
    """
    The start offsets of partitions without a position, which a mirror looks up once.

    ``latest`` must not move on, so the offsets are kept. A partition that is created later is mirrored from
    its beginning. So is a topic that was deleted and created again: the old topic's offsets have no meaning
    for it.

    """

    def __init__(self, begin_at: int) -> None:
        self._begin_at = begin_at
        self._offsets: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, uuid.UUID | None] = {}
        self._first: frozenset[TopicPartition] | None = None

    @property
    def has_looked(self) -> bool:
        """Whether :meth:`look` has been called."""
        return self._first is not None

    def look(
        self,
        cluster: Cluster,
        partitions: Sequence[TopicPartition],
        there: Sequence[TopicPartition] | None,
    ) -> list[TopicPartition]:
        """
        Drop the offsets of topics that are gone or replaced; return the partitions without a known start.

        Args:
            cluster: The source cluster, with metadata of the partitions.
            partitions: The partitions to read.
            there: At the first call, the partitions that exist already; by default ``partitions``.

        """
        topics = cluster.metadata.topics
        changed = {
            topic
            for topic, topic_id in self._topic_ids.items()
            if topic not in topics or topics[topic].topic_id != topic_id
        }
        self._offsets = {each: start for each, start in self._offsets.items() if each.topic not in changed}
        if self._first is None:
            self._first = frozenset(partitions if there is None else there)
        self._first = frozenset(each for each in self._first if each.topic not in changed)
        self._topic_ids = {topic: topics[topic].topic_id for topic in {each.topic for each in partitions}}
        return [each for each in partitions if each not in self._offsets]

    def begin_at(self, unknown: Sequence[TopicPartition]) -> list[tuple[int, list[TopicPartition]]]:
        """Return the times to look up: for partitions of the first look, then for the others."""
        first = self._first or frozenset()
        return [
            (self._begin_at, [each for each in unknown if each in first]),
            (EARLIEST, [each for each in unknown if each not in first]),
        ]

    def add(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Add start offsets."""
        self._offsets |= offsets

    def __getitem__(self, partition: TopicPartition) -> int:
        return self._offsets[partition]

    def __contains__(self, partition: object) -> bool:
        return partition in self._offsets
