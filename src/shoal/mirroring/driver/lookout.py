"""
A thread of the driver that examines both clusters at each ``--refresh``, while tasks copy.

The thread finds copies that were deleted or truncated, also those that no task writes to. It finds new topics
and partitions, and the ends of those that no task fetches. :mod:`.following` looks at configurations and
ACLs.
"""

from __future__ import annotations

import abc
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

from ...client.cluster import Cluster, is_transient
from ...client.coordinator import MemberId
from ...errors import ConfigError, ShoalError, lacks_acl
from ...topic_partition import TopicPartition
from ..assignment import end_offsets
from ..model.acls import needed_acls
from ..model.incidents import Incident, IncidentKind
from ..model.position import MirrorPosition, is_another_topic
from ..model.reports import left_out_report, stopped_report
from ..model.text import first_few, once_each
from ..positions import GroupPositions
from ..prepare.changes import Prepared, PreparedTopic
from ..prepare.copies import (
    CopyState,
    compare_copies,
    confirmed_deleted,
    deleted_copies,
    deleted_reason,
    stops_of_deleted,
)
from ..prepare.create import prepare
from .schedule import Running

__all__ = ["CopyWatch", "Discovery", "Lookout", "Watch", "prepare_again", "refuse_more_partitions"]

#: Looks take at most this part of a core: at 10,000 partitions one takes a second of CPU.
_MOST_BUSY = 1 / 80


class Watch(abc.ABC):
    """
    One thing that a mirror looks for.

    Attributes:
        failure: The beginning of the warning that it cannot look.
        needs_all_topics: Whether it looks at topics of the source that are not mirrored.
        over: Set once the mirror ends, or stops looking.

    """

    failure: ClassVar[str]
    needs_all_topics: ClassVar[bool] = False

    def __init__(self, mirror: Running) -> None:
        """Prepare; it gives each warning once."""
        self.over = threading.Event()
        self._mirror = mirror
        self._options = mirror.options
        self._schedule = mirror.schedule
        self._warn = once_each(mirror.warn_in_report)

    @abc.abstractmethod
    def look(self, source: Cluster, destination: Cluster) -> None:
        """Examine both clusters once; the metadata of the source are new."""

    def warn_of(self, error: Exception) -> None:
        """Warn of an error, unless a later look can succeed: a mirror runs for months."""
        if not is_transient(error):
            self._warn(f"{self.failure}{error}")


class Lookout:
    """
    Lets each watch look in turn, every ``refresh_s`` until the ``with`` block ends.

    With many partitions the pause is longer, so that an idle mirror stays cheap.

    """

    def __init__(self, mirror: Running, *watches: Watch) -> None:
        """Prepare the thread."""
        self._options = mirror.options
        self._schedule = mirror.schedule
        self._watches = watches
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name="shoal-lookout", daemon=True)

    def look(self, source: Cluster, destination: Cluster) -> None:
        """Look once."""
        needs_all = any(each.needs_all_topics for each in self._watches)
        try:
            source.refresh(None if needs_all else self._schedule.names)
        except Exception as error:
            self._watches[0].warn_of(error)
            return
        for each in self._watches:
            try:
                each.look(source, destination)
            except Exception as error:
                each.warn_of(error)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        for event in (self._over, *(each.over for each in self._watches)):
            event.set()
        # The thread may be waiting for a broker. It holds only its own connections.
        self._thread.join(timeout=1.0)

    def _keep_looking(self) -> None:
        options = self._options
        with (
            Cluster(options.source.impatient()) as source,
            Cluster(options.destination.impatient()) as destination,
        ):
            pause_s = options.refresh_s
            while not self._over.wait(pause_s):
                began_s = time.thread_time()
                self.look(source, destination)
                pause_s = max(options.refresh_s, (time.thread_time() - began_s) / _MOST_BUSY)


class CopyWatch(Watch):
    """
    Compares all copies at each look.

    The driver itself stops only a partition whose topic is gone: there is nothing that a task could align it
    with. If such a topic had no position at any look, nothing was written to it: the driver creates it again,
    as at the start. All other findings go to a task, which reads both logs and reports what it finds as an
    incident.

    The watch reacts once to each finding, since a task may still be working on it at the next look.
    A copy whose leader is silent at two looks is a finding, too: an idle task does not ask that leader.
    With ``--once`` it looks for deleted copies alone: the tasks find everything else, and stop by themselves.

    """

    failure = "the copies cannot be compared with the committed positions: "

    def __init__(self, mirror: Running, create_again: Callable[[Collection[str]], Iterable[str]]) -> None:
        """
        Prepare the first look.

        Args:
            create_again: A function that creates the copies of source topics, and returns warnings. It is
                called for topics that nothing was written to, or if the policy lets the mirror continue.

        """
        super().__init__(mirror)
        self._create_again = create_again
        self._positions: dict[TopicPartition, MirrorPosition] = {}
        self._reported: dict[TopicPartition, tuple[CopyState, MirrorPosition]] = {}
        #: The partitions whose copy's leader did not answer at the last look.
        self._unseen: set[TopicPartition] = set()

    def look(self, source: Cluster, destination: Cluster) -> None:
        """Compare all copies once."""
        copies = self._schedule.copies()
        if not copies:
            return
        there = [each for each in copies if each.topic in source.metadata.topics]
        positions = GroupPositions(source, self._mirror.group, MemberId).read(there)
        # A position may get lost, and the copy after it: that it was written to shows from the one before.
        self._positions = {
            each: position for each, position in self._positions.items() if _is_of(position, each, source)
        } | positions
        destination.refresh({copies[partition].topic for partition in there})
        written = {each: self._positions[each] for each in there if each in self._positions}
        self._meet_deleted(written, copies, destination)
        self._create_unwritten({each: copies[each] for each in there}, written, destination)
        if self._options.once:
            return
        found = compare_copies(destination, positions, copies)
        # Records that follow a position are the mirror's own, and will be committed.
        lost = [each for each, state in found.items() if state in (CopyState.RECREATED, CopyState.SHORTER)]
        doubted = [*lost, *self._still_unseen(found)]
        self._doubt({partition: (found[partition], positions[partition]) for partition in doubted})

    def _still_unseen(self, found: Mapping[TopicPartition, CopyState]) -> Collection[TopicPartition]:
        """Return the partitions whose copy was silent at two looks, if no task has reported that."""
        before = self._unseen
        self._unseen = {each for each, state in found.items() if state is CopyState.UNSEEN}
        return (before & self._unseen).difference(self._schedule.in_trouble())

    def _meet_deleted(
        self,
        positions: Mapping[TopicPartition, MirrorPosition],
        copies: Mapping[TopicPartition, TopicPartition],
        destination: Cluster,
    ) -> None:
        """Create the copies again that are gone, or stop their partitions."""
        topics = {copies[partition].topic for partition in positions}
        if self._options.continues_after(IncidentKind.DESTINATION_LOSS):
            gone = deleted_copies(destination, topics)
            if gone:
                self._create(gone, copies)
                destination.refresh(gone)
            return
        gone = confirmed_deleted(destination, topics, self.over.wait, self._options.timing)
        reasons = {
            partition: deleted_reason(copy.topic, destination)
            for partition, copy in copies.items()
            if copy.topic in gone
        }
        if reasons and not self.over.is_set():
            stops = stops_of_deleted(reasons, positions)
            self._schedule.apply(stopped_report(stops))
            self._plan_again(stops)

    def _create_unwritten(
        self,
        copies: Mapping[TopicPartition, TopicPartition],
        positions: Iterable[TopicPartition],
        destination: Cluster,
    ) -> None:
        """Create copies again that are gone and have no position: nothing was written to them, or lost."""
        unwritten = {copy.topic for copy in copies.values()} - {copies[each].topic for each in positions}
        gone = confirmed_deleted(destination, unwritten, self.over.wait, self._options.timing)
        if gone and not self.over.is_set():
            self._create(gone, copies)

    def _create(self, gone: Collection[str], copies: Mapping[TopicPartition, TopicPartition]) -> None:
        topics = sorted({each.topic for each, copy in copies.items() if copy.topic in gone})
        for warning in self._create_again(topics):
            self._warn(warning)
        for topic in sorted(gone):
            self._mirror.notify(f"topic {topic} was deleted at the destination, and is created again")

    def _doubt(self, found: Mapping[TopicPartition, tuple[CopyState, MirrorPosition]]) -> None:
        news = {
            partition: f"{partition.topic}'s copy to be aligned: it {state.value}"
            for partition, (state, position) in found.items()
            if self._reported.get(partition) != (state, position)
        }
        self._reported = dict(found)
        if news:
            self._schedule.apply(left_out_report(news))
            self._plan_again(news)

    def _plan_again(self, partitions: Iterable[TopicPartition]) -> None:
        """Have tasks begin these partitions again, without a position, so that they read both logs."""
        self._mirror.control.recall(partitions)
        self._schedule.on_news()


def _is_of(position: MirrorPosition, partition: TopicPartition, source: Cluster) -> bool:
    """Whether a position is of the source's present topic: Kafka deletes positions with their topic."""
    topic = source.metadata.topics.get(partition.topic)
    return topic is not None and not is_another_topic(position.source_topic_id, topic.topic_id)


#: The bound on new partitions since the start is so many times that of one look.
_LOOKS = 10

_NAMED_TOPICS = 3


def prepare_again(
    mirror: Running, topics: Collection[str], sizes: Mapping[str, int], **changes: Any
) -> Prepared:
    """
    Prepare some topics of a running mirror, with connections of its own: that may take longer than a look.

    Args:
        sizes: The most partitions of each; see :func:`refuse_more_partitions`.
        changes: Other options than those of the mirror.

    """
    # By names: an expression never matches one that looks internal, as an operator may have named.
    selection = replace(mirror.options.topics, topics=",".join(topics))
    options = replace(mirror.options, topics=selection, **changes)
    with Cluster(options.source) as source, Cluster(options.destination) as destination:
        return prepare(
            options,
            source,
            destination,
            check=lambda changes: refuse_more_partitions(changes, sizes),
        )


def refuse_more_partitions(changes: Prepared, sizes: Mapping[str, int]) -> None:
    """
    Refuse changes right before they are made if the source lists more partitions than at the look.

    Raises:
        ConfigError: A topic has more than in ``sizes``; those that are mirrored already do not count.

    """
    for name, topic in changes.topics.items():
        known = max(sizes.get(name, 0), topic.present_partitions)
        if topic.deleted is None and topic.partitions > known:
            raise ConfigError(
                f"topic {name} had {known:,} partitions a moment ago, and has {topic.partitions:,} now. The "
                "next search for new partitions counts them"
            )


class Discovery(Watch):
    """
    Prepares new topics and partitions, and has them copied.

    Kafka cannot remove a partition, and more of them place keys differently. So a source that lists thousands
    of new ones, by mistake or on purpose, must not grow the destination before an operator has looked
    (``--max-new-partitions``).

    A topic that cannot be mirrored does not delay the others: it is a warning, and is tried again.
    If a look finds more new partitions than may be added, it adds none: that is an incident.

    """

    failure = "new topics and partitions cannot be looked for: "
    needs_all_topics = True

    def __init__(self, mirror: Running, on_found: Callable[[PreparedTopic], object]) -> None:
        """
        Prepare the first look.

        Args:
            on_found: A function that receives a topic that is new, is back, or has new partitions, once its
                copy is ready.

        """
        super().__init__(mirror)
        self._topics = mirror.schedule.topics
        #: The partitions at the start and since, also of topics that do not become ready.
        self._sizes = mirror.schedule.sizes
        self._most = sum(self._sizes.values()) + _LOOKS * self._options.max_new_partitions
        self._problem: str | None = None
        self._on_found = on_found
        self._gone: set[str] = set()

    def look(self, source: Cluster, destination: Cluster) -> None:
        """Prepare new topics and partitions of the source; update the ends that no task fetches."""
        found = source.metadata.topics
        news: dict[str, int] = {}
        for name, topic in found.items():
            known = self._topics.get(name)
            is_news = known is None or name in self._gone or known.partitions < len(topic.partitions)
            if is_news and self._options.topics.matches(topic):
                news[name] = len(topic.partitions)
        if self._may_add(news):
            for name, size in news.items():
                self._prepare(name, size)
        self._gone = {name for name in self._topics if name not in found}
        held_up = [each for each in self._schedule.held_up() if each.topic in found]
        if held_up:
            self._mirror.metrics.expect({}, end_offsets(source, held_up, all_of_them=False))

    def _may_add(self, sizes: Mapping[str, int]) -> bool:
        """Count the new partitions of a look, unless they are too many: then count none, and report it."""
        wanted = {name: max(0, size - self._sizes.get(name, 0)) for name, size in sizes.items()}
        left = self._most - sum(self._sizes.values())
        if sum(wanted.values()) <= min(self._options.max_new_partitions, left):
            self._problem = None
            self._sizes |= {name: sizes[name] for name, more in wanted.items() if more}
            return True
        problem = self._too_many(wanted, left)
        if problem != self._problem:
            self._problem = problem
            self._warn(problem)
            largest = max(wanted, key=lambda topic: wanted[topic])
            self._mirror.metrics.count(Incident(IncidentKind.NEW_PARTITIONS, problem, partition=largest))
        return False

    def _too_many(self, wanted: Mapping[str, int], left: int) -> str:
        a_look = self._options.max_new_partitions
        largest = sorted(filter(wanted.__getitem__, wanted), key=lambda topic: (-wanted[topic], topic))
        named = first_few([f"{topic}: {wanted[topic]:,}" for topic in largest], most=_NAMED_TOPICS)
        return (
            f"the source lists {sum(wanted.values()):,} new partitions ({named}), and none of them "
            f"is added. The bound is {a_look:,} a look and {_LOOKS * a_look:,} since the start "
            f"(--max-new-partitions), of which {left:,} are left. Check the source. If it is right, start "
            "the mirror again to add them"
        )

    def _prepare(self, name: str, partitions: int) -> None:
        try:
            copy = self._options.topics.destination_of(name)
        except ConfigError as error:
            self._warn(f"topic {name} is not mirrored: {error}")
            return
        taken = [
            each.source for each in self._topics.values() if each.destination == copy and each.source != name
        ]
        if taken:
            self._warn(f"topic {name} is not mirrored: its copy would be {copy}, which is that of {taken[0]}")
            return
        try:
            prepared = prepare_again(self._mirror, [name], {name: partitions})
        except ShoalError as error:
            if not is_transient(error):
                self._warn(f"topic {name} is not mirrored yet: {error}{self._grants(name, copy, error)}")
            return
        for warning in prepared.warnings:
            self._warn(warning)
        self._topics[name] = prepared.topics[name]
        self._on_found(prepared.topics[name])

    def _grants(self, name: str, copy: str, error: ShoalError) -> str:
        """Return the commands that grant the ACLs of a topic and its copy, if the error is that one lacks."""
        if not lacks_acl(error):
            return ""
        needed = needed_acls({name: copy}, "", created=[copy], grown=[copy], before_2_8=False)
        acls = [each for each in needed if each.resource_type == "topic"]
        return f". {self._options.grants(*acls, creates=True)}"
