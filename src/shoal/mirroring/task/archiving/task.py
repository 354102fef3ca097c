"""The loop of a task that archives the partitions of its documents."""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection
from pathlib import Path

from ....archive.directory import Archive
from ....archive.names import topic_directory_id
from ....archive.segment import SegmentLost
from ....client.cluster import Cluster, is_transient, patiently
from ....client.config import IsolationLevel
from ....client.fetch import Fetcher, FetchFrom
from ....client.fetchers import Answer, Fetchers
from ....client.metadata import leader_in
from ....client.offsets import EARLIEST, epoch_end_offsets, list_offsets
from ....client.scan import ANSWERS_OF_A_GAP, GapLook, look_for_gap
from ....client.wakeup import Wakeup
from ....error_codes import ErrorCode
from ....errors import BrokerError, ShoalError
from ....topic_partition import TopicPartition
from ...control import ControlConnection, WorkerControl
from ...model.copy_options import CopySettings
from ...model.incidents import Incident, IncidentKind
from ...model.reports import Left, TaskReport
from ...model.text import offsets
from ...prepare.archive import archive_topics
from ..session import Interval, TaskSession
from ..throttle import Throttle
from ..trouble import Trouble
from .partition import ArchivedPartition
from .spool import MOST_SPOOL_BYTES, open_spool

__all__ = ["follow_documents"]

_WAIT_S = 0.25

_LEAST_BUFFER_BYTES = 1024 * 1024

#: The time for which a task waits at its start for a store that does not answer.
_STORE_PATIENCE_S = 120.0

#: Codes that no retry of the same request heals, but a new beginning: the log or the lease is another one.
_BEGIN_AGAIN = frozenset({ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.REBALANCE_IN_PROGRESS})


def follow_documents(settings: CopySettings, control: ControlConnection) -> None:
    """
    Archive the partitions of the driver's documents, until an end is requested.

    Open segments are archived then. If a task cannot do that, the next one fetches their batches again.

    Raises:
        Stopped: The driver is gone.
        ConfigError: The directory is not the one that the driver uses.

    """
    session = TaskSession(control, settings.timing)
    session.report()
    archive = patiently(settings.destination.open_archive, patience_s=_STORE_PATIENCE_S, pause=control.wait)
    with open_spool() as spool, Cluster(settings.source.impatient()) as source:
        _ArchiveTask(settings, control, session, archive, source, spool).run()


class _ArchiveTask:
    def __init__(
        self,
        settings: CopySettings,
        control: ControlConnection,
        session: TaskSession,
        archive: Archive,
        source: Cluster,
        spool: Callable[[], Path],
    ) -> None:
        self._settings = settings
        self._control = control
        self._lease = WorkerControl(control)
        self._session = session
        self._archive = archive
        self._source = source
        self._spool = spool
        self._wakeup = Wakeup()
        control.on_document(self._wakeup.wake)
        self._throttle = Throttle(self._lease)
        # Not that of the cluster, which is for short requests.
        self._fetchers = Fetchers(self._open, settings.source.request_timeout_s)
        #: The number of leaders that share the task's buffer.
        self._shares = 1
        self._partitions: dict[TopicPartition, ArchivedPartition] = {}
        #: The creations of topics whose descriptions the archive has: name, id, number of partitions.
        self._described: set[tuple[str, uuid.UUID | None, int]] = set()
        self._report_interval = Interval(settings.timing.report_interval_s)

    def run(self) -> None:
        try:
            while not self._control.stop_requested:
                self._control.raise_if_orphan()
                self._follow()
                if self._lease.begin():
                    for each in self._partitions.values():
                        each.forget()  # another mirror may have had the group
                self._begin([each for each in self._partitions.values() if each.place is None])
                self._fetch()
                self._publish_due()
                over = [each for each in self._partitions.values() if each.stopped or each.is_done]
                self._leave(over)
                self._report_now_and_then()
            self._leave(list(self._partitions.values()))
        finally:
            self._fetchers.close()
            self._wakeup.close()

    def _follow(self) -> None:
        """Take the partitions that are new in the document, and leave those that it lacks."""
        for each in self._control.take_new():
            if (former := self._partitions.get(each.range.source)) is not None:
                self._leave([former])
            self._partitions[each.range.source] = ArchivedPartition(each, self._settings.timing)
        assignment = self._control.assignment
        self._leave([each for source, each in self._partitions.items() if source not in assignment])

    def _try(self, each: ArchivedPartition, step: Callable[[ArchivedPartition], object]) -> bool:
        """Take a step with a partition; return whether it succeeded. It waits, or stops, after an error."""
        try:
            step(each)
        except (BrokerError, SegmentLost) as error:
            self._lose(each, error)
        except ShoalError as error:
            if is_transient(error):
                each.wait(str(error))
            else:
                each.stop(str(error))
        else:
            return True
        return False

    def _lose(self, each: ArchivedPartition, error: ShoalError) -> None:
        """Let a partition begin again after an error that may pass; stop it after another one of its own."""
        if is_transient(error) or (isinstance(error, BrokerError) and error.code in _BEGIN_AGAIN):
            each.forget()
            each.wait(str(error))
        elif isinstance(error, BrokerError):
            each.stop(str(error))
        else:
            raise error

    # Beginnings

    def _begin(self, partitions: Collection[ArchivedPartition]) -> None:
        """Find the positions of partitions, and compare them with the source's log."""
        due = [each for each in partitions if each.is_due and not each.stopped]
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
        self._compare([each for each in due if self._try(each, self._begin_one)])

    def _begin_one(self, each: ArchivedPartition) -> None:
        found = self._source.partition(each.source)
        topic = self._source.metadata.topics[each.source.topic]
        self._describe(each, topic.topic_id, len(topic.partitions))
        directory_id = topic_directory_id(topic.topic_id, self._source.metadata.cluster_id)
        objects = self._archive.objects(each.range.destination_topic, directory_id, each.source.partition)
        each.begin(objects.place, topic.topic_id, found.leader_epoch)

    def _describe(self, each: ArchivedPartition, topic_id: uuid.UUID | None, partitions: int) -> None:
        """Describe a topic that was created again, or has new partitions, since the driver did."""
        name = each.source.topic
        if (described := (name, topic_id, partitions)) in self._described:
            return
        names = {name: each.range.destination_topic}
        patience_s = self._settings.timing.anyone_patience_s
        _, unreadable = archive_topics(self._archive, self._source, names, patience_s)
        for error in unreadable.values():
            raise error
        self._described.add(described)

    def _compare(self, partitions: Collection[ArchivedPartition]) -> None:
        """Find out whether the source has lost, or deleted, what is archived, or what follows on it."""
        last = {each.source: each.place.last for each in partitions if each.place is not None}
        epochs = {source: facts.leader_epoch for source, facts in last.items() if facts is not None}
        ends = epoch_end_offsets(self._source, {each: epoch for each, epoch in epochs.items() if epoch >= 0})
        starts = list_offsets(self._source, dict.fromkeys(last, EARLIEST))
        for each in partitions:
            end, start = ends.get(each.source), starts[each.source]
            if isinstance(end, ShoalError) or isinstance(start, ShoalError):
                each.forget()
                each.wait(str(end if isinstance(end, ShoalError) else start))
            elif end is not None and end < each.position:
                each.stop(
                    f"the source lost records from offset {end} on that are archived (an unclean election), "
                    "and may have others there now. Archive the topic to another directory",
                    IncidentKind.SOURCE_RESET,
                    each.position - end,
                )
            elif each.position < start and last[each.source] is None:
                each.pass_over(start)  # nothing is archived yet
            elif each.position < start:
                gone = offsets(each.position, start - 1)
                reason = f"the source deleted {gone} before they were archived"
                self._miss(each, IncidentKind.SOURCE_RETENTION, reason, start)

    def _miss(self, each: ArchivedPartition, kind: IncidentKind, reason: str, offset: int) -> None:
        """Continue at a later offset, since the source does not have what is before it, or stop."""
        lost = offset - each.fetch_offset
        if self._settings.continues_after(kind):
            each.counters.incidents.append(Incident(kind, reason, lost, continued=True))
            each.pass_over(offset)
        else:
            each.stop(f"{reason}. Continue behind them by {kind.continuing}", kind, lost)

    # Batches

    def _fetch(self) -> None:
        """Send a fetch to each leader that has answered the one before, and gather what has come."""
        by_leader: dict[int, list[ArchivedPartition]] = defaultdict(list)
        for each in self._partitions.values():
            if each.place is None:
                continue
            leader = leader_in(self._source.known, each.source)
            if leader is None:
                each.forget()
            else:
                by_leader[leader].append(each)
        if self._bytes_over_the_bound() > 0:
            by_leader.clear()
        self._throttle.look()
        self._shares = max(1, len(by_leader))
        for leader in {*by_leader, *self._fetchers.leaders}:
            led = by_leader.get(leader, [])
            try:
                self._ask(leader, [each for each in led if each.source.topic not in self._throttle.paused])
            except ShoalError as error:
                for each in led:
                    self._lose(each, error)
        if not self._fetchers.is_waiting:
            self._control.wait(_WAIT_S)
        for answer in self._fetchers.receive(self._wakeup, _WAIT_S):
            if not isinstance(answer.fetched, ShoalError):
                self._throttle.spend(len(answer.fetched.record_set))
            self._take(answer)

    def _ask(self, leader: int, partitions: Collection[ArchivedPartition]) -> None:
        """Request whatever partitions of a leader need, if it has answered the request before."""
        wanted = [
            FetchFrom(each.source, each.fetch_offset, each.leader_epoch, topic_id=each.topic_id)
            for each in partitions
            if each.needs_data
        ]
        if self._fetchers.want(leader, wanted) and self._throttle.may_fetch():
            self._fetchers.send(leader, self._throttle.fetch_bytes)

    def _open(self, leader: int) -> Fetcher:
        timing = self._settings.timing
        return Fetcher(
            self._source.connect(leader),
            buffer_bytes=max(_LEAST_BUFFER_BYTES, self._settings.fetch_buffer_bytes // self._shares),
            isolation_level=IsolationLevel.READ_COMMITTED,
            max_wait_ms=timing.fetch_max_wait_ms,
            timing=timing,
        )

    def _take(self, answer: Answer) -> None:
        asked, fetched = answer.asked, answer.fetched
        each = self._partitions.get(asked.partition)
        if each is None or each.place is None or not each.takes_batches:
            return
        if isinstance(fetched, ShoalError):
            self._lose(each, fetched)
        elif asked.offset != each.fetch_offset:
            return
        elif fetched.error_code:
            where = f"fetching {each.source} at offset {asked.offset} from {self._source}"
            self._lose(each, BrokerError(fetched.error_code, where))
        else:
            try:
                if each.take(fetched, self._spool):
                    return
            except ShoalError as error:
                self._lose(each, error)
                return
            if answer.has_next and fetched.preferred_read_replica < 0:
                self._take_silence(each, fetched.end_offset(committed=True))
            else:
                self._fetchers.put_first(each.source)

    def _take_silence(self, each: ArchivedPartition, end: int) -> None:
        """React to an answer without a whole batch before the log's end: only a cleaner leaves a gap."""
        offset, kind = each.fetch_offset, IncidentKind.SOURCE_GAP
        spell = each.troubles.meet(offset, Trouble.SILENCE)
        if spell.times < ANSWERS_OF_A_GAP:
            each.wait(f"the source to send offset {offset}, or to return another empty response")
            return
        try:
            look = look_for_gap(self._source, each.source, offset, IsolationLevel.READ_COMMITTED)
        except ShoalError as error:
            look = GapLook(None, False, str(error))
        if look.end is not None and look.is_gap_to(offset + 1):
            each.pass_over(look.end)
            return
        reason = (
            f"since {spell.since:%Y-%m-%d %H:%M:%S} UTC the source's answers have no records at offset "
            f"{offset}, though its log reaches to offset {end} ({look.why})"
        )
        patience_s = self._settings.timing.gap_patience_timeouts * self._settings.source.request_timeout_s
        if each.range.is_open or spell.lasted_s < patience_s:
            each.wait(reason)
        elif look.end is None:
            each.stop(f"{reason}. Look for the cause at its broker. The next start continues there", kind)
        else:
            self._miss(each, kind, reason, each.range.end_offset)

    # Segments

    def _publish_due(self) -> None:
        """Archive the segments that are full or old, and the largest if the local disk has too many bytes."""
        settings = self._settings
        for each in self._partitions.values():
            if each.is_full(settings.segment_bytes, settings.segment_s):
                self._publish(each)
        over = self._bytes_over_the_bound()
        for each in sorted(self._partitions.values(), key=lambda each: each.gathered_bytes, reverse=True):
            if over <= 0:
                break
            over -= each.gathered_bytes
            if each.is_due:
                self._publish(each)

    def _bytes_over_the_bound(self) -> int:
        """Return how many bytes too much the local disk has; while it has any, nothing is fetched."""
        return sum(each.gathered_bytes for each in self._partitions.values()) - MOST_SPOOL_BYTES

    def _publish(self, each: ArchivedPartition) -> None:
        self._try(each, lambda each: each.publish(self._lease))
        self._report_now_and_then()

    def _report_now_and_then(self) -> None:
        if self._report_interval.has_passed(time.monotonic()):
            self._report()

    def _report(self) -> None:
        reports = [report for each in self._partitions.values() if (report := each.report()) is not None]
        self._session.report(TaskReport(reports))

    def _leave(self, partitions: Collection[ArchivedPartition]) -> None:
        """Archive what is gathered of partitions, and report that this task writes them no more."""
        if not partitions:
            return
        for each in partitions:
            self._publish(each)
        self._report()
        leaves = {}
        for each in partitions:
            leaves[each.source] = Left(each.entry, is_done=each.is_done)
            each.forget()
            del self._partitions[each.source]
        self._session.report(TaskReport(leaves=leaves))
