"""
Read one partition from its leader, response by response or batch by batch.

:func:`read_decided` is the reader for everything that examines a log and does
not copy it: resuming, the data source, the dry run. Verify fetches ahead and
accepts damaged batches, so it takes the responses from :class:`PartitionReader`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import NamedTuple

from ..error_codes import ErrorCode
from ..errors import BeingDownloaded, BrokerError, CorruptBatch, ProtocolError, ShoalError, raise_for
from ..protocol.fetch import FetchedPartition
from ..records import AbortedTransactions, Decision, RecordBatch, Scan
from ..topic_partition import TopicPartition
from .admin import NOT_ALLOWED, describe_topic_configs
from .cluster import Cluster
from .config import IsolationLevel
from .connection import Connection
from .fetch import Fetcher, FetchFrom
from .offsets import local_log_start_offset

__all__ = [
    "ANSWERS_OF_A_GAP",
    "GapLook",
    "PartitionReader",
    "look_for_gap",
    "may_be_compacted",
    "read_answers",
    "read_batches",
    "read_decided",
    "read_first_of_each",
    "read_one_batch_each",
]

_BUFFER_BYTES = 4 * 1024 * 1024
_MAX_WAIT_MS = 200

#: The most throttled answers in a row: over the quota, and without any data.
_MOST_THROTTLED = 100

#: For :func:`read_one_batch_each`: the partitions in a request, and the largest batch that it brings.
_TOGETHER = 256
_SMALL_BATCH_BYTES = 64 * 1024

#: The number of empty answers in a row after which a reader calls :func:`look_for_gap`.
ANSWERS_OF_A_GAP = 5

#: A look for a gap needs no more than one batch.
_LOOK_BYTES = 256 * 1024


class PartitionReader:
    """
    Fetches one partition from its leader.

    :meth:`ask` and :meth:`receive` alternate. A record set is a view of the
    reader's buffer, and valid until the next :meth:`receive`.

    """

    def __init__(
        self,
        cluster: Cluster,
        partition: TopicPartition,
        isolation_level: IsolationLevel,
        buffer_bytes: int = _BUFFER_BYTES,
        *,
        shares_connection: bool = False,
        wait_s: float = _MAX_WAIT_MS / 1000,
    ) -> None:
        """
        Connect to the leader that the cluster's metadata name.

        Args:
            cluster: The cluster, with metadata of the partition.
            partition: The partition to read.
            isolation_level: The fetches' isolation level.
            buffer_bytes: The size of the response buffer.
            shares_connection: Whether to use the cluster's own connection to the leader. Then the cluster may
                not be used between :meth:`ask` and :meth:`receive`.
            wait_s: The time that the leader may wait for records, in seconds.

        Raises:
            BrokerError: The partition has no leader, or its topic does not exist.

        """
        self._partition = partition
        self._cluster = cluster
        self._topic_id = cluster.topic_id(partition.topic)
        self._where = ""
        self._shares_connection = shares_connection
        leader = cluster.partition(partition).leader
        timeout_s = cluster.config.request_timeout_s + wait_s
        self._fetcher = _fetcher_of_a_scan(
            cluster.connection(leader) if shares_connection else cluster.connect(leader, timeout_s=timeout_s),
            isolation_level,
            buffer_bytes,
            max_wait_ms=int(wait_s * 1000),
        )

    def ask(self, offset: int) -> None:
        """Send the request for the batches from an offset on."""
        self._where = f"fetching {self._partition} at offset {offset} from {self._cluster}"
        self._fetcher.ask(FetchFrom(self._partition, offset, topic_id=self._topic_id))
        self._fetcher.send()

    def receive(self) -> FetchedPartition:
        """
        Receive the answer; repeat the request while the broker throttles it.

        Raises:
            BrokerError: The leader refuses the request, or refers to a follower.
            ProtocolError: The answer is not for this partition alone.

        """
        for _ in range(_MOST_THROTTLED):
            response = self._fetcher.receive()
            raise_for(response.error_code, self._where)
            if response.partitions or not response.throttle_time_ms:
                break
            # Over the quota; the broker itself delays its next answer.
            self._fetcher.send()
        else:
            raise BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, self._where)
        if len(response.partitions) != 1:
            raise ProtocolError(f"{self._where}: an answer for {len(response.partitions)} partitions")
        fetched = response.partitions[0]
        if fetched.error_code and (problem := self._cluster.config.problem_of(self._partition)) is not None:
            raise problem
        raise_for(fetched.error_code, self._where)
        if fetched.preferred_read_replica >= 0:
            referred = f"it refers to node {fetched.preferred_read_replica}"
            raise BrokerError(ErrorCode.REPLICA_NOT_AVAILABLE, self._where, referred)
        return fetched

    def close(self) -> None:
        """Close the connection; a shared one only if a response is still to come."""
        if self._fetcher.is_waiting or not self._shares_connection:
            self._fetcher.close()


def _fetcher_of_a_scan(
    connection: Connection,
    isolation_level: IsolationLevel,
    buffer_bytes: int,
    *,
    partition_max_bytes: int | None = None,
    max_wait_ms: int = _MAX_WAIT_MS,
) -> Fetcher:
    """Return a fetcher without a session: a log is read once, and a broker has few sessions."""
    return Fetcher(
        connection,
        buffer_bytes=buffer_bytes,
        isolation_level=isolation_level,
        max_wait_ms=max_wait_ms,
        partition_max_bytes=partition_max_bytes,
        in_session=False,
    )


def read_decided(
    cluster: Cluster,
    partition: TopicPartition,
    offset: int,
    isolation_level: IsolationLevel,
    buffer_bytes: int = _BUFFER_BYTES,
    *,
    keep_append_time: bool = False,
) -> Generator[tuple[Decision, RecordBatch]]:
    """
    Yield each batch from an offset to the end of the readable log, and the decision about it.

    Args:
        cluster: The cluster, with metadata of the partition.
        offset: The first wanted offset; the first batch may begin before it.
        isolation_level: With ``read_committed``, batches of aborted transactions are to be dropped.
        buffer_bytes: The size of the response buffer. A batch is a view of
            the buffer, and valid until the generator continues.
        keep_append_time: See :func:`~shoal.records.decide`.

    Raises:
        BrokerError: The leader refuses the request, or, retriable: it sends no records, and compaction does
            not explain it.
        CorruptBatch: A header that no broker sends, or a dropped batch with a wrong CRC.

    """
    answers = read_answers(
        cluster, partition, offset, isolation_level, buffer_bytes, keep_append_time=keep_append_time
    )
    with closing(answers):
        for answer in answers:
            yield from answer


def read_answers(
    cluster: Cluster,
    partition: TopicPartition,
    offset: int,
    isolation_level: IsolationLevel,
    buffer_bytes: int = _BUFFER_BYTES,
    *,
    keep_append_time: bool = False,
) -> Generator[Iterator[tuple[Decision, RecordBatch]]]:
    """
    Yield the batches of each answer to a request, for a reader that takes all that an answer brought.

    The arguments and errors are those of :func:`read_decided`. Take all batches of an answer before the next.
    """
    committed = isolation_level is IsolationLevel.READ_COMMITTED
    empty_answers = 0

    def batches(decided: Iterator[tuple[Decision, RecordBatch]]) -> Iterator[tuple[Decision, RecordBatch]]:
        nonlocal offset
        for decision, batch in decided:
            yield decision, batch
            offset = batch.header.next_offset

    # A task that aligns reads thousands of logs: connecting costs as much as reading a few batches.
    reader = PartitionReader(cluster, partition, isolation_level, buffer_bytes, shares_connection=True)
    try:
        while True:
            reader.ask(offset)
            try:
                fetched = reader.receive()
            except BeingDownloaded:  # an archive answers so after its wait
                continue
            started_at = offset
            aborted = AbortedTransactions(fetched.aborted_transactions) if committed else None
            found = Scan[RecordBatch](
                fetched.record_set,
                offset,
                aborted,
                log_end=fetched.high_watermark,
                keep_append_time=keep_append_time,
            )
            yield batches(iter(found))
            if offset >= fetched.end_offset(committed=committed):
                return
            if offset > started_at:
                empty_answers = 0
            elif len(fetched.record_set):
                raise CorruptBatch("the response ends before the batch does", offset)
            else:
                empty_answers += 1
                if empty_answers < ANSWERS_OF_A_GAP:
                    continue
                end = fetched.end_offset(committed=committed)
                look = look_for_gap(cluster, partition, offset, isolation_level)
                if look.is_gap_to(end):
                    return
                where = f"fetching {partition} at offset {offset} from {cluster}"
                reason = f"its answers have no records, but its log ends at {end}: {look.why}"
                raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, where, reason)
    finally:
        reader.close()


def read_batches(cluster: Cluster, partition: TopicPartition, offset: int) -> Generator[RecordBatch]:
    """Yield each batch from an offset on, control batches included; see :func:`read_decided`."""
    for _, batch in read_decided(cluster, partition, offset, IsolationLevel.READ_UNCOMMITTED):
        yield batch


def read_one_batch_each(
    cluster: Cluster, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, RecordBatch | ShoalError]:
    """
    Read the batch that has an offset, in many partitions by few requests to each leader.

    Args:
        cluster: The cluster, with metadata of the partitions.

    Returns:
        The batches, in memory of their own; the error for the partitions of a leader that does not answer.
        A partition is missing if :func:`read_batches` has to look: its batch is large, or its leader refuses.

    """
    found: dict[TopicPartition, RecordBatch | ShoalError] = {}
    for partition, first in read_first_of_each(cluster, offsets, IsolationLevel.READ_UNCOMMITTED):
        batch = first if isinstance(first, ShoalError) else _batch_at(offsets[partition], first)
        if batch is not None:
            found[partition] = batch
    return found


def read_first_of_each(
    cluster: Cluster, offsets: Mapping[TopicPartition, int], isolation_level: IsolationLevel
) -> Generator[tuple[TopicPartition, Iterator[tuple[Decision, RecordBatch]] | ShoalError]]:
    """
    Yield the first batches of many partitions from an offset on, by few requests to each leader.

    A partition is missing if its leader refuses it, and has an error if its leader does not answer. Batches
    are views of a buffer, valid until the generator continues; the last of a partition may be followed by
    others.

    Args:
        cluster: The cluster, with metadata of the partitions.
        offsets: The first wanted offset in each partition.
        isolation_level: As for :func:`read_decided`.

    """
    committed = isolation_level is IsolationLevel.READ_COMMITTED
    by_leader, errors = cluster.by_leader(offsets)
    yield from errors.items()
    for leader, led in by_leader.items():
        try:
            for partition, fetched in _fetch_each(cluster, leader, led, offsets, isolation_level):
                aborted = AbortedTransactions(fetched.aborted_transactions) if committed else None
                yield partition, iter(Scan(fetched.record_set, offsets[partition], aborted))
        except ShoalError as error:
            yield from ((partition, error) for partition in led)


def _fetch_each(
    cluster: Cluster,
    leader: int,
    partitions: Sequence[TopicPartition],
    offsets: Mapping[TopicPartition, int],
    isolation_level: IsolationLevel,
) -> Generator[tuple[TopicPartition, FetchedPartition]]:
    """Yield what a leader answers for each partition; those that it refuses are left out."""
    fetcher = _fetcher_of_a_scan(
        cluster.connect(leader),
        isolation_level,
        (_TOGETHER + 1) * _SMALL_BATCH_BYTES,
        partition_max_bytes=_SMALL_BATCH_BYTES,
    )
    try:
        for first in range(0, len(partitions), _TOGETHER):
            asked = partitions[first : first + _TOGETHER]
            for partition in asked:
                topic_id = cluster.topic_id(partition.topic)
                fetcher.ask(FetchFrom(partition, offsets[partition], topic_id=topic_id))
            fetcher.send()
            for fetched in fetcher.receive().partitions:
                partition = TopicPartition(fetched.topic, fetched.partition)
                if partition in offsets and not fetched.error_code:
                    yield partition, fetched
            for partition in asked:
                fetcher.forget(partition)
    finally:
        fetcher.close()


def _batch_at(offset: int, batches: Iterator[tuple[Decision, RecordBatch]]) -> RecordBatch | None:
    """Copy the first batch if it has an offset, and nothing is wrong with it."""
    with suppress(CorruptBatch):
        for _, batch in batches:
            if batch.header.base_offset > offset:
                break
            return RecordBatch(batch.header, memoryview(bytes(batch.view)))
    return None


class GapLook(NamedTuple):
    """
    The result of :func:`look_for_gap`.

    Attributes:
        end: The offset up to which the leader has no records; None if it may send some later.
        is_compacted: Whether compaction explains that they are missing; False without an end.
        why: Why it is not certain that the log has none.

    """

    end: int | None
    is_compacted: bool
    why: str

    def is_gap_to(self, end: int) -> bool:
        """Whether compaction removed all records up to an offset."""
        return self.is_compacted and self.end is not None and self.end >= end


def look_for_gap(
    cluster: Cluster, partition: TopicPartition, offset: int, isolation_level: IsolationLevel
) -> GapLook:
    """
    Find out whether compaction removed all records from an offset to the log's end.

    Empty answers are no proof: a broker whose read from remote storage takes too long sends one, too
    (DelayedRemoteFetch). So the offset must lie on the leader's own disks, as far as it reports them. Only a
    cleaner leaves gaps. The last proof is a fetch of this partition alone, for which the leader may wait as
    long as for any request.

    Args:
        cluster: The cluster, with metadata of the partition.
        offset: An offset at which several fetches brought no records.
        isolation_level: The isolation level of those fetches.

    Raises:
        ShoalError: The cluster does not answer, or refuses a request.

    """
    local_start = local_log_start_offset(cluster, partition)
    if isinstance(local_start, ShoalError):
        raise local_start
    if local_start > offset:
        return GapLook(None, False, f"its leader's own disks begin at offset {local_start}")
    wait_s = cluster.config.request_timeout_s
    reader = PartitionReader(cluster, partition, isolation_level, _LOOK_BYTES, wait_s=wait_s)
    with closing(reader):
        reader.ask(offset)
        fetched = reader.receive()
    if len(fetched.record_set):
        return GapLook(None, False, "a fetch with a longer wait brought records")
    end = fetched.end_offset(committed=isolation_level is IsolationLevel.READ_COMMITTED)
    if not may_be_compacted(cluster, partition.topic):
        return GapLook(end, False, "the topic's cleanup.policy is not compact, so no records may be missing")
    return GapLook(end, True, f"its log ended at offset {end} then")


def may_be_compacted(cluster: Cluster, topic: str) -> bool:
    """Return whether a topic has the policy ``compact``, or this principal may not read its policy."""
    try:
        configs = describe_topic_configs(cluster, [topic])
    except BrokerError as error:
        if error.code not in NOT_ALLOWED:
            raise
        return True
    policy = configs.get(topic, {}).get("cleanup.policy")
    return policy is not None and "compact" in policy.words
