"""
``shoal mirror``: topics by their names, and a consumer group that one mirror holds.

Without ``--once`` the selection is looked up again at each ``--refresh``, and so are the copies.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ...client.cluster import Cluster, patiently
from ...client.config import IsolationLevel
from ...client.coordinator import MemberId
from ...client.offsets import LATEST
from ...state_directory import state_dir
from ...topic_partition import TopicPartition
from ..assignment import end_offsets, partitions_of, start_offsets
from ..control import ControlServer
from ..model.options import checkpoint_name
from ..model.position import MirrorPosition
from ..model.progress import Phase, Summary
from ..model.reports import stopped_report
from ..positions import GroupPositions, warning_of_others
from ..prepare.copies import stops_of_deleted
from ..prepare.create import Prepared, PreparedTopic, prepare
from .companion import Companion
from .copy_watch import CopyWatch
from .discovery import Discovery
from .following import Following
from .group_lock import GroupLock, MirrorIdentity
from .run import START_PATIENCE_S, MirrorRun
from .schedule import PartitionSchedule

__all__ = ["TopicMirror"]


class TopicMirror:
    """A mirror of selected topics. Composes a :class:`~.run.MirrorRun`."""

    def __init__(self, run: MirrorRun, companion: Companion | None = None) -> None:
        """
        Prepare; nothing begins.

        Args:
            run: The run that the mirror composes.
            companion: Works beside the tasks; None for none.

        """
        self._run = run
        self._companion = companion
        self._options = run.options
        self._identity: MirrorIdentity

    def run(self) -> Summary:
        """Mirror to the end; see :meth:`.run.MirrorRun.run`."""
        return self._run.run(self._mirror)

    def _mirror(self, resources: contextlib.ExitStack) -> Summary:
        run = self._run
        with run.signals.interrupting():
            prepared = self._prepare(lambda group: self._take(group, resources))
        run.know(prepared.group, prepared.warnings)
        schedule = PartitionSchedule(prepared.topics, run.metrics)
        control = run.listen(schedule, resources)
        lock = GroupLock(self._options.source, prepared.group, self._identity.name, control.renew)
        resources.callback(lock.release)
        with run.signals.interrupting():
            partitions = self._expect(prepared, schedule)
            lock.acquire(partitions, START_PATIENCE_S)
            self._settle_beginnings(prepared, partitions, control)
        following = Following(
            self._options, prepared.group, schedule, run.metrics.followed, run.warn_in_report, run.notify
        )
        if following.is_wanted:
            with run.signals.interrupting():
                following.look_at_once()
        if not self._options.once:
            resources.enter_context(following)
            self._look_out(prepared, schedule, control, lock, resources)
        if self._companion is None:
            return run.copy(prepared, schedule, control, lock)
        resources.callback(self._companion.close)
        self._companion.begin(prepared.group, lambda: schedule.names)
        summary = run.copy(prepared, schedule, control, lock)
        self._companion.finish()
        return replace(summary, consumer_groups=run.metrics.progress().consumer_groups)

    def _take(self, group: str, resources: contextlib.ExitStack) -> None:
        """Take the group's directory on this machine, and begin to start the engine, which logs there."""
        directory = self._directory(group)
        self._identity = self._run.take_directory(directory, resources)
        self._run.start_engine(directory, resources)

    def _prepare(self, on_group: Callable[[str], object]) -> Prepared:
        with Cluster(self._options.source) as source, Cluster(self._options.destination) as destination:
            self._run.warn_of_unreachable(source, destination)
            prepared = prepare(
                self._options,
                source,
                destination,
                patience_s=START_PATIENCE_S,
                on_group=on_group,
                on_create=lambda: self._run.metrics.enter(Phase.CREATING),
            )
        for warning in prepared.warnings:
            self._run.warn(warning)
        return prepared

    def _directory(self, group: str) -> Path:
        if self._options.checkpoint:
            return Path(self._options.checkpoint)
        return state_dir() / "mirrors" / checkpoint_name(group)

    def _expect(self, prepared: Prepared, schedule: PartitionSchedule) -> list[TopicPartition]:
        """Count the offsets to copy, before the first task reports; return the partitions."""
        self._run.metrics.enter(Phase.FINDING_POSITIONS)
        with Cluster(self._options.source) as cluster:
            level = cluster.config.isolation_level
            partitions = partitions_of(cluster, list(prepared.topics))
            committed = GroupPositions(cluster, prepared.group, MemberId)
            state = patiently(lambda: committed.read_state(partitions), patience_s=START_PATIENCE_S)
            if warning := warning_of_others(prepared.group, state.others):
                self._run.warn(warning)
            start_ms = self._options.start.timestamp_ms
            next_offsets: dict[TopicPartition, int] = {}
            if start_ms != LATEST:  # settled once the group is ours
                next_offsets |= start_offsets(cluster, partitions, start_ms, level, all_of_them=False)
            next_offsets |= state.starts
            next_offsets |= {
                partition: position.source_offset for partition, position in state.positions.items()
            }
            ends = end_offsets(cluster, partitions, level, all_of_them=False)
            self._run.metrics.expect(next_offsets, ends, _held_back(cluster, ends))
        _stop_deleted(prepared, partitions, state.positions, schedule)
        return partitions

    def _settle_beginnings(
        self, prepared: Prepared, partitions: Sequence[TopicPartition], control: ControlServer
    ) -> None:
        """Commit the start positions of partitions without one, now that the group is ours."""
        wanted = [each for each in partitions if prepared.topics[each.topic].deleted is None]
        _, membership = control.uncommitted()
        settled = self._run.settle_beginnings(prepared.group, wanted, self._options.topics, membership)
        self._run.know_first_start(settled.first_start, is_this=settled.is_first)

    def _look_out(
        self,
        prepared: Prepared,
        schedule: PartitionSchedule,
        control: ControlServer,
        lock: GroupLock,
        resources: contextlib.ExitStack,
    ) -> None:
        """Find new topics and partitions, and lost copies, until the end of the run."""
        run = self._run

        def found(topic: PreparedTopic) -> None:
            added = schedule.add(topic)
            lock.extend(added)
            control.end_window()
            news = (
                f"{_named(added)} of topic {topic.source} found" if added else f"topic {topic.source} is back"
            )
            run.notify(f"{news}, and mirrored to {topic.destination}")

        resources.enter_context(
            Discovery(self._options, prepared.topics, schedule, found, run.warn_in_report)
        )
        resources.enter_context(
            CopyWatch(
                self._options,
                prepared.group,
                schedule,
                control,
                self._create_again,
                run.warn_in_report,
                run.notify,
            )
        )

    def _create_again(self, topics: Collection[str]) -> Sequence[str]:
        """Create the copies of source topics; return warnings."""
        selection = replace(self._options.topics, topics=",".join(topics))
        options = replace(self._options, topics=selection)
        with Cluster(options.source) as source, Cluster(options.destination) as destination:
            return prepare(options, source, destination, patience_s=START_PATIENCE_S).warnings


def _stop_deleted(
    prepared: Prepared,
    partitions: Sequence[TopicPartition],
    positions: Mapping[TopicPartition, MirrorPosition],
    schedule: PartitionSchedule,
) -> None:
    """Report the partitions whose copies were deleted as stopped, since no task can find that out."""
    reasons = {
        partition: reason
        for partition in partitions
        if (reason := prepared.topics[partition.topic].deleted) is not None
    }
    if reasons:
        schedule.apply(stopped_report(stops_of_deleted(reasons, positions)))


def _held_back(source: Cluster, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return how many offsets open transactions hold back behind these ends."""
    if source.config.isolation_level is IsolationLevel.READ_UNCOMMITTED:
        return {}
    whole = end_offsets(source, list(ends), IsolationLevel.READ_UNCOMMITTED, all_of_them=False)
    return {partition: max(0, end - ends[partition]) for partition, end in whole.items()}


def _named(partitions: Sequence[TopicPartition]) -> str:
    """Return ``partition 3``, or ``partitions 0 to 5``."""
    first, last = partitions[0].partition, partitions[-1].partition
    return f"partition {first}" if first == last else f"partitions {first} to {last}"
