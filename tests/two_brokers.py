"""Two embedded brokers, a worker of the copy loop between them, and checks of its copy.

aiokafka decodes the destination's records, from the bytes in the broker's
log: neither the compared records nor their decoding are shoal's own.
"""

from __future__ import annotations

import itertools
import math
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, overload

from aiokafka.record import MemoryRecords

from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import Committed, commit_offsets
from shoal.client.config import ClientConfig, IsolationLevel
from shoal.client.coordinator import MemberId
from shoal.client.lot import Gate, open_gate
from shoal.error_codes import ErrorCode
from shoal.errors import ShoalError, Stopped
from shoal.mirroring.control import Control
from shoal.mirroring.model.acknowledged import add_run
from shoal.mirroring.model.copy_options import CopySettings
from shoal.mirroring.model.position import MirrorPosition
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.reports import TaskReport
from shoal.mirroring.positions import GroupPositions
from shoal.net.address import Address
from shoal.protocol.apis import ApiKey
from shoal.protocol.fetch import FetchResponse
from shoal.records import RecordBatch, read_key_value_headers, read_records, split, verify_crc
from shoal.timing import Timing
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from shoal_broker.call import Call
from shoal_broker.state import BrokerState
from shoal_broker.storage.log import Log
from tests import batches
from tests.copying import TaskResult, Uncontrolled, run_copy_task

__all__ = [
    "ABORT",
    "COMMIT",
    "DEADLINE_S",
    "NOW_MS",
    "QUICK",
    "Acting",
    "Content",
    "Held",
    "History",
    "Killed",
    "Lagging",
    "Mortal",
    "RunningTask",
    "TwoBrokers",
    "Watched",
    "answers",
    "answers_without_later_commits",
    "batches_of",
    "before_request",
    "begin_at",
    "compacted",
    "content_of",
    "content_of_batch",
    "die_after",
    "is_let_go",
    "lagging",
    "leads_elsewhere",
    "let_pass",
    "lists_no_groups",
    "lose_tail",
    "second_node",
    "wait_until",
]

#: So young that no broker forgets its producer; more than one request may be in flight.
NOW_MS = int(time.time() * 1000)

ABORT, COMMIT = 0, 1

#: Partitions and fetches wait for milliseconds instead of seconds: the brokers answer at once.
QUICK = Timing(
    first_retry_ms=1,
    longest_retry_ms=20,
    admission_s=0.005,
    look_interval_s=0.0,
    fetch_max_wait_ms=20,
    hold_look_s=0.001,
)

#: Ten times what the longest wait of a test takes on two quiet cores.
DEADLINE_S = 120.0


class Content(NamedTuple):
    """A record without its offset, which a mirror changes."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def content_of_batch(batch: bytes | bytearray | memoryview) -> list[tuple[int, Content]]:
    """Return a batch's records with their offsets; one of magic 0 has no time, which is -1."""
    if batch[16] < 2:
        return _content_of_old_batch(batch)
    # If the bit is cleared, a LogAppendTime batch shows its records' own times.
    attributes = int.from_bytes(batch[21:23]) & ~batches.LOG_APPEND_TIME
    decoder = MemoryRecords(bytes(batches.patched(bytes(batch), 21, attributes.to_bytes(2))))
    decoded = decoder.next_batch()
    assert decoded is not None
    return [
        (record.offset, Content(record.timestamp, record.key, record.value, tuple(record.headers or ())))
        for record in decoded
    ]


def _content_of_old_batch(batch: bytes | bytearray | memoryview) -> list[tuple[int, Content]]:
    decoded = MemoryRecords(bytes(batch)).next_batch()
    assert decoded is not None
    return [
        (each.offset, Content(-1 if each.timestamp is None else each.timestamp, each.key, each.value, ()))
        for each in decoded
    ]


def _decode(batch: bytes | bytearray | memoryview) -> list[Content]:
    return [content for _, content in content_of_batch(batch)]


def batches_of(log: Log) -> list[RecordBatch]:
    """Return all batches of a log, as they are stored."""
    found: list[RecordBatch] = []
    offset = log.log_start_offset
    while True:
        read = log.read(offset, 2**31, committed=False, at_least_one_batch=True)
        assert isinstance(read.record_set, memoryview), "the log is in memory"
        found += split(read.record_set)
        if not read.record_set:
            return found
        offset = found[-1].header.next_offset


def content_of(log: Log, *, is_compacted: bool = False) -> list[Content]:
    """Return all records of a destination's log.

    Checks that its batches have right CRCs and counts, and that its offsets have no gap, unless it is
    compacted.
    """
    records: list[Content] = []
    expected = log.log_start_offset
    least_end = log.log_end_offset  # more may arrive during the read
    for batch in batches_of(log):
        verify_crc(batch)
        assert is_compacted or batch.header.base_offset == expected
        expected = batch.header.next_offset
        decoded = _decode(batch.view)
        assert len(decoded) == batch.header.records_count
        records += decoded
    assert is_compacted or expected >= least_end
    return records


class History:
    """The history of a partition of the source, and the records that a reader must see of it.

    Attributes:
        committed: The records that ``read_committed`` shows.
        uncommitted: Those that ``read_uncommitted`` shows.
    """

    def __init__(self, log: Log, base_timestamp: int = NOW_MS) -> None:
        self.log = log
        self.base_timestamp = base_timestamp
        self.committed: list[Content] = []
        self.uncommitted: list[Content] = []
        self.next_offset = log.log_end_offset

    def store(self, batch: bytes | bytearray, *, shown: bool = False) -> None:
        """Append a batch to the log as it is; its base offset must be :attr:`next_offset` or later."""
        self.log.store(memoryview(batch))
        self.next_offset = self.log.log_end_offset
        if shown:
            self.committed += _decode(batch)
            self.uncommitted += _decode(batch)

    def batch(self, count: int = 3, **fields: Any) -> bytearray:
        """Build a batch for the log's end, with unique values."""
        values = [b"value at %d" % (self.next_offset + number) for number in range(count)]
        return batches.batch(
            values, **{"base_offset": self.next_offset, "base_timestamp": self.base_timestamp, **fields}
        )

    def plain(self, *counts: int, **fields: Any) -> Self:
        """Add batches with these numbers of records."""
        for count in counts:
            self.store(self.batch(count, **fields), shown=True)
        return self

    def transaction(self, *counts: int, ends: int, producer_id: int = 77) -> Self:
        """Add the batches of a transaction, and its marker."""
        for count in counts:
            batch = self.batch(count, flags=batches.TRANSACTIONAL, producer_id=producer_id, producer_epoch=0)
            self.store(batch)
            self.uncommitted += _decode(batch)
            if ends == COMMIT:
                self.committed += _decode(batch)
        self.marker(ends, producer_id)
        return self

    def marker(self, kind: int = COMMIT, producer_id: int = 77) -> Self:
        self.store(batches.marker(kind, producer_id, base_offset=self.next_offset))
        return self

    def empty(self, range_size: int = 2) -> Self:
        """Add a batch that compaction left without records."""
        self.store(self.batch(range_size, holes=range(range_size)))
        return self

    def holed(self, count: int, holes: Sequence[int], **fields: Any) -> Self:
        """Add a batch from which compaction removed some records."""
        self.store(self.batch(count, holes=holes, **fields), shown=True)
        return self

    def gap(self, offsets: int) -> Self:
        """Skip offsets, as if compaction removed their whole batches."""
        self.next_offset += offsets
        return self

    def gap_at_the_end(self, offsets: int) -> Self:
        """End the log after a gap: no client can do this, but a compacted and rolled log can."""
        self.next_offset += offsets
        self.log.end_at(self.next_offset)
        return self


def lose_tail(broker: Broker, topic: str, end: int, partition: int = 0, *, election: bool = True) -> Log:
    """
    Truncate the log as an unclean election does: before the first batch that ends at ``end`` or later.

    Without the election it is as if an older copy of the disk was put back.
    """
    before = broker.log(topic, partition)
    after = before.truncated(end)
    after.begin_leader_epoch(before.leader_epoch + election)
    topics = broker.topics.topic(topic)
    topics.logs[partition] = after
    return after


class Watched(Uncontrolled):
    """A task's control that collects reports and waits, and that a test can stop."""

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []
        self.waits: list[float] = []
        self.stop_requested = False
        self._stopping = threading.Event()
        self._member = MemberId()
        self._begin: Callable[[], MemberId] | None = None
        self._is_orphan = False
        self.is_dead = False
        self._beginning = threading.Lock()
        self._gates: list[Gate] = []

    def hold_group(self, begin: Callable[[], MemberId], now: MemberId | None = None) -> None:
        """Commit as a member whose generations ``begin`` begins; without ``now``, one begins now."""
        self._begin = begin
        self._member = begin() if now is None else now

    def begin_generation(self) -> None:
        with self._beginning:
            if self._is_orphan:
                return  # the driver ignores it
            if self._begin is not None:
                self._member = self._begin()
            super().begin_generation()

    def membership(self) -> MemberId:
        return self._member

    def orphan(self) -> None:
        """End the lease for good: another attempt begins."""
        with self._beginning:
            self._is_orphan = True
        for gate in self._gates:
            gate[0] = 0

    def check_lease(self) -> None:
        if self._is_orphan:
            raise Stopped("the driver is gone: nothing more is produced")

    def open_gate(self) -> Gate:
        gate = super().open_gate()
        self._gates.append(gate)
        if self._is_orphan:
            gate[0] = 0
        return gate

    def request_stop(self) -> None:
        self.stop_requested = True
        self._stopping.set()

    def report(self, report: TaskReport) -> None:
        self.reports.append(report.to_json_object())

    def wait(self, seconds: float) -> None:
        if seconds:
            self.waits.append(seconds)
        self._stopping.wait(seconds)

    @property
    def newest(self) -> list[dict[str, Any]]:
        """The newest report of each partition, which has all counts since the task took it."""
        reports = (each for report in self.reports for each in report["partitions"])
        return list({(each["topic"], each["partition"], each["since"]): each for each in reports}.values())

    def total(self, count: str) -> int:
        return sum(each[count] for each in self.newest)

    @property
    def decisions(self) -> dict[str, int]:
        """The number of batches by decision, of all partitions."""
        return dict(sum((Counter(each["decisions"]) for each in self.newest), Counter[str]()))

    @property
    def runs(self) -> list[list[int]]:
        """The runs of the one partition, from any number of reports."""
        found: list[list[int]] = []
        for report in self.reports:
            for each in report["partitions"]:
                for run in each["runs"]:
                    add_run(found, *run)
        return found

    @property
    def waited_for(self) -> set[str]:
        return {
            each["waiting_for"]
            for report in self.reports
            for each in report["partitions"]
            if each["waiting_for"]
        }


class RunningTask:
    """A copy task in a thread, for tests that act while it runs."""

    def __init__(self, run: Callable[[], TaskResult]) -> None:
        self._outcome: TaskResult | BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(run,), daemon=True)
        self._thread.start()

    def _run(self, run: Callable[[], TaskResult]) -> None:
        try:
            self._outcome = run()
        except BaseException as error:
            self._outcome = error

    def result(self, timeout_s: float = DEADLINE_S) -> TaskResult:
        """Wait for its end, and return its result or raise its exception."""
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), "the task does not end"
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome

    def ends_within(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()


@dataclass(frozen=True)
class TwoBrokers:
    """Source and destination, and workers between them."""

    source: Broker
    destination: Broker
    settings: CopySettings

    @classmethod
    @contextmanager
    def started(cls, *, multi_batch: bool = False) -> Iterator[TwoBrokers]:
        """Start both.

        With ``multi_batch`` the destination accepts several batches in a request. Otherwise the mirror does
        not request that, so that each Produce request has one batch.
        """
        config = {"shoal.multi.batch.produce": str(multi_batch).lower()}
        with ExitStack() as stack:
            source = stack.enter_context(Broker(cluster_id="source"))
            destination = stack.enter_context(Broker(cluster_id="destination", config=config))
            settings = CopySettings(
                source=config_of("source", source),
                destination=config_of("destination", destination),
                group="mirror",
                rules="rules",
                fetch_buffer_bytes=4 * 1024 * 1024,
                multi_batch=multi_batch,
                timing=QUICK,
            )
            yield cls(source, destination, settings)

    def with_settings(self, **changes: Any) -> TwoBrokers:
        return replace(self, settings=replace(self.settings, **changes))

    def with_timing(self, **times: Any) -> TwoBrokers:
        return self.with_settings(timing=replace(self.settings.timing, **times))

    def read_uncommitted(self) -> TwoBrokers:
        source = replace(self.settings.source, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        return self.with_settings(source=source)

    def impatient(self) -> TwoBrokers:
        """Wait shortly for each answer, for tests of fetches that a broker answers only after its wait."""
        source = replace(self.settings.source, request_timeout_ms=250)
        destination = replace(self.settings.destination, request_timeout_ms=250)
        return self.with_settings(source=source, destination=destination)

    # Contents

    def topic(self, name: str = "topic", partitions: int = 1, **destination_config: str) -> list[History]:
        """Create a topic on both sides; return the histories of the source's partitions."""
        self.source.create_topic(name, partitions)
        self.destination.create_topic(
            name, partitions, {key.replace("_", "."): value for key, value in destination_config.items()}
        )
        return [History(log) for log in self.source.topics.topic(name).logs]

    def copied(self, topic: str = "topic", partition: int = 0) -> list[Content]:
        """Return the destination's records."""
        return content_of(self.destination.log(topic, partition))

    def position(self, topic: str = "topic", partition: int = 0) -> MirrorPosition:
        """Return the committed position."""
        key = TopicPartition(topic, partition)
        with Cluster(self.settings.source) as cluster:
            return GroupPositions(cluster, self.settings.group, MemberId).read([key])[key]

    def commit(self, position: MirrorPosition, topic: str = "topic", partition: int = 0) -> None:
        """Commit a position, over any committed one."""
        with Cluster(self.settings.source) as cluster:
            GroupPositions(cluster, self.settings.group, MemberId).commit(
                {TopicPartition(topic, partition): position}
            )

    def taking_over(self, offset: int = 0, topic: str = "topic") -> TwoBrokers:
        """Let a consumer of the mirror's group commit an offset, and let the mirror begin there."""
        consumed = {TopicPartition(topic, 0): Committed(offset, "")}
        with Cluster(self.settings.source) as cluster:
            assert commit_offsets(cluster, self.settings.group, consumed, MemberId()) == {}
        return self.with_settings(takes_over_offsets=True)

    def forget_pairs(self) -> None:
        """Let the group's positions expire."""
        self.source.groups.delete(self.settings.group)

    # Copying

    def ranges(self, *topics: str) -> list[CopyRange]:
        """Return ranges from the logs' starts to their ends, for all partitions of some topics."""
        committed = self.settings.source.isolation_level is IsolationLevel.READ_COMMITTED
        return [
            CopyRange(
                topic,
                number,
                topic,
                log.log_start_offset,
                log.last_stable_offset if committed else log.high_watermark,
            )
            for topic in topics or ("topic",)
            for number, log in enumerate(self.source.topics.topic(topic).logs)
        ]

    def run(self, ranges: Sequence[CopyRange] | None = None, control: Control | None = None) -> TaskResult:
        """Copy up to the current ends, as one task does."""
        return run_copy_task(
            self.ranges() if ranges is None else ranges, self.settings, control or Uncontrolled()
        )

    def start(self, ranges: Sequence[CopyRange] | None = None, control: Control | None = None) -> RunningTask:
        wanted = self.ranges() if ranges is None else ranges
        return RunningTask(lambda: self.run(wanted, control))


def config_of(name: str, *brokers: Broker) -> ClientConfig:
    addresses = tuple(Address(broker.host, broker.port) for broker in brokers)
    return ClientConfig(name, addresses, request_timeout_ms=5_000)


class Killed(BaseException):
    """A process is killed: no ``except`` of the engine catches it, and nothing is committed any more."""


class CheckedGate(MutableSequence[int]):
    """A gate that is open as long as a check raises nothing; only Python's sender can use it."""

    def __init__(self, check: Callable[[], object]) -> None:
        self._check = check
        self._words = list(open_gate())

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> list[int]: ...

    def __getitem__(self, index: int | slice) -> int | list[int]:
        if index == 0:
            try:
                self._check()
            except ShoalError:
                return 0
        return self._words[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._words[index] = value

    def __delitem__(self, index: Any) -> None:
        raise TypeError("a gate has two words")

    def __len__(self) -> int:
        return len(self._words)

    def insert(self, index: int, value: int) -> None:
        raise TypeError("a gate has two words")


class Mortal(Watched):
    """A task's control under which the task is killed: at a certain check of its lease, or at a retry."""

    def __init__(self, at_check: int | None = None) -> None:
        super().__init__()
        self._steps_left = at_check

    def open_gate(self) -> Gate:
        """Let each system call that sends ask, if the checks are counted."""
        return super().open_gate() if self._steps_left is None else CheckedGate(self.check_lease)

    def check_lease(self) -> None:
        """Count a check: one for each turn of a worker and a copy loop, and before batches are sent."""
        super().check_lease()
        if self._steps_left is not None:
            self._steps_left -= 1
            if self._steps_left < 0:
                self._die()

    def membership(self) -> MemberId:
        if self.is_dead:
            raise Killed
        return super().membership()

    def report(self, report: TaskReport) -> None:
        super().report(report)
        if any(each.waiting_for for each in report.partitions):
            self._die()

    def wait(self, seconds: float) -> None:
        self._die()

    def _die(self) -> None:
        self.is_dead = True
        raise Killed


class Acting(Watched):
    """A task's control that acts at a certain check of the lease."""

    def __init__(self, at_check: int, action: Callable[[], object]) -> None:
        super().__init__()
        self._steps_left = at_check
        self._action = action

    def open_gate(self) -> Gate:
        """Let each system call that sends ask."""
        return CheckedGate(self.check_lease)

    def check_lease(self) -> None:
        super().check_lease()
        self._steps_left -= 1
        if self._steps_left == -1:
            self._action()


def die_after(brokers: TwoBrokers, requests: int) -> None:
    """Kill a worker after this many acknowledged requests; only its first position is committed."""
    let_pass(brokers.destination, ApiKey.PRODUCE, requests)
    brokers.destination.faults.add(ApiKey.PRODUCE, drop="before")
    try:
        brokers.run(control=Mortal())
    except Killed:
        brokers.destination.faults.clear()
    else:
        raise AssertionError("the task was not killed")


def second_node(first: Broker) -> Broker:
    """Return another node of a broker's cluster, which reports itself as the leader of everything."""
    second = Broker(cluster_id=first.cluster_id, node_id=first.node_id + 1)
    second.topics, second.groups, second.transactions = first.topics, first.groups, first.transactions
    return second


_refusing: list[socket.socket] = []


def leads_elsewhere(broker: Broker, topic: str, partition: int) -> None:
    """Make a broker return an unreachable node as a partition's leader."""
    api = broker.apis[ApiKey.METADATA]
    refusing = socket.socket()
    refusing.bind((broker.host, 0))  # kept without listening, so that no other process gets the port
    _refusing.append(refusing)
    port = refusing.getsockname()[1]

    def handle(broker: BrokerState, call: Call, request: Any) -> Any:
        response = api.handle(broker, call, request)
        here = response.brokers[0]
        response.brokers.append(type(here)(node_id=99, host=here.host, port=port, rack=None))
        for described in response.topics:
            for each in described.partitions:
                if (described.name, each.partition_index) == (topic, partition):
                    each.leader_id = 99
        return response

    broker.apis = {**broker.apis, ApiKey.METADATA: replace(api, handle=handle)}


def answers(
    broker: Broker,
    api: ApiKey,
    change: Callable[[Any], Any],
    times: int = 1,
    to: Callable[[Any], bool] = lambda request: True,
) -> None:
    """Change a broker's next responses, or those to some requests."""
    before = broker.apis[api]
    left = itertools.count(times, -1)

    def handle(broker: BrokerState, call: Call, request: Any) -> Any:
        response = before.handle(broker, call, request)
        return change(response) if to(request) and next(left) > 0 else response

    broker.apis = {**broker.apis, api: replace(before, handle=handle)}


def before_request(broker: Broker, api: ApiKey, happen: Callable[[], object], number: int = 1) -> None:
    """Let something happen just before a broker serves one of its next requests, counted from 1."""
    before = broker.apis[api]
    numbers = itertools.count(1)

    def handle(broker: BrokerState, call: Call, request: Any) -> Any:
        if next(numbers) == number:
            happen()
        return before.handle(broker, call, request)

    broker.apis = {**broker.apis, api: replace(before, handle=handle)}


def refuses_offsets(broker: Broker, times: int) -> None:
    """Have a broker refuse the offsets of its fetch requests, whatever log ends it reports."""

    def refused(response: FetchResponse) -> FetchResponse:
        code = ErrorCode.OFFSET_OUT_OF_RANGE
        parts = [replace(each, error_code=code, record_set=memoryview(b"")) for each in response.partitions]
        return replace(response, partitions=parts)

    answers(broker, ApiKey.FETCH, refused, times)


def lists_no_groups(broker: Broker, times: int = 1) -> None:
    """Have a broker list no groups, and no error, as while their coordinator moves."""

    def without_groups(response: Any) -> Any:
        response.groups.clear()
        return response

    answers(broker, ApiKey.LIST_GROUPS, without_groups, times)


def answers_without_later_commits(broker: Broker) -> None:
    """
    Have a coordinator show no offsets to reads without ``require_stable``.

    Kafka 4 does so after a move: such reads end at the new leader's high watermark, which it may not have
    yet (CoordinatorRuntime, ``lastCommittedOffset``).
    """
    before = broker.apis[ApiKey.OFFSET_FETCH]

    def handle(broker: BrokerState, call: Call, request: Any) -> Any:
        response = before.handle(broker, call, request)
        if not request.require_stable:
            for answered in (response, *response.groups):
                for topic in answered.topics:
                    for each in topic.partitions:
                        each.committed_offset, each.metadata = -1, ""
        return response

    broker.apis = {**broker.apis, ApiKey.OFFSET_FETCH: replace(before, handle=handle)}


class Held:
    """The first requests of an API that a broker answers only after they are released, however late."""

    def __init__(
        self, broker: Broker, api: ApiKey, partition: int | None = None, times: float = math.inf
    ) -> None:
        self._changed = threading.Condition()
        self._released = False
        self._held = self._inside = 0
        before = broker.apis[api]

        def handle(broker: BrokerState, call: Call, request: Any) -> Any:
            if partition is not None and partition not in _partitions_named(request):
                return before.handle(broker, call, request)
            with self._changed:
                if self._held == times:
                    return before.handle(broker, call, request)
                self._held += 1
                self._inside += 1
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._released, 60)
            try:
                return before.handle(broker, call, request)
            finally:
                with self._changed:
                    self._inside -= 1
                    self._changed.notify_all()

        broker.apis = {**broker.apis, api: replace(before, handle=handle)}

    def wait_for_one(self) -> None:
        """Wait until a request is held."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._inside > 0, DEADLINE_S), "none comes"

    def release(self) -> None:
        """Release all requests, including later ones; return when the held ones have taken effect."""
        with self._changed:
            self._released = True
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._inside == 0, DEADLINE_S), "one does not end"


def _partitions_named(request: Any) -> set[int]:
    return {each.partition for topic in request.topics for each in topic.partitions}


def may_compact(broker: Broker, topic: str = "topic") -> None:
    """Set a topic's policy to ``compact``: without it, a log has no gap at its end."""
    broker.topics.alter(broker.topics.topic(topic), {"cleanup.policy": "compact"})


def begin_at(log: Log, offset: int) -> None:
    """Make an empty log begin at an offset, as if all its records were deleted."""
    log.end_at(offset)
    log.delete_records(offset)


class Lagging(Log):
    """A log whose followers are slow: its high watermark lies before its end."""

    _slow: int | None = None

    def lags_at(self, high_watermark: int) -> None:
        self._slow = high_watermark

    def lag_ends(self) -> None:
        self._slow = None

    @property
    def high_watermark(self) -> int:
        return self.log_end_offset if self._slow is None else self._slow

    def _last_stable_offset(self) -> int:
        shown = super()._last_stable_offset()
        return shown if self._slow is None else min(shown, self._slow)


def lagging(broker: Broker, topic: str, high_watermark: int, partition: int = 0) -> Lagging:
    """Make a partition's high watermark lag behind its end."""
    before = broker.log(topic, partition)
    after = Lagging(before.name, before.config)
    for batch in batches_of(before):
        after.store(batch.view)
    after.lags_at(high_watermark)
    broker.topics.topic(topic).logs[partition] = after
    return after


def compacted(batch: RecordBatch, keep: Callable[[int], bool]) -> bytearray:
    """Return the rest of a batch after compaction: its range, its producer, and some of its records."""
    header = batch.header
    left = [record for record in read_records(batch, 1_000_000) if keep(record.offset)]
    records = [
        batches.Record(
            value=value,
            key=key,
            headers=[(name.decode(), each) for name, each in headers],
            offset_delta=record.offset - header.base_offset,
            timestamp_delta=record.timestamp - header.base_timestamp,
        )
        for record in left
        for key, value, headers in [read_key_value_headers(record)]
    ]
    return batches.raw_batch(
        batches.payload(records) if records else b"",
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        records_count=len(records),
        attributes=batches.TRANSACTIONAL * header.is_transactional
        | batches.LOG_APPEND_TIME * header.is_log_append_time,
    )


def wait_until(condition: Callable[[], bool], timeout_s: float = DEADLINE_S) -> None:
    """Wait for a condition that another thread fulfils, and look more rarely the longer that takes."""
    began_at = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - began_at
        assert waited_s < timeout_s, "it does not happen"
        time.sleep(min(0.002 + waited_s / 20, 0.05))


def is_let_go(peer: socket.socket, byte: bytes) -> bool:
    """Send one more byte; return whether the other side has disconnected. Set a short timeout first."""
    try:
        peer.sendall(byte)
        return peer.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def let_pass(broker: Broker, api: ApiKey, requests: int) -> None:
    """Let this many requests pass before the faults that are added next."""
    if requests:
        broker.faults.add(api, times=requests)


def list_commits(broker: Broker, oldest: int, newest: int) -> None:
    """Let a broker list these versions of OffsetCommit: only v2 to v4 have a retention time."""
    api = replace(broker.apis[ApiKey.OFFSET_COMMIT], oldest=oldest, newest=newest)
    broker.apis = {**broker.apis, ApiKey.OFFSET_COMMIT: api}
