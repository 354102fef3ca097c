"""The fetches from the leaders of the source: one request to each is under way, and one thread receives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from ....client.cluster import Cluster, is_transient
from ....client.config import IsolationLevel
from ....client.fetch import Fetcher, FetchFrom
from ....client.metadata import leader_in
from ....client.wakeup import Wakeup, wait_for_answers
from ....error_codes import ErrorCode, named_code
from ....errors import CorruptBatch, ShoalError
from ....protocol.fetch import FetchedPartition, FetchResponse
from ....topic_partition import TopicPartition
from ...control import WorkerControl
from ...model.copy_options import CopySettings
from ..throttle import Throttle
from .partition import ArchivedPartition
from .spool import Spool

__all__ = ["Lanes"]

#: Errors of a partition after which its leader, its topic or its log may be another one.
_MOVED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)

_LEAST_BUFFER_BYTES = 1024 * 1024


class _Lane:
    """The fetches from one leader."""

    def __init__(self, fetcher: Fetcher, throttle: Throttle) -> None:
        self.fetcher = fetcher
        self.throttle = throttle
        self.partitions: dict[TopicPartition, ArchivedPartition] = {}

    def send(self) -> None:
        """Request whatever its partitions need."""
        fetcher, throttle = self.fetcher, self.throttle
        throttle.look()
        paused = throttle.paused
        wanted = dict(fetcher.wanted)
        for source, each in self.partitions.items():
            if not each.needs_data or source.topic in paused:
                continue
            before = wanted.pop(source, None)
            if before is None or before.offset != each.fetch_offset or before.topic_id != each.topic_id:
                fetcher.ask(FetchFrom(source, each.fetch_offset, each.leader_epoch, -1, each.topic_id))
        for source in wanted:
            fetcher.forget(source)
        if throttle.may_fetch():
            fetcher.send(at_most_bytes=throttle.fetch_bytes)


class Lanes:
    """All lanes of a task."""

    def __init__(self, source: Cluster, settings: CopySettings, control: WorkerControl, spool: Spool) -> None:
        self._source = source
        self._settings = settings
        self._control = control
        self._spool = spool
        self._lanes: dict[int, _Lane] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing is under way."""
        return not any(lane.fetcher.is_waiting for lane in self._lanes.values())

    def send(self, partitions: Iterable[ArchivedPartition]) -> None:
        """Send a fetch to each leader that has answered the one before."""
        by_leader: dict[int, dict[TopicPartition, ArchivedPartition]] = defaultdict(dict)
        for each in partitions:
            leader = leader_in(self._source.known, each.source)
            if leader is None:
                each.forget()
            else:
                by_leader[leader][each.source] = each
        for node_id in {*by_leader, *self._lanes}:
            lane = self._lanes.get(node_id)
            if lane is not None and lane.fetcher.is_waiting:
                continue
            mine = by_leader.get(node_id, {})
            try:
                if lane is None:
                    if not any(each.needs_data for each in mine.values()):
                        continue
                    lane = self._lanes[node_id] = self._open(node_id, len(by_leader))
                lane.partitions = mine
                lane.send()
            except ShoalError as error:
                self._drop(node_id, mine.values(), error)

    def _open(self, node_id: int, lanes: int) -> _Lane:
        timing = self._settings.timing
        fetcher = Fetcher(
            self._source.connect(node_id),
            buffer_bytes=max(_LEAST_BUFFER_BYTES, self._settings.fetch_buffer_bytes // max(1, lanes)),
            isolation_level=IsolationLevel.READ_COMMITTED,
            max_wait_ms=timing.fetch_max_wait_ms,
            timing=timing,
        )
        return _Lane(fetcher, Throttle(self._control))

    def _drop(self, node_id: int, partitions: Iterable[ArchivedPartition], error: ShoalError) -> None:
        lane = self._lanes.pop(node_id, None)
        if lane is not None:
            lane.fetcher.close()
        if not is_transient(error):
            raise error
        for each in partitions:
            each.wait(str(error))

    def receive(
        self, wakeup: Wakeup, timeout_s: float, on_moved: Callable[[ArchivedPartition], object]
    ) -> None:
        """
        Wait for answers, and gather their batches.

        Args:
            on_moved: Called with each partition whose topic, leader or log may be another one.

        """
        waiting = {
            lane.fetcher.connection: node_id
            for node_id, lane in self._lanes.items()
            if lane.fetcher.is_waiting
        }
        for connection in wait_for_answers(waiting, wakeup, timeout_s):
            node_id = waiting[connection]
            lane = self._lanes[node_id]
            try:
                response = lane.fetcher.receive()
            except ShoalError as error:
                self._drop(node_id, lane.partitions.values(), error)
                for each in lane.partitions.values():
                    on_moved(each)
                continue
            if not response.error_code:
                self._take(lane, response, on_moved)

    def _take(
        self, lane: _Lane, response: FetchResponse, on_moved: Callable[[ArchivedPartition], object]
    ) -> None:
        seen: set[TopicPartition] = set()
        for fetched in response.partitions:
            source = TopicPartition(fetched.topic, fetched.partition)
            partition, asked = lane.partitions.get(source), lane.fetcher.wanted.get(source)
            if partition is None or asked is None or source in seen or not partition.takes_batches:
                continue
            seen.add(source)
            if asked.offset != partition.fetch_offset:
                continue
            code = ErrorCode.of(fetched.error_code)
            if not code:
                self._take_part(lane, partition, fetched)
            elif code is ErrorCode.OFFSET_OUT_OF_RANGE or code in _MOVED:
                on_moved(partition)
            elif code.may_pass or code.retriable:
                partition.wait(
                    f"{self._source} to send offset {asked.offset}: {named_code(fetched.error_code)}"
                )
            else:
                partition.stop(f"{self._source} refuses to be read: {named_code(fetched.error_code)}")
            lane.throttle.spend(len(fetched.record_set))

    def _take_part(self, lane: _Lane, partition: ArchivedPartition, fetched: FetchedPartition) -> None:
        end = fetched.end_offset(committed=True)
        offset = partition.fetch_offset
        try:
            if partition.take(fetched, end, self._spool) or offset >= end:
                return
        except CorruptBatch as error:
            partition.stop(
                f"{self._source} sent a batch at offset {partition.fetch_offset} damaged: {error.reason}"
            )
            return
        except ShoalError as error:
            partition.forget()
            partition.wait(str(error))
            return
        if lane.fetcher.first_of_full != partition.source:
            lane.fetcher.start_over(partition.source)  # the first of a full request gets its next batch whole
        elif not len(fetched.record_set) and fetched.preferred_read_replica < 0:
            partition.pass_over(end)  # compaction has removed everything before it

    def close(self) -> None:
        """Close all connections."""
        for lane in self._lanes.values():
            lane.fetcher.close()
        self._lanes.clear()
