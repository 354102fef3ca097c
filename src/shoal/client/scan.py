"""Read one partition's batches in order; for what looks before it copies."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from ..error_codes import ErrorCode
from ..errors import BrokerError, CorruptBatch, ProtocolError, ShoalError
from ..protocol.fetch import FetchedPartition, FetchResponse
from ..records import AbortedTransactions, Decision, RecordBatch, decide, split, verify_crc
from ..topic_partition import TopicPartition
from .cluster import Cluster
from .config import IsolationLevel
from .connection import raise_for
from .fetch import Fetcher, FetchFrom
from .offsets import local_log_start_offset

__all__ = ["is_gap", "read_batches", "read_decided"]

_MAX_WAIT_MS = 200

#: So often in a row a broker may answer that we are over the quota, and send nothing.
_MOST_THROTTLED = 100

#: So often a source has to say that a part of its log is empty.
ANSWERS_OF_A_GAP = 5


def read_decided(
    cluster: Cluster,
    partition: TopicPartition,
    offset: int,
    isolation_level: IsolationLevel,
    buffer_bytes: int = 4 * 1024 * 1024,
    *,
    keep_append_time: bool = False,
) -> Generator[tuple[Decision, RecordBatch]]:
    """
    Yield each batch from an offset to the end of what may be read, and what becomes of it.

    Args:
        cluster: With metadata of the partition.
        partition: Which one.
        offset: Where to begin; the first batch may begin before it.
        isolation_level: What may be read, and what counts as aborted.
        buffer_bytes: For the responses. A batch is a view into the buffer:
            valid until the next one is asked for.
        keep_append_time: See :func:`~shoal.records.decide`.

    Raises:
        BrokerError: The leader refuses.
        CorruptBatch: It sends what no broker should, or drops a batch whose CRC is wrong.

    """
    where = f"fetching {partition} at offset {offset} from {cluster}"
    empty_answers = throttled = 0
    connection = cluster.connect(cluster.partition(partition).leader)
    topic_id = cluster.topic_id(partition.topic)
    fetcher = Fetcher(
        connection,
        buffer_bytes=buffer_bytes,
        isolation_level=isolation_level,
        max_wait_ms=_MAX_WAIT_MS,
        in_session=False,
    )
    try:
        while True:
            fetcher.ask(FetchFrom(partition, offset, topic_id=topic_id))
            fetcher.send()
            response = fetcher.receive()
            raise_for(response.error_code, where)
            if response.throttle_time_ms and not response.partitions:
                # Over the quota; the broker itself holds back its next answer.
                throttled += 1
                if throttled > _MOST_THROTTLED:
                    raise BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, where)
                continue
            throttled = 0
            fetched = _only_partition(response, where)
            committed = isolation_level is IsolationLevel.READ_COMMITTED
            aborted = AbortedTransactions(fetched.aborted_transactions) if committed else None
            started_at = offset
            for batch in split(fetched.record_set):
                decision = decide(batch.header, offset, aborted, keep_append_time=keep_append_time)
                if decision.is_drop:
                    verify_crc(batch)
                if decision is Decision.DROP_CONTROL and aborted is not None:
                    aborted.see_marker(batch)
                if batch.header.last_offset >= offset:
                    yield decision, batch
                    offset = batch.header.next_offset
            if offset >= fetched.end_offset(committed=committed):
                return
            if offset > started_at:
                empty_answers = 0
            elif len(fetched.record_set):
                raise CorruptBatch("it is cut short", offset)
            else:
                empty_answers += 1
                if is_gap(cluster, partition, offset, empty_answers):
                    return
                if empty_answers > ANSWERS_OF_A_GAP:
                    raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, where, "it answers with nothing")
    finally:
        fetcher.close()


def _only_partition(response: FetchResponse, where: str) -> FetchedPartition:
    if len(response.partitions) != 1:
        raise ProtocolError(f"{where}: an answer for {len(response.partitions)} partitions")
    fetched = response.partitions[0]
    raise_for(fetched.error_code, where)
    if fetched.preferred_read_replica >= 0:
        raise BrokerError(
            ErrorCode.REPLICA_NOT_AVAILABLE, where, f"it refers to node {fetched.preferred_read_replica}"
        )
    return fetched


def is_gap(cluster: Cluster, partition: TopicPartition, offset: int, empty_answers: int) -> bool:
    """
    Whether to believe that there is nothing from an offset to the end: compaction took it.

    Only where the source said so again and again, and not where the offset
    may lie in remote storage: such a fetch is answered with nothing when it
    takes too long (DelayedRemoteFetch).
    """
    if empty_answers < ANSWERS_OF_A_GAP:
        return False
    local_start = local_log_start_offset(cluster, partition)
    return not isinstance(local_start, ShoalError) and local_start <= offset


def read_batches(cluster: Cluster, partition: TopicPartition, offset: int) -> Iterator[RecordBatch]:
    """Yield each batch from an offset on, whatever it is; see :func:`read_decided`."""
    for _, batch in read_decided(cluster, partition, offset, IsolationLevel.READ_UNCOMMITTED):
        yield batch
