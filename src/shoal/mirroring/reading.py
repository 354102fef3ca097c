"""Read one partition's batches in order; for what looks before it copies."""

from __future__ import annotations

from collections.abc import Iterator

from ..client.cluster import Cluster
from ..client.config import IsolationLevel
from ..client.connection import raise_for
from ..client.fetch import Fetcher, FetchFrom
from ..client.metadata import TopicPartition
from ..records import AbortedTransactions, Decision, RecordBatch, decide, split

__all__ = ["read_batches", "read_decided"]

_MAX_WAIT_MS = 200


def read_decided(
    cluster: Cluster,
    partition: TopicPartition,
    offset: int,
    isolation_level: IsolationLevel,
    buffer_bytes: int = 4 * 1024 * 1024,
) -> Iterator[tuple[Decision, RecordBatch]]:
    """
    Yield each batch from an offset to the end of what may be read, and what becomes of it.

    Args:
        cluster: With metadata of the partition.
        partition: Which one.
        offset: Where to begin; the first batch may begin before it.
        isolation_level: What may be read, and what counts as aborted.
        buffer_bytes: For the responses. A batch is a view into the buffer:
            valid until the next one is asked for.

    Raises:
        BrokerError: The leader refuses.
        CorruptBatch: It sends what no broker should.

    """
    connection = cluster.connect(cluster.partition(partition).leader)
    fetcher = Fetcher(
        connection, buffer_bytes=buffer_bytes, isolation_level=isolation_level, max_wait_ms=_MAX_WAIT_MS
    )
    try:
        while True:
            fetcher.send([FetchFrom(partition, offset)])
            (fetched,) = fetcher.receive().partitions
            raise_for(fetched.error_code, f"fetching {partition} at offset {offset} from {cluster}")
            committed = isolation_level is IsolationLevel.READ_COMMITTED
            aborted = AbortedTransactions(fetched.aborted_transactions) if committed else None
            for batch in split(fetched.record_set):
                decision = decide(batch.header, offset, aborted)
                if decision is Decision.DROP_CONTROL and aborted is not None:
                    aborted.see_marker(batch)
                if batch.header.last_offset >= offset:
                    yield decision, batch
                    offset = batch.header.next_offset
            if offset >= (fetched.last_stable_offset if committed else fetched.high_watermark):
                return
    finally:
        fetcher.close()


def read_batches(cluster: Cluster, partition: TopicPartition, offset: int) -> Iterator[RecordBatch]:
    """Yield each batch from an offset on, whatever it is; see :func:`read_decided`."""
    for _, batch in read_decided(cluster, partition, offset, IsolationLevel.READ_UNCOMMITTED):
        yield batch
