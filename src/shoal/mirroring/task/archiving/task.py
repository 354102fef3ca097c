"""The loop of a task that archives the partitions of its documents."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable

from ....archive.directory import Archive
from ....client.cluster import Cluster, is_transient, patiently
from ....client.offsets import EARLIEST, epoch_end_offsets, list_offsets
from ....client.wakeup import Wakeup
from ....errors import BrokerError, ShoalError
from ....topic_partition import TopicPartition
from ...control import ControlConnection, WorkerControl
from ...model.copy_options import CopySettings
from ...model.incidents import IncidentKind
from ...model.reports import Left, TaskReport
from ...prepare.archive import archive_topics
from ..session import Interval, TaskSession
from .lanes import Lanes
from .partition import ArchivedPartition
from .spool import MOST_SPOOL_BYTES, Spool, open_spool

__all__ = ["follow_documents"]

_WAIT_S = 0.25

#: The time for which a task waits at its start for a store that does not answer.
_STORE_PATIENCE_S = 120.0


def follow_documents(settings: CopySettings, control: ControlConnection) -> None:
    """
    Archive the partitions of the driver's documents, until an end is requested.

    Open segments are archived then. If a task cannot do that, the next one fetches their batches again.

    Raises:
        Stopped: The driver is gone.
        ConfigError: The directory is not the one that the driver uses.

    """
    there = settings.destination
    directory = there.directory
    assert directory is not None, "the engine chooses this task for a directory"
    session = TaskSession(control, settings.timing)
    session.report()
    archive = patiently(
        lambda: Archive.open(directory, there.store_credentials, there.archive_id),
        patience_s=_STORE_PATIENCE_S,
        pause=control.wait,
    )
    wakeup = Wakeup()
    control.on_document(wakeup.wake)
    try:
        with open_spool() as spool, Cluster(settings.source.impatient()) as source:
            _ArchiveTask(settings, control, session, archive, source, spool, wakeup).run()
    finally:
        wakeup.close()


class _ArchiveTask:
    def __init__(
        self,
        settings: CopySettings,
        control: ControlConnection,
        session: TaskSession,
        archive: Archive,
        source: Cluster,
        spool: Spool,
        wakeup: Wakeup,
    ) -> None:
        self._settings = settings
        self._control = control
        self._lease = WorkerControl(control)
        self._session = session
        self._archive = archive
        self._source = source
        self._wakeup = wakeup
        self._lanes = Lanes(source, settings, self._lease, spool)
        self._partitions: dict[TopicPartition, ArchivedPartition] = {}
        #: The number of the newest entry that was begun: numbers only grow.
        self._newest = 0
        #: The creations of topics whose descriptions the archive has: name, id, number of partitions.
        self._described: set[tuple[str, uuid.UUID | None, int]] = set()
        self._report_interval = Interval(settings.timing.report_interval_s)

    def run(self) -> None:
        try:
            while not self._control.stop_requested:
                self._control.raise_if_orphan()
                self._follow()
                if self._lease.begin():
                    self._forget(self._partitions.values())  # another mirror may have had the group
                self._begin([each for each in self._partitions.values() if not each.is_begun])
                self._lanes.send(each for each in self._partitions.values() if each.is_begun)
                if self._lanes.is_empty:
                    self._control.wait(_WAIT_S)
                else:
                    self._lanes.receive(self._wakeup, _WAIT_S, ArchivedPartition.forget)
                self._publish_due()
                self._leave([each for each in self._partitions.values() if each.is_over])
                if self._report_interval.has_passed(time.monotonic()):
                    self._report()
            self._leave(list(self._partitions.values()))
        finally:
            self._lanes.close()

    def _follow(self) -> None:
        """Take the partitions that are new in the document, and leave those that it lacks."""
        assignment = self._control.assignment
        gone = [
            each
            for source, each in self._partitions.items()
            if source not in assignment or assignment[source].entry != each.entry
        ]
        if gone:
            self._leave(gone)
        new = [each for each in assignment.values() if each.entry > self._newest]
        for each in new:
            self._newest = max(self._newest, each.entry)
            self._partitions[each.range.source] = ArchivedPartition(each, self._settings.timing)

    # Beginnings

    def _forget(self, partitions: Iterable[ArchivedPartition]) -> None:
        for each in partitions:
            each.forget()

    def _begin(self, partitions: Collection[ArchivedPartition]) -> None:
        """Find the positions of partitions, and compare them with the source's log."""
        now = time.monotonic()
        due = [each for each in partitions if each.retry_at <= now and each.stopped is None]
        if not due:
            return
        try:
            self._lease.check_lease()
            self._source.refresh({each.source.topic for each in due})
        except ShoalError as error:
            if not is_transient(error):
                raise
            for each in due:
                each.wait(str(error))
            return
        begun = [each for each in due if self._try(each, self._begin_one)]
        self._compare(begun)

    def _try(self, each: ArchivedPartition, step: Callable[[ArchivedPartition], object]) -> bool:
        """Take a step with a partition; return whether it succeeded. It waits, or stops, after an error."""
        try:
            step(each)
        except BrokerError as error:
            each.forget()  # another task may have the partition
            each.wait(str(error))
        except ShoalError as error:
            if is_transient(error):
                each.wait(str(error))
            else:
                each.stop(str(error))
        else:
            return True
        return False

    def _begin_one(self, each: ArchivedPartition) -> None:
        found = self._source.partition(each.source)
        topic_id = self._source.topic_id(each.source.topic)
        self._describe(each)
        each.begin(self._archive, topic_id, self._source.metadata.cluster_id, found.leader_epoch)

    def _describe(self, each: ArchivedPartition) -> None:
        """Describe a topic that was created again, or has new partitions, since the driver did."""
        name = each.source.topic
        topic = self._source.metadata.topics[name]
        described = name, topic.topic_id, len(topic.partitions)
        if described not in self._described:
            names = {name: each.range.destination_topic}
            archive_topics(self._archive, self._source, names, self._settings.timing.anyone_patience_s)
            self._described.add(described)

    def _compare(self, partitions: Collection[ArchivedPartition]) -> None:
        """Find out whether the source has lost, or deleted, what is archived, or what follows on it."""
        epochs = {each.source: each.last_epoch for each in partitions if each.last_epoch >= 0}
        ends = epoch_end_offsets(self._source, epochs)
        starts = list_offsets(self._source, dict.fromkeys([each.source for each in partitions], EARLIEST))
        may_continue = self._settings.continues_after(IncidentKind.SOURCE_RETENTION)
        for each in partitions:
            end, start = ends.get(each.source), starts[each.source]
            failed = next((found for found in (end, start) if isinstance(found, ShoalError)), None)
            if failed is not None:
                each.forget()
                each.wait(str(failed))
            elif isinstance(end, int) and end < each.position:
                self._stop_after_loss(each, end)
            elif isinstance(start, int) and each.position < start:
                if each.last_epoch < 0:
                    each.pass_over(start)  # nothing is archived yet
                else:
                    each.skip_deleted(start, may_continue=may_continue)

    def _stop_after_loss(self, each: ArchivedPartition, end: int) -> None:
        each.stop(
            f"the source lost records from offset {end} on that are archived (an unclean election), and may "
            f"have others there now. Archive the topic to another directory",
            IncidentKind.SOURCE_RESET,
            each.position - end,
        )

    # Segments

    def _publish_due(self) -> None:
        """Archive the segments that are full or old, and the largest if the local disk has too many bytes."""
        settings = self._settings
        for each in self._partitions.values():
            if each.is_due(settings.segment_bytes, settings.segment_s):
                self._try(each, self._publish)
        gathered = {each: each.segment.size for each in self._partitions.values() if each.segment is not None}
        while gathered and sum(gathered.values()) > MOST_SPOOL_BYTES:
            largest = max(gathered, key=gathered.__getitem__)
            if time.monotonic() >= largest.retry_at:
                self._try(largest, self._publish)
            del gathered[largest]

    def _publish(self, each: ArchivedPartition) -> None:
        each.publish(self._archive, self._lease)
        if self._report_interval.has_passed(time.monotonic()):
            self._report()

    def _report(self) -> None:
        reports = [report for each in self._partitions.values() if (report := each.report()) is not None]
        self._session.report(TaskReport(reports))

    def _leave(self, partitions: Collection[ArchivedPartition]) -> None:
        """Archive what is gathered of partitions, and report that this task writes them no more."""
        for each in partitions:
            if each.segment is not None:
                self._try(each, self._publish)
        if not partitions:
            return
        self._report()
        leaves = {}
        for each in partitions:
            leaves[each.source] = Left(each.entry, is_done=each.is_done)
            each.forget()
            del self._partitions[each.source]
        self._session.report(TaskReport(leaves=leaves))
