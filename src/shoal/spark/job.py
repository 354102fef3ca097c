"""
``shoal.mirror(...)``: the whole mirror, from looking at the clusters to the summary.

Runs on the driver, in the user's process: it checks and creates topics, holds
the group, listens to the tasks, and lets Spark do the rest. ``once`` is one
batch job; without it, one streaming query.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
from py4j.protocol import Py4JError
from pyspark.core.context import SparkContext
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from shoal.client.cluster import Cluster, patiently
from shoal.client.config import ClientConfig, IsolationLevel
from shoal.client.coordinator import MemberId
from shoal.client.offsets import EARLIEST, LATEST
from shoal.client.reachable import check_advertised
from shoal.errors import PartitionStopped, ShoalError, Stopped
from shoal.mirroring.assignment import end_offsets, partitions_of, start_offsets
from shoal.mirroring.control import ControlServer, ReferenceClock
from shoal.mirroring.credentials import PROCESS_KEY, Credentials
from shoal.mirroring.driver.beginnings import Beginnings, find_beginnings
from shoal.mirroring.driver.discovery import Discovery
from shoal.mirroring.driver.group_lock import GroupLock, MirrorIdentity
from shoal.mirroring.driver.loop import AtWork, DriverLoop, Place
from shoal.mirroring.driver.retrying import StoppedRetries
from shoal.mirroring.driver.schedule import PartitionSchedule
from shoal.mirroring.driver.signals import Signals
from shoal.mirroring.model.first_start import FirstStart
from shoal.mirroring.model.incidents import Incident
from shoal.mirroring.model.offset_map import AcknowledgedRun
from shoal.mirroring.model.options import MirrorOptions, Start, checkpoint_name
from shoal.mirroring.model.position import MirrorPosition
from shoal.mirroring.model.progress import Phase, Progress, Summary
from shoal.mirroring.model.reports import left_out_report, stopped_report
from shoal.mirroring.model.text import first_few
from shoal.mirroring.model.topics import TopicSelection
from shoal.mirroring.model.window import WindowClock
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.mirroring.monitoring.page import About, Watch
from shoal.mirroring.monitoring.processes import LocalProcesses
from shoal.mirroring.monitoring.prometheus import MetricsServer
from shoal.mirroring.positions import GroupPositions
from shoal.mirroring.prepare.copies import CopyWatch, stops_of_deleted
from shoal.mirroring.prepare.prepare import Prepared, PreparedTopic, prepare, warning_of_others
from shoal.spark.authentication import key_for_tasks, refuse_unauthenticated
from shoal.spark.connections import is_on_this_machine
from shoal.spark.datasource import keyed_data_source
from shoal.spark.launch.session import driver_host, spark_session
from shoal.spark.options import ControlAddress
from shoal.spark.speculation import refuse_speculation
from shoal.state_directory import state_dir
from shoal.topic_partition import TopicPartition

__all__ = ["Run", "letter_of", "listening_host", "mirror"]

#: How long brokers that do not answer at the start are asked again.
_START_PATIENCE_S = 30.0

#: How long tasks that were told to end may take to commit.
_END_PATIENCE_S = 30.0

#: How soon it is noticed that a query has failed; each look is a call of the JVM.
_QUERY_LOOK_INTERVAL_S = 1.0

_ANY_TOPIC = {"subscribePattern": ".*"}

#: A query that has run for so long is started again; what is wrong from the start shows sooner.
_SOUND_S = 60.0


def mirror(
    options: MirrorOptions,
    on_progress: Callable[[Progress], object] | None = None,
    on_run: Callable[[TopicPartition, AcknowledgedRun], object] | None = None,
    on_warning: Callable[[str], object] | None = None,
    stop: threading.Event | None = None,
    on_notice: Callable[[str], object] | None = None,
) -> Summary:
    """
    Mirror topics from one cluster to another.

    Args:
        options: What, from where, to where.
        on_progress: Called about twice a second, from a thread of its own.
        on_run: Told of each run of source offsets that is acknowledged at the
            destination, from the threads that hear the tasks. With it,
            consumers' offsets can be translated.
        on_warning: Told of what is in the way of something, from any thread.
        stop: Set it to end the mirror: what is in flight is finished and
            committed. In the main thread SIGINT and SIGTERM do the same, and
            SIGUSR1 tries stopped partitions again.
        on_notice: Told where there is something to look at, of new topics and partitions, and that the
            mirror begins to stop.

    Returns:
        What was done, when everything that ``once`` asks for is copied, or a stop was requested.

    Raises:
        ConfigError: An option, or a topic at the destination, that cannot work. Nothing was copied.
        GroupHeld: Another mirror works in the group.
        ShoalError: The mirror failed. What was acknowledged is committed.

    """
    return Run(
        options, on_progress, on_run, on_warning or _ignore, on_notice or _ignore, stop or threading.Event()
    ).run()


class Run:
    """
    One run of a mirror: what all of them do.

    Attributes:
        ends_when_stopped: Whether the first partition that is stopped ends the mirror.

    """

    ends_when_stopped = False

    def __init__(
        self,
        options: MirrorOptions,
        on_progress: Callable[[Progress], object] | None,
        on_run: Callable[[TopicPartition, AcknowledgedRun], object] | None,
        on_warning: Callable[[str], object],
        on_notice: Callable[[str], object],
        stop: threading.Event,
    ) -> None:
        self._options = options
        self._on_warning = on_warning
        self._on_notice = on_notice
        self._stop = stop
        self._metrics = Metrics(on_run, once=options.once)
        self._retries = None if options.once else StoppedRetries(self._metrics, options.retry_stopped_s)
        self._signals = Signals(stop, self._retry_stopped)
        self._loop = DriverLoop(stop, self._signals, self._metrics, on_progress, on_notice, on_warning)
        self._first_start = FirstStart.now()
        self._is_first_start = True
        self._processes = LocalProcesses()
        self._started = time.monotonic()
        self._cpu_before = _cpu_seconds()

    def run(self) -> Summary:
        with self._signals, contextlib.ExitStack() as resources:
            watch = self._show(resources)
            try:
                summary = self._mirror(resources, watch)
            except Stopped:
                summary = self._nothing_copied()
            watch.end(summary)
            return summary

    def _mirror(self, resources: contextlib.ExitStack, watch: Watch) -> Summary:
        with self._signals.interrupting():
            prepared = self._prepare()
        watch.know(prepared.group, prepared.warnings)
        checkpoint = self._checkpoint(prepared.group)
        identity = MirrorIdentity(checkpoint, is_given=bool(self._options.checkpoint))
        resources.callback(identity.release)
        if identity.warning:
            self._on_warning(identity.warning)
        work = PartitionSchedule(prepared.topics, self._metrics)
        control = ControlServer(
            listening_host(self._options),
            secrets.token_hex(16),
            self._metrics.apply,
            letter_of(self._options),
            slices=None if self._options.once else WindowClock(self._options.slice_s),
            on_plan=work.plan,
            in_trouble=work.in_trouble,
            clock=ReferenceClock.of(self._options.destination, self._on_warning),
        )
        resources.callback(control.close)
        lock = GroupLock(self._options.source, prepared.group, identity.name, control.renew)
        resources.callback(lock.release)
        with self._signals.interrupting():
            partitions = self._expect(prepared)
            lock.acquire(partitions, _START_PATIENCE_S)
            self._settle_beginnings(prepared, partitions, control)
        if not self._options.once:
            warn = self._warn_in_report(prepared, watch)
            resources.enter_context(self._discover(prepared, work, control, lock, warn))
            resources.enter_context(self._watch_copies(prepared.group, work, control, warn))
        return self._run_on_spark(prepared, work, checkpoint, control, lock)

    # Before Spark

    def _prepare(self) -> Prepared:
        with Cluster(self._options.source) as source, Cluster(self._options.destination) as destination:
            self._warn_of_unreachable(source, destination)
            prepared = prepare(
                self._options,
                source,
                destination,
                patience_s=_START_PATIENCE_S,
                on_create=lambda: self._metrics.enter(Phase.CREATING),
            )
        for warning in prepared.warnings:
            self._on_warning(warning)
        return prepared

    def _warn_of_unreachable(self, *clusters: Cluster) -> None:
        for cluster in clusters:
            for warning in check_advertised(cluster):
                self._on_warning(warning)

    def _show(self, resources: contextlib.ExitStack) -> Watch:
        """Report from now on, and listen; before anything is created, since an address may be taken."""
        options = self._options
        if options.metrics is not None:
            server = resources.enter_context(
                MetricsServer(options.metrics, self._metrics, self._processes, options.http)
            )
            self._on_notice(f"metrics at {server.url}/metrics")
        about = About(options.source.servers, options.destination.servers)
        watch = resources.enter_context(
            Watch(
                options.ui,
                options.report,
                about,
                self._metrics,
                self._processes,
                self._on_warning,
                options.http,
            )
        )
        if watch.url is not None:
            self._on_notice(f"page at {watch.url}")
        resources.enter_context(self._loop)
        return watch

    def _retry_stopped(self) -> None:
        """React to SIGUSR1."""
        if self._retries is not None:
            self._retries.request()

    def _warn_in_report(self, prepared: Prepared, watch: Watch) -> Callable[[str], None]:
        """Return what warns while the mirror runs: page and report keep these warnings, too."""
        warnings = list(prepared.warnings)

        def warn(sentence: str) -> None:
            warnings.append(sentence)
            watch.know(prepared.group, warnings)
            self._on_warning(sentence)

        return warn

    def _discover(
        self,
        prepared: Prepared,
        work: PartitionSchedule,
        control: ControlServer,
        lock: GroupLock,
        warn: Callable[[str], object],
    ) -> Discovery:
        def found(topic: PreparedTopic) -> None:
            added = work.add(topic)
            lock.extend(added)
            control.end_slice()
            news = (
                f"{_named(added)} of topic {topic.source} found" if added else f"topic {topic.source} is back"
            )
            self._on_notice(f"{news}, and mirrored to {topic.destination}")

        return Discovery(
            self._options,
            dict(prepared.topics),
            found,
            warn,
            held_up=work.held_up,
            on_ends=work.expect,
        )

    def _watch_copies(
        self, group: str, work: PartitionSchedule, control: ControlServer, warn: Callable[[str], object]
    ) -> CopyWatch:
        """Compare the copies with the pairs while the mirror runs, also those that nothing is written to."""

        def stop(stops: Mapping[TopicPartition, tuple[PartitionStopped, Incident]]) -> None:
            self._metrics.apply(stopped_report(stops))
            control.give_up(stops)
            control.end_slice()

        def align(reasons: Mapping[TopicPartition, str]) -> None:
            self._metrics.apply(left_out_report(reasons))
            # The next task finds nothing left to go on from, so it reads both logs.
            control.give_up(reasons)
            control.end_slice()

        return CopyWatch(
            self._options,
            group,
            work.copies,
            self._create_again,
            stop,
            align,
            warn,
            self._on_notice,
        )

    def _create_again(self, topics: Collection[str]) -> Sequence[str]:
        """Create the copies of source topics; return what is to be warned of."""
        selection = replace(self._options.topics, topics=",".join(topics))
        options = replace(self._options, topics=selection)
        with Cluster(options.source) as source, Cluster(options.destination) as destination:
            return prepare(options, source, destination, patience_s=_START_PATIENCE_S).warnings

    def _stop_deleted(
        self,
        prepared: Prepared,
        partitions: Sequence[TopicPartition],
        pairs: Mapping[TopicPartition, MirrorPosition],
    ) -> None:
        """Count the partitions as stopped whose copies are gone; no task can find that out."""
        reasons = {
            partition: reason
            for partition in partitions
            if (reason := prepared.topics[partition.topic].deleted) is not None
        }
        if reasons:
            self._metrics.apply(stopped_report(stops_of_deleted(reasons, pairs)))

    def _checkpoint(self, group: str) -> Path:
        if self._options.checkpoint:
            return Path(self._options.checkpoint)
        return state_dir() / "mirrors" / checkpoint_name(group)

    def _expect(self, prepared: Prepared) -> list[TopicPartition]:
        """Tell the metrics what there is to do, before the first task can."""
        self._metrics.enter(Phase.FINDING_POSITIONS)
        with Cluster(self._options.source) as cluster:
            level = cluster.config.isolation_level
            partitions = partitions_of(cluster, list(prepared.topics))
            committed = GroupPositions(cluster, prepared.group, MemberId)
            state = patiently(lambda: committed.read_state(partitions), patience_s=_START_PATIENCE_S)
            pairs = state.pairs
            if warning := warning_of_others(prepared.group, state.others):
                self._on_warning(warning)
            start_ms = self._options.start.timestamp_ms
            positions: dict[TopicPartition, int] = {}
            if start_ms != LATEST:  # that is settled when nobody else has the group
                positions |= start_offsets(cluster, partitions, start_ms, level, all_of_them=False)
            positions |= state.starts
            positions |= {partition: pair.source_offset for partition, pair in pairs.items()}
            ends = end_offsets(cluster, partitions, level, all_of_them=False)
            self._metrics.expect(positions, ends, _held_back(cluster, ends))
        self._stop_deleted(prepared, partitions, pairs)
        return partitions

    def _settle_beginnings(
        self, prepared: Prepared, partitions: Sequence[TopicPartition], control: ControlServer
    ) -> None:
        """Commit where partitions begin that have no position, before any task can; the group is ours."""
        wanted = [each for each in partitions if prepared.topics[each.topic].deleted is None]
        _, membership = control.uncommitted()
        settled = self._commit_beginnings(
            prepared.group, wanted, self._options.topics, membership, _START_PATIENCE_S
        )
        self._first_start, self._is_first_start = settled.first_start, settled.is_first

    def _commit_beginnings(
        self,
        group: str,
        partitions: Sequence[TopicPartition],
        selection: TopicSelection,
        membership: MemberId,
        patience_s: float,
        seen_at_start: tuple[int, Collection[TopicPartition]] | None = None,
    ) -> Beginnings:
        """Decide and commit where partitions begin that have no position."""
        options = self._options
        with Cluster(options.source) as cluster:
            positions = GroupPositions(
                cluster, group, lambda: membership, takes_over_offsets=options.takes_over_offsets
            )

            def settle() -> Beginnings:
                cluster.refresh({each.topic for each in partitions})
                found = find_beginnings(
                    cluster,
                    group,
                    positions.read_state(),
                    selection,
                    partitions,
                    start_ms=options.start.timestamp_ms,
                    option="auto.offset.reset=latest" if options.takes_over_offsets else "--start latest",
                    seen_at_start=seen_at_start,
                )
                positions.mark_starts(found.offsets, found.first_start)
                return found

            found = patiently(settle, patience_s=patience_s)
            level = cluster.config.isolation_level
            ends = end_offsets(cluster, list(found.offsets), level, all_of_them=False)
        self._metrics.expect(found.offsets, ends)
        for sentence in found.sentences:
            self._on_notice(sentence)
        return found

    # On Spark

    def _run_on_spark(
        self,
        prepared: Prepared,
        work: PartitionSchedule,
        checkpoint: Path,
        control: ControlServer,
        lock: Place,
    ) -> Summary:
        log_file = checkpoint / "spark.log"
        ours = SparkContext._active_spark_context is None
        self._metrics.enter(Phase.STARTING_SPARK)
        spark = spark_session(
            self._options.master,
            dict(self._options.spark_conf),
            log_file,
            state_dir(),
            on_warning=self._on_warning,
        )

        def restarted(error: Exception) -> None:
            self._on_warning(f"Spark failed and was started again: {_first_line(error)}; see {log_file}")

        with self._signals, contextlib.ExitStack() as resources:
            try:
                self._metrics.enter(Phase.STARTING_TASKS)
                self._loop.begin_work(AtWork(control, lock, work, self._retries, self.ends_when_stopped))
                refuse_speculation(spark)
                key: str | Path = ""
                if _is_locked(self._options):
                    if not self._options.allow_unauthenticated_spark:
                        refuse_unauthenticated(spark)
                    key = resources.enter_context(key_for_tasks(spark, checkpoint))
                self._spark_is_there()
                job = _Job(
                    self._options, prepared, control, spark, self._first_start, self._is_first_start, key
                )
                if self._stop.is_set():
                    pass  # while Spark started
                elif self._options.once:
                    job.run_batch()
                else:
                    job.run_stream(checkpoint / "spark", self._stop, restarted)
            except (PySparkException, Py4JError) as error:
                raise _cause(error, lock, log_file) from error
            finally:
                self._metrics.enter(Phase.STOPPING)
                # Tasks end, and commit, before Spark and the group are given up.
                control.request_stop()
                control.wait_until_idle(_END_PATIENCE_S)
                self._commit_what_is_left(prepared.group, control)
                python_cpu_s, jvm_cpu_s = self._cpu_used()
                jvm_gc = self._processes.garbage_collection()
                if ours:
                    spark.stop()
        if lock.failure is not None:
            raise lock.failure
        summary = self._summary(prepared, work, python_cpu_s, jvm_cpu_s, log_file)
        return replace(summary, jvm_gc=jvm_gc)

    def _spark_is_there(self) -> None:
        """Do what has to wait for Spark's start, which takes seconds."""

    def _commit_what_is_left(self, group: str, control: ControlServer) -> None:
        """Commit what no task did: the coordinator did not answer, and no task followed."""
        pairs, membership = control.uncommitted()
        if not pairs:
            return
        try:
            with Cluster(self._options.source.impatient()) as cluster:
                refused = GroupPositions(cluster, group, lambda: membership).commit(pairs)
            for error in refused.values():
                raise error
        except ShoalError as error:
            self._on_warning(
                f"what was copied last of {first_few(sorted(pairs))} could not be committed, and will be "
                f"found at the next start: {error}"
            )

    def _summary(
        self,
        prepared: Prepared,
        work: PartitionSchedule,
        python_cpu_s: float,
        jvm_cpu_s: float,
        log_file: Path,
    ) -> Summary:
        done = self._metrics.progress()
        partitions = self._metrics.partitions().values()
        unfinished = any(each.lag_records != 0 and not each.stopped for each in partitions)
        return Summary(
            group=prepared.group,
            topics=work.names,
            elapsed_s=time.monotonic() - self._started,
            python_cpu_s=python_cpu_s,
            jvm_cpu_s=jvm_cpu_s,
            partitions=done.partitions,
            stopped=done.stopped,
            waiting=done.waiting,
            warnings=prepared.warnings,
            records=done.records,
            batches=done.batches,
            bytes_in=done.bytes_in,
            bytes_out=done.bytes_out,
            decisions=done.decisions,
            retries=done.retries,
            incidents=done.incidents,
            incidents_before=done.incidents_before,
            lost_before=done.lost_before,
            interrupted=self._options.once and unfinished,
            log_file=str(log_file),
            copying_s=self._metrics.copying_s if done.batches else None,
            states=done.states,
            lag_records=done.lag_records,
            lag_s=done.lag_s,
            held_back_records=done.held_back_records,
            report=self._options.report,
            ended=self._why_it_ended(unfinished=unfinished),
        )

    def _why_it_ended(self, *, unfinished: bool) -> str:
        if self._signals.received is not None:
            return f"stopped by {self._signals.received}"
        if self._loop.ended_by_stopped:
            return "a partition is stopped"
        if self._stop.is_set():
            return "stopped by the calling program"
        if unfinished:
            return "the tasks ended before everything was copied"
        return "everything that was there at the start is copied"

    def _nothing_copied(self) -> Summary:
        """Return the summary of a mirror that was stopped before it began."""
        ended = f"{self._why_it_ended(unfinished=True)} before anything was copied"
        elapsed_s = time.monotonic() - self._started
        return Summary.of_nothing(self._options.group, elapsed_s, ended, once=self._options.once)

    def _cpu_used(self) -> tuple[float, float]:
        """Return the CPU seconds of our Python processes and of Spark's JVM since the mirror started."""
        python_s, jvm_s = _cpu_seconds()
        return python_s - self._cpu_before[0], jvm_s - self._cpu_before[1]


@dataclass(frozen=True)
class _Job:
    """The mirror as Spark sees it: rows by reference, from one ``format("shoal")`` to another."""

    options: MirrorOptions
    prepared: Prepared
    control: ControlServer
    spark: SparkSession
    first_start: FirstStart
    is_first_start: bool
    key: str | Path = field(repr=False)

    def run_batch(self) -> None:
        """Copy up to the ends of now. Returns when every task has ended."""
        if all(topic.deleted for topic in self.prepared.topics.values()):
            return
        self.spark.dataSource.register(keyed_data_source(self.key))
        rows = self.spark.read.format("shoal").options(**self._read_options()).load()
        rows.write.format("shoal").mode("append").options(**self._write_options()).save()

    def run_stream(
        self, checkpoint: Path, stop: threading.Event, on_restart: Callable[[Exception], object]
    ) -> None:
        """
        Copy in slices of time until ``stop`` is set and the one under way has ended.

        A query that ends for Spark's own reasons, above all because a process of its was killed, is started
        again; one that had just been started, or whose tasks go on without it, is not.
        """
        self.spark.dataSource.register(keyed_data_source(self.key))
        rows = self.spark.readStream.format("shoal").options(**self._read_options()).load()
        writer = rows.writeStream.format("shoal").options(**self._write_options())
        writer = writer.option("checkpointLocation", str(checkpoint))
        while True:
            started_at = time.monotonic()
            error = self._run_query(writer.start(), stop)
            if error is None:
                return
            is_sound = time.monotonic() - started_at >= _SOUND_S and not _our_sentences(error)
            if stop.is_set() or not is_sound or not self.control.wait_until_idle(_END_PATIENCE_S):
                raise error
            on_restart(error)

    def _run_query(self, query: StreamingQuery, stop: threading.Event) -> StreamingQueryException | None:
        """Wait until it has ended, in good order where ``stop`` is set; return why it did where not."""
        while query.isActive and not stop.wait(_QUERY_LOOK_INTERVAL_S):
            pass
        if stop.is_set():
            self.control.request_stop()
            # The tasks were told to end, and the source plans nothing new: a
            # query without an active trigger has nothing under way.
            while query.isActive and query.status["isTriggerActive"]:
                time.sleep(0.05)
        error = query.exception()
        query.stop()
        return error

    def _read_options(self) -> dict[str, str]:
        options = self.options
        # Where the others begin is settled; of what did not answer then, records are not to be passed over.
        is_settled = options.start.timestamp_ms == LATEST and not self.is_first_start
        start = Start(EARLIEST) if is_settled else options.start
        topics = [name for name, topic in self.prepared.topics.items() if topic.deleted is None]
        return {
            **_prefixed("kafka.", options.source),
            **_prefixed("destination.kafka.", options.destination),
            # A mirror that shares its group hears later what it has to read.
            **({"subscribe": ",".join(topics)} if topics else _ANY_TOPIC),
            **_rename(options),
            "takesOverOffsets": str(options.takes_over_offsets).lower(),
            "startingTimestamp" if start.timestamp_ms >= 0 else "startingOffsets": str(start),
            "group": self.prepared.group,
            "minPartitions": str(self.spark.sparkContext.defaultParallelism),
            "control": self._control(),
        }

    def _write_options(self) -> dict[str, str]:
        options = self.options
        return {
            **_prefixed("kafka.", options.destination),
            **_prefixed("source.kafka.", options.source),
            **_rename(options),
            **_rebatch(options),
            **({"handling": options.handling.to_json()} if options.handling else {}),
            "firstStart": self.first_start.to_text(),
            "maxInFlight": str(options.max_in_flight),
            "takesOverOffsets": str(options.takes_over_offsets).lower(),
            "group": self.prepared.group,
            "fetchBufferBytes": str(options.fetch_buffer_bytes),
            "commitIntervalMs": str(options.commit_interval_ms),
            "adopt": str(options.adopt).lower(),
            "adoptFromLater": str(options.adopt_from_later).lower(),
            "allowNonempty": str(options.allow_nonempty).lower(),
            "delivery": options.delivery.value,
            "continueOn": ",".join(sorted(kind.value for kind in options.continue_on)),
            "keepAppendTime": str(options.keep_append_time).lower(),
            "maxDecompressedBytes": str(options.max_decompressed_bytes),
            "multiBatch": options.multi_batch.value,
            "producerIdExpirationMs": str(self.prepared.producer_id_expiration_ms),
            "control": self._control(),
        }

    def _control(self) -> str:
        host, port = self.control.address
        if not is_on_this_machine(self.options.master):
            host = driver_host(self.spark)
        return str(ControlAddress(host, port, self.control.token, _is_locked(self.options)))


def _held_back(source: Cluster, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return how many offsets open transactions hold back behind these ends."""
    if source.config.isolation_level is IsolationLevel.READ_UNCOMMITTED:
        return {}
    whole = end_offsets(source, list(ends), IsolationLevel.READ_UNCOMMITTED, all_of_them=False)
    return {partition: max(0, end - ends[partition]) for partition, end in whole.items()}


def _rebatch(options: MirrorOptions) -> dict[str, str]:
    if options.rebatch is None:
        return {}
    return {"decodeAll" if options.rebatch.everything else "rebatch": str(options.rebatch)}


def _is_locked(options: MirrorOptions) -> bool:
    return bool(Credentials.of(options.source, options.destination))


def letter_of(options: MirrorOptions) -> str:
    credentials = Credentials.of(options.source, options.destination)
    return credentials.seal(PROCESS_KEY) if credentials else ""


def _prefixed(prefix: str, config: ClientConfig) -> dict[str, str]:
    return {prefix + key: value for key, value in config.to_properties().items()}


def _rename(options: MirrorOptions) -> dict[str, str]:
    return {"rename": options.topics.rename} if options.topics.rename else {}


def listening_host(options: MirrorOptions) -> str:
    """Where to listen for the tasks: those of a cluster come to where Spark's own driver listens."""
    if is_on_this_machine(options.master):
        return "127.0.0.1"
    # As Spark itself; the token and the limits of control/server.py guard it.
    return dict(options.spark_conf).get("spark.driver.bindAddress", "0.0.0.0")  # noqa: S104


def _named(partitions: Sequence[TopicPartition]) -> str:
    """``partition 3``, ``partitions 0 to 5``"""
    first, last = partitions[0].partition, partitions[-1].partition
    return f"partition {first}" if first == last else f"partitions {first} to {last}"


def _ignore(sentence: str) -> None:
    """Nobody wants to hear it."""


_OUR_ERROR = re.compile(r"shoal\.errors\.\w+: (.*)")


def _our_sentences(error: Exception) -> list[str]:
    return [each.strip() for each in _OUR_ERROR.findall(str(error))]


def _cause(error: PySparkException, lock: Place, log_file: Path) -> ShoalError:
    """Find our own sentence in what Spark made of it."""
    if lock.failure is not None:
        return lock.failure
    if sentences := _our_sentences(error):
        return ShoalError(sentences[-1])
    return ShoalError(f"Spark failed: {_first_line(error)}; see {log_file}")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _cpu_seconds() -> tuple[float, float]:
    """
    Return the CPU seconds of our Python processes and of Spark's JVM on this machine.

    A process that has ended counts with the parent that waited for it.

    """
    own = psutil.Process()
    python_s = _seconds(own, with_children=False)
    jvm_s = 0.0
    for child in own.children():
        with contextlib.suppress(psutil.Error):
            if child.name() == "java":
                jvm_s += _seconds(child, with_children=False)
                times = child.cpu_times()
                python_s += times.children_user + times.children_system
                for each in child.children(recursive=True):
                    if each.name() == "java":  # an executor of a local cluster
                        jvm_s += _seconds(each, with_children=False)
                    else:
                        python_s += _seconds(each, with_children=True)
    return python_s, jvm_s


def _seconds(process: psutil.Process, *, with_children: bool) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    own = times.user + times.system
    return float(own + times.children_user + times.children_system if with_children else own)
