"""
The work of a mirror's tasks: each partition with its place to begin, its end, leaders and weight.

The driver asks both clusters at the start, and commits where new partitions begin (:mod:`.starts`). Then a
thread asks when the schedule has news, and now and then, since leaders move and partitions become busy. It
passes the result to the control server, which assigns it to tasks. A leader that does not answer at
once delays no other partition: its partition is left out, and asked for again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Self

from ...client.admin import NOT_ALLOWED
from ...client.cluster import Cluster, is_transient, patiently
from ...client.coordinator import MemberId
from ...client.metadata import leader_in
from ...errors import ShoalError
from ...topic_partition import TopicPartition
from ..assignment import Wanted, end_offsets, tasks_worth_having, window_ends
from ..model.acls import Acl
from ..model.position import MirrorPosition
from ..model.ranges import OPEN_END, CopyRange
from ..model.reports import left_out_report, stopped_report
from ..model.text import once_each
from ..positions import GroupPositions
from ..prepare.changes import PreparedTopic
from ..prepare.copies import deleted_copies, stops_of_deleted
from .schedule import Running
from .starts import Starts, group_warnings

__all__ = ["Places"]

#: The time for which the first look waits for brokers that do not respond.
_PATIENCE_S = 60.0


class Places:
    """Looks for the places, from :meth:`begin` to the end of the ``with`` block."""

    def __init__(self, mirror: Running, starts: Starts, streams: int | None = None) -> None:
        """
        Prepare; nothing is asked yet.

        Args:
            starts: Where partitions without a position begin.
            streams: The number of tasks, at most those that can run at a time; None for as many as are of
                use.

        """
        self._mirror = mirror
        self._options = mirror.options
        self._schedule = mirror.schedule
        self._warn = once_each(mirror.warn_in_report)
        #: The connections of the start, or of the thread.
        self._source: Cluster
        self._destination: Cluster
        self._starts = starts
        self._streams = streams
        self._ends: dict[TopicPartition, int] = {}
        self._wanted: Mapping[TopicPartition, Wanted] = {}
        self._left_out: Mapping[TopicPartition, str] = {}
        #: Whether the ends do not move on, and tasks have them: nothing has to be looked up again.
        self._has_ends = False
        self._over = threading.Event()
        self._news = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shoal-places", daemon=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._news.set()
        if self._thread.ident is not None:
            self._thread.join()

    def begin(self) -> None:
        """
        Look, and begin to look now and then.

        Raises:
            ShoalError: A cluster does not answer, or refuses a start position.

        """
        self._schedule.on_news = self._news.set
        if self._options.once:
            self._schedule.on_stopped = self._news.set  # it does not wait for what is stopped
        options = self._options
        with Cluster(options.source) as self._source, Cluster(options.destination) as self._destination:
            patiently(lambda: self._look(is_first=True), patience_s=_PATIENCE_S)
        self._thread.start()

    def tasks_of_use(self, most: int) -> int:
        """Return the number of tasks to have, of those that can run at a time."""
        wanted = self._wanted
        if not wanted:
            return 0
        if self._streams is not None:
            return min(self._streams, most)
        return tasks_worth_having(wanted.values(), most)

    @property
    def is_done(self) -> bool:
        """Whether everything is copied up to its end, but for what is stopped."""
        return self._has_ends and self._mirror.control.is_done

    # In its thread

    def _run(self) -> None:
        source, destination = self._options.source.impatient(), self._options.destination.impatient()
        with Cluster(source) as self._source, Cluster(destination) as self._destination:
            self._keep_looking()

    def _keep_looking(self) -> None:
        timing, has_failed = self._options.timing, False
        while True:
            is_complete = not (has_failed or self._left_out or (self._options.once and not self._has_ends))
            self._news.wait(timing.places_look_s if is_complete else timing.plan_look_s)
            if self._over.is_set():
                return
            self._news.clear()
            has_failed = True
            try:
                self._look()
                has_failed = False
            except ShoalError as error:
                # All partitions stay where they are. The watch of the clusters reports their silence.
                if not is_transient(error):
                    self._warn(f"new partitions cannot be begun: {error}")

    def _look(self, *, is_first: bool = False) -> None:
        if self._has_ends:
            left = self._schedule.takeable(self._wanted)
            self._want({each: self._wanted[each] for each in left})
            return
        topics, weights = self._schedule.topics, self._schedule.take_weights()
        self._source.refresh(topics)
        self._destination.refresh({topic.destination for topic in topics.values()})
        found = self._without_deleted(self._schedule.takeable(self._existing(topics)), topics)
        asked_at_s = time.time()
        begun = self._starts.find(self._source, found)
        for sentence in begun.sentences if begun else ():
            self._mirror.notify(sentence)
        refused = begun.refused if begun else {}
        if is_first:
            for error in refused.values():
                raise error
        ends = self._find_ends(found, begun.state.positions if begun else {})
        if begun:
            expected = ends or end_offsets(self._source, found, all_of_them=False)
            self._mirror.metrics.expect(begun.offsets, expected)
            for warning in group_warnings(self._source, self._mirror.group, begun.state, found):
                self._warn(warning)
        self._left_out = {
            each: f"its start to be committed: {refused[each]}"
            if each in refused
            else f"{self._source} to return its start offset"
            for each in found
            if each not in self._starts
        }
        wanted = {}
        for each in found:
            if each in self._starts:
                copy = topics[each.topic].destination
                copied = CopyRange(*each, copy, self._starts[each], ends.get(each, OPEN_END))
                wanted[each] = Wanted(copied, self._leaders_of(copied), weights.get(each, 0))
        self._want(wanted)
        if self._options.once:
            self._has_ends = self._options.until is None or self._options.until.is_known(
                asked_at_s, ends.values()
            )
        reasons = {**self._left_out, **self._deleted(topics)}
        if left := self._schedule.takeable(reasons):  # the group may have revoked some meanwhile
            self._schedule.apply(left_out_report({each: reasons[each] for each in left}))

    def _want(self, wanted: Mapping[TopicPartition, Wanted]) -> None:
        self._wanted = wanted
        self._mirror.control.want(wanted)

    def _without_deleted(
        self, partitions: Sequence[TopicPartition], topics: Mapping[str, PreparedTopic]
    ) -> Sequence[TopicPartition]:
        """Stop the partitions whose copy was deleted before: a task could not find that out."""
        deleted = {name for name, topic in topics.items() if topic.deleted is not None}
        gone = deleted_copies(self._destination, {topics[name].destination for name in deleted})
        reasons = {
            each: reason
            for each in partitions
            if (reason := topics[each.topic].deleted) is not None and topics[each.topic].destination in gone
        }
        if not reasons:
            return partitions
        positions = GroupPositions(self._source, self._mirror.group, MemberId).read(reasons)
        self._schedule.apply(stopped_report(stops_of_deleted(reasons, positions)))
        return [each for each in partitions if each not in reasons]

    def _existing(self, prepared: Mapping[str, PreparedTopic]) -> list[TopicPartition]:
        """Return the partitions that are ready at the destination and still exist at the source."""
        found = self._source.metadata.partitions_of(prepared)
        return [each for each in found if each.partition < prepared[each.topic].partitions]

    def _deleted(self, prepared: Mapping[str, PreparedTopic]) -> dict[TopicPartition, str]:
        """Return the partitions that were mirrored and were deleted at the source."""
        topics, errors = self._source.metadata.topics, self._source.metadata.errors
        gone = {topic: ready.partitions for topic, ready in prepared.items() if topic not in topics}
        reasons = {
            topic: self._why_hidden(topic)
            if errors.get(topic) in NOT_ALLOWED
            else f"topic {topic} to be on {self._source} again: it was deleted"
            for topic in gone
        }
        partitions = [
            TopicPartition(topic, number) for topic, count in gone.items() for number in range(count)
        ]
        return {each: reasons[each.topic] for each in partitions}

    def _why_hidden(self, topic: str) -> str:
        return (
            f"topic {topic} of {self._source} to be visible again: this principal is not authorized. "
            f"{self._options.grants(Acl('source', 'topic', topic, 'DESCRIBE'))}"
        )

    def _find_ends(
        self, wanted: Sequence[TopicPartition], positions: Mapping[TopicPartition, MirrorPosition]
    ) -> Mapping[TopicPartition, int]:
        """Return where the ranges of a mirror with an end do; they grow until it has come."""
        if not self._options.once:
            return {}
        known = self._ends
        ends = window_ends(self._source, wanted, self._options.until)
        reached = {each: position.source_offset for each, position in positions.items()}
        self._ends = known | {
            each: max(end, known.get(each, 0), reached.get(each, 0), self._starts[each])
            for each, end in ends.items()
        }
        return self._ends

    def _leaders_of(self, each: CopyRange) -> tuple[int, int]:
        """Return the leaders on both sides by the clusters' metadata; -1 for both if one has no leader."""
        source = leader_in(self._source.known, each.source)
        destination = leader_in(self._destination.known, each.destination)
        return (-1, -1) if source is None or destination is None else (source, destination)
