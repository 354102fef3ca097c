"""
``shoal mirror``: topics by their names, and a consumer group that one mirror holds.

Without ``--once`` the selection is looked up again at each ``--refresh``, and so are the copies.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ...client.cluster import Cluster, patiently
from ...client.config import IsolationLevel
from ...client.coordinator import MemberId
from ...client.offsets import LATEST
from ...state_directory import state_dir
from ...topic_partition import TopicPartition
from ..assignment import partitions_of, start_offsets, window_ends
from ..control import ControlServer
from ..cutover.certificate import read_certificate
from ..model.incidents import IncidentKind
from ..model.options import checkpoint_name
from ..model.position import MirrorPosition
from ..model.progress import Phase, Summary
from ..model.reports import SmallBatches, stopped_report
from ..model.text import first_few
from ..model.window import Until
from ..positions import GroupPositions, warning_of_others
from ..prepare.changes import Prepared, PreparedTopic
from ..prepare.copies import stops_of_deleted
from ..prepare.create import prepare
from ..prepare.expiring_positions import warning_of_expiry
from ..sync.follower import GroupFollower
from .copy_watch import CopyWatch
from .discovery import Discovery
from .following import Following
from .going_back import go_back, starts_at_cut
from .group_lock import GroupLock, MirrorIdentity
from .new_partitions import NewPartitions
from .run import START_PATIENCE_S, MirrorRun
from .schedule import PartitionSchedule
from .steering import Steering

__all__ = ["TopicMirror"]


class TopicMirror:
    """A mirror of selected topics. Composes a :class:`~.run.MirrorRun`."""

    def __init__(self, run: MirrorRun) -> None:
        """Prepare; nothing begins."""
        self._run = run
        has_groups = run.options.groups is not None
        self._groups = GroupFollower.of(run.options, run.metrics, run.warn) if has_groups else None
        self._options = run.options
        self._identity: MirrorIdentity
        self._steering: Steering | None = None
        self._starts: Mapping[TopicPartition, int] = {}
        self._new_partitions = NewPartitions(run.options.max_new_partitions)

    def run(self) -> Summary:
        """Mirror to the end; see :meth:`.run.MirrorRun.run`."""
        return self._run.run(self._mirror)

    def _mirror(self, resources: contextlib.ExitStack) -> Summary:
        run = self._run
        with run.signals.interrupting():
            prepared = self._prepare(resources)
        run.show_group(prepared.group, prepared.warnings)
        schedule = PartitionSchedule(
            prepared.topics, run.metrics, on_small_batches=self._warn_of_small_batches
        )
        control = run.listen(schedule, resources)
        options = self._options
        name = self._identity.name
        lock = GroupLock(
            options.source.keeper or options.source, prepared.group, name, control.renew, options.timing
        )
        resources.callback(lock.release)
        control.use_group(lock.begin_generation)
        with run.signals.interrupting():
            partitions = self._expect(prepared, schedule)
            lock.acquire(partitions, START_PATIENCE_S)
            if self._options.from_certificate is not None:
                self._go_back(self._options.from_certificate, prepared.group, control)
            wanted = [each for each in partitions if prepared.topics[each.topic].deleted is None]
            found = run.settle_beginnings(prepared.group, wanted, options.topics, control.membership)
            run.first_start, run.is_first_start = found.first_start, found.is_first
            self._steer(schedule, control)
        if self._options.sync or not self._options.once:
            self._follow(prepared.group, schedule, resources)
        if not self._options.once:
            self._look_out(prepared, schedule, control, lock, resources)
        elif self._options.continues_after(IncidentKind.DESTINATION_LOSS):
            self._watch_copies(prepared, schedule, control, resources)
        if self._groups is None:
            return run.copy(prepared, schedule, control, lock)
        resources.callback(self._groups.close)
        self._groups.begin(prepared.group, lambda: schedule.names)
        summary = run.copy(prepared, schedule, control, lock)
        self._groups.finish()
        return replace(summary, consumer_groups=run.metrics.progress().consumer_groups)

    def _follow(self, group: str, schedule: PartitionSchedule, resources: contextlib.ExitStack) -> None:
        """Let settings follow the records: before they are copied, and until the end of a service."""
        run = self._run
        following = Following(
            self._options, group, schedule, run.metrics.followed, run.warn_in_report, run.notify
        )
        if self._options.sync:
            with run.signals.interrupting():
                following.look_at_once()
        if not self._options.once:
            resources.enter_context(following)

    def _steer(self, schedule: PartitionSchedule, control: ControlServer) -> None:
        """Steer the tasks, if anything may be to steer."""
        run, options = self._run, self._options
        if not options.is_steered:
            return
        self._steering = Steering(
            options,
            control,
            schedule,
            run.metrics,
            warn=run.warn,
            notify=run.notify,
            stop=lambda: run.signals.end_by("the control socket"),
            retry=run.retry_stopped,
            create_lost=partial(self._create_lost, schedule),
            once=options.once,
        )
        run.on_command = self._steering.carry_out

    def _take(self, group: str, resources: contextlib.ExitStack) -> None:
        """Take the group's directory on this machine, and begin to start the engine, which logs there."""
        directory = self._directory(group)
        self._identity = self._run.take_directory(directory, resources)
        self._run.start_engine(directory, resources)

    def _prepare(self, resources: contextlib.ExitStack) -> Prepared:
        with Cluster(self._options.source) as source, Cluster(self._options.destination) as destination:
            self._run.warn_of_unreachable(source, destination)

            def on_group(group: str) -> None:
                self._starts = self._starts_at_cut(group, source, destination)
                self._take(group, resources)

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

    def _warn_of_small_batches(self, found: SmallBatches) -> None:
        rate = f"{found.bytes_per_s / 1e6:.1f} MB/s"
        self._run.warn_in_report(
            f"batches have {found.average_bytes:,} bytes on average, and a broker takes one batch of a "
            f"partition in a request. So requests limit a connection to {rate}. --rebatch 64k joins the "
            "batches (docs/topics.md)"
        )

    def _starts_at_cut(
        self, group: str, source: Cluster, destination: Cluster
    ) -> Mapping[TopicPartition, int]:
        """Return the starts of partitions that begin at a cut, before anything is created or joined."""
        if self._options.from_certificate is None:
            return {}
        committed = GroupPositions(source, group, MemberId)
        state = patiently(committed.read_state, patience_s=START_PATIENCE_S)
        return starts_at_cut(self._options, state, source, destination, patience_s=START_PATIENCE_S)

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
            expiry = patiently(
                lambda: warning_of_expiry(cluster.keeper, prepared.group), patience_s=START_PATIENCE_S
            )
            if expiry:
                self._run.warn(expiry)
            start_ms = self._options.start.timestamp_ms
            next_offsets: dict[TopicPartition, int] = {}
            if start_ms != LATEST:  # settled once the group is ours
                next_offsets |= start_offsets(cluster, partitions, start_ms, level, all_of_them=False)
            next_offsets |= state.starts
            next_offsets |= {
                partition: position.source_offset for partition, position in state.positions.items()
            }
            next_offsets |= self._starts
            ends = window_ends(cluster, partitions, self._options.until, level, all_of_them=False)
            held_back = _held_back(cluster, ends, self._options.until)
            self._run.metrics.expect(next_offsets, ends, held_back)
        _stop_deleted(prepared, partitions, state.positions, schedule)
        return partitions

    def _go_back(self, file: str, group: str, control: ControlServer) -> None:
        """Begin at the cut, before anything else gives a partition its position."""
        certificate = read_certificate(file)
        begun = go_back(self._options, certificate, group, control.membership, patience_s=START_PATIENCE_S)
        if begun:
            self._run.notify(f"{first_few(begun)}: mirrored back from the cut of {certificate.at}")

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
            if self._steering is not None:
                self._steering.look()
            news = (
                f"{_named(added)} of topic {topic.source} found" if added else f"topic {topic.source} is back"
            )
            run.notify(f"{news}, and mirrored to {topic.destination}")

        resources.enter_context(
            Discovery(
                self._options, prepared.topics, schedule, found, run.warn_in_report, self._new_partitions
            )
        )
        self._watch_copies(prepared, schedule, control, resources)

    def _watch_copies(
        self,
        prepared: Prepared,
        schedule: PartitionSchedule,
        control: ControlServer,
        resources: contextlib.ExitStack,
    ) -> None:
        """Find lost copies until the end of the run."""
        run = self._run
        resources.enter_context(
            CopyWatch(
                self._options,
                prepared.group,
                schedule,
                control,
                partial(self._create_again, schedule),
                run.warn_in_report,
                run.notify,
            )
        )

    def _create_lost(self, schedule: PartitionSchedule, topic: str) -> None:
        """Create the copy of a source topic if it is gone, since an operator accepts its loss."""
        accepted = self._options.continue_after | {IncidentKind.DESTINATION_LOSS}
        for warning in self._create_again(schedule, [re.escape(topic)], continue_after=accepted):
            self._run.warn_in_report(warning)

    def _create_again(
        self, schedule: PartitionSchedule, topics: Collection[str], **changes: Any
    ) -> Sequence[str]:
        """Create the copies of source topics; return warnings."""
        selection = replace(self._options.topics, topics=",".join(topics))
        options = replace(self._options, topics=selection, **changes)
        with Cluster(options.source) as source, Cluster(options.destination) as destination:
            return prepare(
                options,
                source,
                destination,
                patience_s=START_PATIENCE_S,
                check=lambda changes: self._new_partitions.check(changes, schedule.sizes),
            ).warnings


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


def _held_back(
    source: Cluster, ends: Mapping[TopicPartition, int], until: Until | None
) -> dict[TopicPartition, int]:
    """Return how many offsets open transactions hold back behind these ends."""
    if source.config.isolation_level is IsolationLevel.READ_UNCOMMITTED:
        return {}
    whole = window_ends(source, list(ends), until, IsolationLevel.READ_UNCOMMITTED, all_of_them=False)
    return {partition: max(0, end - ends[partition]) for partition, end in whole.items()}


def _named(partitions: Sequence[TopicPartition]) -> str:
    """Return ``partition 3``, or ``partitions 0 to 5``."""
    first, last = partitions[0].partition, partitions[-1].partition
    return f"partition {first}" if first == last else f"partitions {first} to {last}"
