"""
What one task does: align its partitions, copy them by route, commit, until all are over.

A partition that cannot go on for now waits by itself and comes back; the
others go on. What time can heal is tried again for as long as it takes.
"""

from __future__ import annotations

import resource
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from ..client.cluster import Cluster, is_transient, patiently
from ..client.fetch import Fetcher
from ..client.groups import JOIN_AGAIN
from ..client.produce import Producer
from ..errors import BrokerError, CorruptBatch, PartitionStopped, ProtocolError, ShoalError
from .control import Control
from .pair import Pair
from .partition_copy import PartitionCopy
from .positions import GroupPositions, Positions
from .ranges import CopyRange
from .realign import realign
from .route import FETCH_MAX_WAIT_MS, Route
from .settings import CopySettings

__all__ = ["LaneResult", "copy_lane"]

#: How often the driver hears of the progress.
_REPORT_INTERVAL_S = 0.5

#: How long one pair of leaders is served before the next; to change over takes milliseconds.
_TURN_S = 5.0

#: How long the last commit of a task is tried before Spark has to repeat the task.
_LAST_COMMIT_PATIENCE_S = 60.0

#: How long a broker may wait for its in-sync replicas before it answers error 7; Kafka's producers' default.
_PRODUCE_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class LaneResult:
    """What became of a lane: the partitions that cannot go on, and whether all others are done."""

    stopped: tuple[PartitionStopped, ...]
    complete: bool


def copy_lane(ranges: Sequence[CopyRange], settings: CopySettings, control: Control) -> LaneResult:
    """
    Copy ranges of partitions, whatever a former attempt has copied of them.

    Returns:
        When every partition is done or stopped, or a stop was requested. All
        that was acknowledged is committed then.

    Raises:
        Stopped: The lease lapsed.
        ShoalError: The last commit failed.

    """
    with Cluster(settings.source) as source, Cluster(settings.destination) as destination:
        positions = GroupPositions(source, settings.group, control.membership)
        return _Lane(ranges, settings, control, source, destination, positions).run()


class _Lane:
    def __init__(
        self,
        ranges: Sequence[CopyRange],
        settings: CopySettings,
        control: Control,
        source: Cluster,
        destination: Cluster,
        positions: Positions,
    ) -> None:
        self._copies = [PartitionCopy(each, settings) for each in ranges]
        self._settings = settings
        self._control = control
        self._source = source
        self._destination = destination
        self._positions = positions
        self._committed: dict[PartitionCopy, Pair] = {}
        self._committed_at = time.monotonic()
        self._reported_at = 0.0
        self._bytes_in = 0
        self._cpu_s = _cpu_seconds()
        self._metadata_is_stale = False

    def run(self) -> LaneResult:
        self._report()  # the driver's clock starts here
        try:
            while self._unfinished() and not self._control.stop_requested:
                self._step()
                if self._settings.leave_waiting and self._only_waits():
                    break
                self._wait_until_due()
        finally:
            # Whatever the reason: what was acknowledged is committed.
            self._commit_the_rest()
            self._report()
        stopped = tuple(copy.stopped for copy in self._copies if copy.stopped)
        return LaneResult(stopped, complete=not self._unfinished())

    def _unfinished(self) -> list[PartitionCopy]:
        return [copy for copy in self._copies if not copy.is_over]

    def _only_waits(self) -> bool:
        """Whether nothing is left that a next micro-batch could not do as well."""
        return not any(copy.is_due or copy.empty_answers for copy in self._unfinished())

    def _step(self) -> None:
        if self._control.begin():
            # Somebody else may have had the group, and written.
            for copy in self._unfinished():
                copy.lose_track()
        due = [copy for copy in self._unfinished() if copy.is_due]
        self._attempt(self._check_lease, due)
        self._attempt(self._refresh, due)
        self._attempt(self._align, [copy for copy in due if not copy.aligned])
        routes = list(self._by_route(due).values())
        for copies in routes:
            self._attempt(partial(self._run_route, alone=len(routes) == 1), copies)
        self._report_now_and_then()

    def _check_lease(self, copies: Sequence[PartitionCopy]) -> None:
        self._control.check_lease()

    def _attempt(
        self, work: Callable[[Sequence[PartitionCopy]], None], copies: Sequence[PartitionCopy]
    ) -> None:
        """Do something with partitions; where it fails for a reason that time can heal, they wait."""
        if not copies:
            return
        try:
            work(copies)
        except ShoalError as error:
            if not _can_heal(error) and not isinstance(error, ProtocolError):
                raise
            self._metadata_is_stale = True
            # They come back together: each by itself would be a route of its own.
            delay_s = max(copy.next_delay_s() for copy in copies)
            for copy in copies:
                if not copy.is_over:
                    copy.wait(str(error), delay_s)

    def _wait_until_due(self) -> None:
        waiting = self._unfinished()
        if waiting:
            until = min(copy.retry_at for copy in waiting)
            delay_s = max(0.0, until - time.monotonic())
            if delay_s >= _REPORT_INTERVAL_S:
                self._report()  # what is waited for
            self._control.wait(delay_s)
            with suppress(BrokerError):
                self._control.check_lease()  # an orphan waits for nothing

    # Aligning

    def _refresh(self, due: Sequence[PartitionCopy]) -> None:
        """Ask for the leaders anew where any may have changed."""
        if self._metadata_is_stale or not all(copy.aligned for copy in due):
            self._source.refresh({copy.source.topic for copy in self._copies})
            self._destination.refresh({copy.destination.topic for copy in self._copies})
            self._metadata_is_stale = False

    def _align(self, copies: Sequence[PartitionCopy]) -> None:
        copies = [copy for copy in copies if copy.is_due]
        errors = realign(copies, self._source, self._destination, self._positions, self._settings)
        for copy in copies:
            error = errors.get(copy.source)
            if isinstance(error, PartitionStopped):
                copy.stop_with(error)
            elif error is not None and is_transient(error):
                copy.wait(str(error))
            elif isinstance(error, CorruptBatch | ProtocolError):
                copy.suspect(copy.position, str(error))
            elif error is not None:
                copy.stop(str(error))
            else:
                copy.waiting_for = None
        if any(copy.incidents for copy in copies):
            self._report()  # what was gone on from is committed, and met no second time

    # Copying

    def _by_route(self, due: Sequence[PartitionCopy]) -> dict[tuple[int, int], list[PartitionCopy]]:
        """Group partitions by their leaders on both sides."""
        routes: dict[tuple[int, int], list[PartitionCopy]] = defaultdict(list)
        for copy in due:
            if not copy.aligned or copy.is_over or not copy.is_due:
                continue
            try:
                source_leader = self._source.partition(copy.source).leader
                destination_leader = self._destination.partition(copy.destination).leader
            except ShoalError as error:
                copy.lose_track()
                copy.wait(str(error))
                continue
            routes[source_leader, destination_leader].append(copy)
        return routes

    def _run_route(self, copies: Sequence[PartitionCopy], *, alone: bool) -> None:
        source_leader = self._source.partition(copies[0].source).leader
        destination_leader = self._destination.partition(copies[0].destination).leader
        fetcher = Fetcher(
            self._source.connect(source_leader),
            buffer_bytes=self._settings.fetch_buffer_bytes,
            isolation_level=self._settings.source.isolation_level,
            max_wait_ms=FETCH_MAX_WAIT_MS,
        )
        try:
            # A produce request must not outlive its sender: aborted on close.
            connection = self._destination.connect(destination_leader, abort_on_close=True)
            producer = Producer(connection, timeout_ms=_PRODUCE_TIMEOUT_MS)
            try:
                Route(
                    copies,
                    fetcher,
                    producer,
                    source=self._source,
                    destination=self._destination,
                    settings=self._settings,
                    control=self._control,
                    on_progress=self._progress,
                    should_yield=self._yield_rule(copies, alone=alone),
                ).run()
            finally:
                producer.close()
        finally:
            fetcher.close()

    def _yield_rule(self, copies: Sequence[PartitionCopy], *, alone: bool) -> Callable[[], bool]:
        """Let a route end when its turn is over, or when a partition that waits has waited long enough."""
        waiting = [copy for copy in self._unfinished() if not copy.is_due]
        until = time.monotonic() + _TURN_S

        def should_yield() -> bool:
            if not alone and time.monotonic() >= until:
                return True
            failed = (copy for copy in copies if not copy.aligned)
            return any(not copy.is_over and copy.is_due for copy in chain(waiting, failed))

        return should_yield

    def _progress(self, fetched_bytes: int) -> None:
        self._bytes_in += fetched_bytes
        if (time.monotonic() - self._committed_at) * 1000 >= self._settings.commit_interval_ms:
            self._commit_now_and_then()
        self._report_now_and_then()

    # Committing

    def _commit_now_and_then(self) -> None:
        # The next commit, or the last, covers one that fails; a group that is
        # lost for good ends the lease.
        with suppress(ShoalError):
            self._commit()
        # Counted from here: a coordinator that does not answer takes its time.
        self._committed_at = time.monotonic()

    def _commit_the_rest(self) -> None:
        def pause(seconds: float) -> None:
            # Not the control's wait, which returns at once when the driver wants an end.
            self._control.check_lease()
            time.sleep(seconds)

        patiently(self._commit, patience_s=_LAST_COMMIT_PATIENCE_S, pause=pause, can_heal=_can_heal)

    def _commit(self) -> None:
        pairs = {
            copy: copy.pair for copy in self._copies if copy.pair and copy.pair != self._committed.get(copy)
        }
        if not pairs:
            return
        refused = self._positions.commit({copy.source: pair for copy, pair in pairs.items()})
        for copy, pair in pairs.items():
            error = refused.get(copy.source)
            if error is None:
                self._committed[copy] = pair
            elif not is_transient(error) and not copy.stopped:
                copy.stop(str(error))
        for error in refused.values():
            if is_transient(error):
                raise error

    # Reporting

    def _report_now_and_then(self) -> None:
        if time.monotonic() - self._reported_at >= _REPORT_INTERVAL_S:
            self._report()

    def _report(self) -> None:
        """Tell the driver what was done since the last report, and where each partition stands."""
        self._reported_at = time.monotonic()
        cpu_s = _cpu_seconds()
        self._control.report(
            {
                "partitions": [_partition_report(copy) for copy in self._copies],
                "bytes_in": self._bytes_in,
                "cpu_s": cpu_s - self._cpu_s,
                "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            }
        )
        self._bytes_in = 0
        self._cpu_s = cpu_s


def _can_heal(error: ShoalError) -> bool:
    """Whether time can heal it; so can the driver, who joins the group again and says so."""
    return is_transient(error) or (isinstance(error, BrokerError) and error.code in JOIN_AGAIN)


def _partition_report(copy: PartitionCopy) -> dict[str, Any]:
    """Take a partition's counts since the last report."""
    report = {
        "topic": copy.source.topic,
        "partition": copy.source.partition,
        "source_offset": copy.pair.source_offset if copy.pair else None,
        "end_offset": copy.range.end_offset,
        "decisions": {decision.value: count for decision, count in copy.decisions.items()},
        "records": copy.records,
        "bytes_out": copy.bytes_out,
        "retries": copy.retries,
        "runs": copy.runs,
        "waiting_for": copy.waiting_for,
        "stopped": [copy.stopped.offset, copy.stopped.reason] if copy.stopped else None,
        "incidents": [[each.kind.value, each.reason, each.lost, each.continued] for each in copy.incidents],
    }
    copy.decisions.clear()
    copy.incidents = []
    copy.runs = []
    copy.records = copy.bytes_out = copy.retries = 0
    return report


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
