"""
``shoal mirror-maker``: a mirror whose driver is a member of a consumer group on the source cluster.

The group says which partitions are this process's; the rest is the mirror's own engine.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from shoal.client.cluster import Cluster, is_transient, patiently
from shoal.client.coordinator import MemberId
from shoal.errors import ConfigError, ShoalError, Stopped
from shoal.mirroring.control import ControlServer, ReferenceClock
from shoal.mirroring.driver.group_lock import MirrorIdentity
from shoal.mirroring.driver.schedule import PartitionSchedule
from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.model.options import checkpoint_name
from shoal.mirroring.model.progress import Progress, Summary
from shoal.mirroring.model.reports import TaskReport
from shoal.mirroring.model.topics import TopicSelection
from shoal.mirroring.model.window import WindowClock
from shoal.mirroring.monitoring.page import Watch
from shoal.mirroring.positions import GroupPositions
from shoal.mirroring.prepare.prepare import Prepared, PreparedTopic, prepare, producer_id_expiration_ms
from shoal.mirrormaker.group_share import GroupShare
from shoal.mirrormaker.handlers import load_handler
from shoal.mirrormaker.loading import load
from shoal.mirrormaker.options import MirrorMakerOptions
from shoal.mirrormaker.rebalance_listener import MirrorMakerRebalanceListener
from shoal.spark.job import Run, letter_of, listening_host
from shoal.state_directory import state_dir
from shoal.topic_partition import TopicPartition

__all__ = ["mirror_maker"]

#: How long brokers that do not answer are asked again: at the start, and for the topics of new partitions.
_PATIENCE_S = 30.0

#: So many mirrors of one group on one machine have a directory each.
_MOST_ON_A_MACHINE = 1000


def mirror_maker(
    options: MirrorMakerOptions,
    on_progress: Callable[[Progress], object] | None = None,
    on_warning: Callable[[str], object] = lambda sentence: None,
    on_notice: Callable[[str], object] = lambda sentence: None,
    stop: threading.Event | None = None,
) -> Summary:
    """
    Mirror what a consumer group gives to this process, until a stop is requested.

    Args:
        options: What, from where, to where.
        on_progress: Called about twice a second, from a thread of its own.
        on_warning: Told of what is in the way, and of what was left out, from any thread.
        on_notice: Told which partitions come and go.
        stop: Set it to end; in the main thread SIGINT and SIGTERM do the same.

    Raises:
        ConfigError: An option that cannot work. Nothing was copied.
        ShoalError: It failed. What was acknowledged is committed.

    """
    return _MirrorMaker(options, on_progress, on_warning, on_notice, stop or threading.Event()).run()


class _MirrorMaker(Run):
    ends_when_stopped = True

    def __init__(
        self,
        options: MirrorMakerOptions,
        on_progress: Callable[[Progress], object] | None,
        on_warning: Callable[[str], object],
        on_notice: Callable[[str], object],
        stop: threading.Event,
    ) -> None:
        super().__init__(options.mirror, on_progress, None, on_warning, on_notice, stop)
        self._maker = options
        self._share: GroupShare | None = None
        self._warned: set[str] = set()
        self._seen_at_start: tuple[int, frozenset[TopicPartition]] = (0, frozenset())

    def run(self) -> Summary:
        options, maker = self._options, self._maker
        listener = MirrorMakerRebalanceListener()
        if maker.listener is not None:
            listener = load("--consumer.rebalance.listener", *maker.listener, MirrorMakerRebalanceListener)
        if options.handling is not None:
            load_handler(options.handling)  # what cannot be made is said now, not by each task
        with self._signals, contextlib.ExitStack() as resources:
            watch = self._show(resources)
            try:
                summary = self._share_and_mirror(resources, watch, listener)
            except Stopped:
                summary = self._nothing_copied()
            watch.end(summary)
            return summary

    def _share_and_mirror(
        self, resources: contextlib.ExitStack, watch: Watch, listener: MirrorMakerRebalanceListener
    ) -> Summary:
        options, maker = self._options, self._maker
        with self._signals.interrupting():
            prepared = self._look()
        watch.know(prepared.group, prepared.warnings)
        checkpoint = self._take_checkpoint(prepared.group, resources)
        work = PartitionSchedule({}, self._metrics, shares=True, streams=maker.streams)
        control = ControlServer(
            listening_host(options),
            secrets.token_hex(16),
            self._hear,
            letter_of(options),
            slices=WindowClock(options.slice_s),
            on_plan=work.plan,
            in_trouble=work.in_trouble,
            is_ours=work.has,
            clock=ReferenceClock.of(options.destination, self._on_warning),
        )
        resources.callback(control.close)
        share = GroupShare(
            options.source,
            maker.membership,
            maker.include,
            control=control,
            work=work,
            metrics=self._metrics,
            prepare=self._prepare_topics,
            settle=self._settle,
            listener=listener,
            on_notice=self._on_notice,
            on_warning=self._on_warning,
        )
        self._share = share
        resources.callback(share.release)
        if options.handling is None:  # a handler commits offsets without pairs
            resources.enter_context(self._watch_copies(prepared.group, work, control, self._warn))
        summary = self._run_on_spark(prepared, work, checkpoint, control, share)
        share.release()
        if share.failure is not None:
            raise share.failure
        return summary

    def _spark_is_there(self) -> None:
        # Not before: whoever has the partitions until then can work on them.
        assert self._share is not None
        self._share.start()

    def _look(self) -> Prepared:
        """Ask both clusters who they are; which topics, the group will say."""
        with Cluster(self._options.source) as source, Cluster(self._options.destination) as destination:
            self._warn_of_unreachable(source, destination)
            patiently(source.refresh, patience_s=_PATIENCE_S)
            patiently(destination.refresh, patience_s=_PATIENCE_S)
            self._seen_at_start = (
                int(time.time() * 1000),
                frozenset(
                    TopicPartition(topic.name, number)
                    for topic in source.metadata.topics.values()
                    for number in topic.partitions
                ),
            )
            positions = GroupPositions(
                source, self._maker.membership.group, MemberId, takes_over_offsets=True
            )
            state = patiently(positions.read_state, patience_s=_PATIENCE_S)
            self._first_start = (state.first_start or self._first_start).selecting(self._selection)
            self._is_first_start = state.is_empty
            cluster_id = source.metadata.cluster_id
            is_same = cluster_id is not None and cluster_id == destination.metadata.cluster_id
            if is_same and self._options.handling is None:
                raise ConfigError(
                    f"both files lead to one cluster ({cluster_id}), where each record would be mirrored "
                    "again and again; a --message.handler may give topics other names"
                )
            return Prepared(
                self._maker.membership.group,
                cluster_id,
                destination.metadata.cluster_id,
                {},
                (),
                producer_id_expiration_ms(destination),
            )

    @property
    def _selection(self) -> TopicSelection:
        return TopicSelection(f"({self._maker.include.pattern})")

    def _settle(self, partitions: Sequence[TopicPartition], membership: MemberId) -> None:
        """Commit where partitions begin that this mirror was given, and that nobody has a position of."""
        self._commit_beginnings(
            self._maker.membership.group,
            partitions,
            self._selection,
            membership,
            _PATIENCE_S,
            self._seen_at_start,
        )

    def _take_checkpoint(self, group: str, resources: contextlib.ExitStack) -> Path:
        """Take a directory that no other mirror of the group on this machine works in; it keeps nothing."""
        if self._options.checkpoint:
            directories = [Path(self._options.checkpoint)]
        else:
            name = checkpoint_name(group)
            directories = [state_dir() / "mirror-makers" / name / str(n) for n in range(_MOST_ON_A_MACHINE)]
        for directory in directories:
            try:
                identity = MirrorIdentity(directory, is_given=bool(self._options.checkpoint))
                resources.callback(identity.release)
            except ConfigError:
                if directory is directories[-1]:
                    raise
            else:
                if identity.warning:
                    self._on_warning(identity.warning)
                return directory
        raise AssertionError("there is at least one")

    def _prepare_topics(self, topics: Sequence[str]) -> Mapping[str, PreparedTopic]:
        """
        Make the destination's topics ready, where they are known: a handler may lead anywhere.

        Returns:
            Those that are; of the others it is warned. One that cannot be mirrored keeps no other from it.

        Raises:
            ShoalError: What time can heal.

        """
        with Cluster(self._options.source) as source, Cluster(self._options.destination) as destination:
            there = patiently(lambda: source.refresh(topics), patience_s=_PATIENCE_S).topics
            found = [each for each in topics if each in there]
            if self._options.handling is not None:
                return {
                    name: PreparedTopic(name, name, len(there[name].partitions), created=False)
                    for name in found
                }
            return self._prepare_those(found, source, destination)

    def _create_again(self, topics: Collection[str]) -> Sequence[str]:
        self._prepare_topics(list(topics))  # warns by itself
        return ()

    def _prepare_those(
        self, topics: Sequence[str], source: Cluster, destination: Cluster
    ) -> Mapping[str, PreparedTopic]:
        """Make the destination ready for all at once; where that is refused, for each by itself."""
        if not topics:
            return {}
        options = replace(self._options, topics=TopicSelection(",".join(topics)))
        try:
            # What the destination refuses in the end is a failure to send, which has a policy.
            prepared = prepare(options, source, destination, patience_s=_PATIENCE_S, forbids=False)
        except ShoalError as error:
            if is_transient(error):
                raise
            if len(topics) == 1:
                self._warn(f"topic {topics[0]} is not mirrored yet: {error}")
                return {}
            return {
                name: topic
                for each in topics
                for name, topic in self._prepare_those([each], source, destination).items()
            }
        for warning in prepared.warnings:
            self._warn(warning)
        return prepared.topics

    def _warn(self, sentence: str) -> None:
        """Warn once: each rebalance finds the same."""
        if sentence not in self._warned:
            self._warned.add(sentence)
            self._on_warning(sentence)

    def _hear(self, report: TaskReport) -> None:
        for each in report.partitions:
            for incident in each.counters.incidents:
                if incident.continued and incident.kind is IncidentKind.SEND_FAILURE:
                    self._on_warning(incident.reason)
        self._metrics.apply(report)
