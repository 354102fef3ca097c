"""
``shoal mirror-maker``: a mirror whose driver is a member of a consumer group on the source cluster.

The group assigns partitions to this process; everything else is the run of any mirror.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..client.cluster import Cluster, is_transient, patiently
from ..errors import ConfigError, ShoalError
from ..mirroring.driver.lookout import CopyWatch, Lookout
from ..mirroring.driver.run import START_PATIENCE_S, MirrorRun
from ..mirroring.driver.schedule import PartitionSchedule
from ..mirroring.driver.starts import Starts
from ..mirroring.model.incidents import IncidentKind
from ..mirroring.model.options import checkpoint_name
from ..mirroring.model.progress import Summary
from ..mirroring.model.reports import TaskReport
from ..mirroring.model.text import once_each
from ..mirroring.model.topics import TopicSelection
from ..mirroring.monitoring.metrics import Metrics
from ..mirroring.prepare.changes import Prepared, PreparedTopic
from ..mirroring.prepare.create import prepare
from ..mirroring.prepare.descriptions import decompression_limit, describe_brokers, describe_topics
from ..state_directory import state_dir
from .group_share import GroupShare
from .handlers import MirrorMakerRebalanceListener, load, load_handler
from .options import MirrorMakerOptions

__all__ = ["MirrorMaker"]

#: Each mirror of one group on one machine has a directory of its own; more than these are a mistake.
_MOST_ON_A_MACHINE = 1000


class MirrorMaker:
    """A mirror of the partitions that a group assigns; composes a :class:`.MirrorRun`."""

    def __init__(self, options: MirrorMakerOptions, run: MirrorRun) -> None:
        """
        Load the user's classes.

        Args:
            options: The options of the mirror maker.
            run: The run, made with ``options.mirror``.

        Raises:
            ConfigError: A class cannot be loaded, or an object of it cannot be made.

        """
        self._maker = options
        self._options = options.mirror
        self._run = run
        self._warn = once_each(run.warn)  # each rebalance would repeat the same warnings
        self._starts: Starts
        self._share: GroupShare
        self._listener = MirrorMakerRebalanceListener()
        if options.listener is not None:
            self._listener = load(
                "--consumer.rebalance.listener", *options.listener, MirrorMakerRebalanceListener
            )
        if self._options.handling is not None:
            load_handler(self._options.handling)  # for errors; each task makes its own handler

    def run(self) -> Summary:
        """Mirror until a stop; see :meth:`.MirrorRun.run`."""
        return self._run.run(self._mirror)

    def _mirror(self, resources: contextlib.ExitStack) -> Summary:
        run = self._run
        with run.signals.interrupting():
            prepared = self._look()
        run.about.group = prepared.group
        directory = self._take_directory(prepared.group, resources)
        schedule = _SharedSchedule(run.metrics, run.warn)
        mirror = run.listen(schedule, prepared.group, resources)
        run.start_engine(directory, resources)
        share = self._share = GroupShare(self._maker, mirror, self._listener, self._prepare_topics)
        resources.callback(share.release)
        if self._options.handling is None:  # a handler commits offsets without positions
            mirror.control.use_group(share.begin_generation)
            watched = replace(mirror, warn_in_report=self._warn)
            resources.enter_context(Lookout(watched, CopyWatch(watched, self._create_again)))
        # The share joins only once tasks can run: another member copies its partitions until then.
        summary = run.copy(
            mirror,
            prepared,
            self._starts,
            share,
            ends_when_stopped=True,
            streams=self._maker.streams,
            on_engine_started=share.start,
        )
        share.release()
        if share.failure is not None:
            raise share.failure
        return summary

    def _look(self) -> Prepared:
        """Read both clusters' ids; the group assigns topics later."""
        with Cluster(self._options.source) as source, Cluster(self._options.destination) as destination:
            self._run.warn_of_unreachable(source, destination)
            patiently(source.refresh, patience_s=START_PATIENCE_S)
            patiently(destination.refresh, patience_s=START_PATIENCE_S)
            selection = TopicSelection(f"({self._maker.include.pattern})")
            self._starts = self._starts_of(source, selection)
            topics = list(selection.select(source.metadata.topics))
            described, _ = describe_topics(source, topics, START_PATIENCE_S)
            cluster_id = source.metadata.cluster_id
            is_same = cluster_id is not None and cluster_id == destination.metadata.cluster_id
            if is_same and self._options.handling is None:
                raise ConfigError(
                    f"both files name one cluster ({cluster_id}), so each record would be mirrored again "
                    "and again. Set a message handler that gives topics other names"
                )
            return Prepared(
                self._maker.membership.group,
                cluster_id,
                destination.metadata.cluster_id,
                {},
                (),
                describe_brokers(destination).producer_id_expiration_ms,
                decompression_limit(described.values()),
            )

    def _starts_of(self, source: Cluster, selection: TopicSelection) -> Starts:
        # Another member may make the group's first start at about the same time.
        since_ms = int(time.time() * 1000) - self._options.timing.one_start_ms
        return Starts(
            self._options,
            self._maker.membership.group,
            selection,
            lambda: self._share.identity,
            since_ms=since_ms,
            there=source.metadata.partitions_of(source.metadata.topics),
        )

    def _take_directory(self, group: str, resources: contextlib.ExitStack) -> Path:
        """Take a directory that no other mirror of the group on this machine uses; it keeps no positions."""
        if self._options.checkpoint:
            directories = [Path(self._options.checkpoint)]
        else:
            name = checkpoint_name(group)
            directories = [state_dir() / "mirror-makers" / name / str(n) for n in range(_MOST_ON_A_MACHINE)]
        for directory in directories:
            try:
                self._run.take_directory(directory, resources)
            except ConfigError:
                if directory is directories[-1]:
                    raise
            else:
                return directory
        raise AssertionError("there is at least one")

    def _prepare_topics(self, topics: Sequence[str]) -> Mapping[str, PreparedTopic]:
        """
        Prepare the destination's topics, unless a handler chooses the topics.

        Returns:
            The topics that are ready. Each other topic is a warning, and does not delay these.

        Raises:
            ShoalError: A transient error; a later attempt may succeed.

        """
        with Cluster(self._options.source) as source, Cluster(self._options.destination) as destination:
            there = patiently(lambda: source.refresh(topics), patience_s=START_PATIENCE_S).topics
            found = [each for each in topics if each in there]
            if self._options.handling is not None:
                return {name: PreparedTopic(name, name, len(there[name].partitions)) for name in found}
            return self._prepare_those(found, source, destination)

    def _create_again(self, topics: Collection[str]) -> Sequence[str]:
        self._prepare_topics(list(topics))  # its own warnings are enough
        return ()

    def _prepare_those(
        self, topics: Sequence[str], source: Cluster, destination: Cluster
    ) -> Mapping[str, PreparedTopic]:
        """Prepare the destination for all topics at once; if that fails, for each one separately."""
        if not topics:
            return {}
        options = replace(self._options, topics=TopicSelection(",".join(topics)))
        try:
            # A batch that the destination refuses later is a send failure, which has a policy.
            prepared = prepare(options, source, destination, forbids=False)
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


class _SharedSchedule(PartitionSchedule):
    """The partitions that the group assigned; warns of each record that ``--abort.on.send.failure`` skips."""

    def __init__(self, metrics: Metrics, warn: Callable[[str], object]) -> None:
        super().__init__({}, metrics, shares=True)
        self._warn = warn

    def apply(self, report: TaskReport) -> None:
        """Count a report, and warn of the records that its task skipped."""
        for each in report.partitions:
            for incident in each.counters.incidents:
                if incident.continued and incident.kind is IncidentKind.SEND_FAILURE:
                    self._warn(incident.reason)
        super().apply(report)
